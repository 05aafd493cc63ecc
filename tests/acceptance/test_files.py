"""Files through the whole product: from an upload to a body, from a body to a download."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.stack import Stack

pytestmark = [pytest.mark.needs("redis"), pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
ENVIRON = {"ASYNC_NODES_IMPORTS": "tests.acceptance.file_nodes,async_nodes.testing.nodes"}
KINDS = ("", "_cpu", "_async")


@pytest.fixture(scope="module")
def files_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack with nodes for files."""
    stack = Stack(tmp_path_factory.mktemp("files"), environ=ENVIRON)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def put(stack: Stack, data: bytes, query: str = "") -> dict[str, Any]:
    """Upload a file."""
    answer = stack.client.request("POST", f"/v1/files{query}", data)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


def content(stack: Stack, file_id: str) -> bytes:
    """Download a file."""
    answer = stack.client.request("GET", f"/v1/files/{file_id}/content")
    assert answer.status == 200, answer
    return answer.body


def ended(stack: Stack, node: str, inputs: dict[str, Any], seconds: float = 60) -> dict[str, Any]:
    """Return the record of a task that has ended."""
    return stack.wait(stack.submit(node, inputs), seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_reads_what_was_uploaded(files_stack: Stack, kind: str) -> None:
    """64 MiB in each kind of body, byte for byte, in next to no memory."""
    data = b"".join(bytes([number]) * MIB for number in range(64))
    info = put(files_stack, data)
    record = ended(files_stack, f"files.digest{kind}", {"file": info["file_id"]})

    assert record["state"] == "Succeeded", record["error"]
    assert record["output"]["sha256"] == info["sha256"] == hashlib.sha256(data).hexdigest()
    assert record["output"]["grown"] < 16 * MIB
    assert files_stack.client.request("DELETE", f"/v1/files/{info['file_id']}").status == 204


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_makes_what_is_downloaded(files_stack: Stack, kind: str) -> None:
    """The output refers to it; the reference is an input of the next task as it stands."""
    record = ended(files_stack, f"files.make{kind}", {"mib": 20})
    assert record["state"] == "Succeeded", record["error"]
    made = record["output"]["made"]
    data = content(files_stack, made["file_id"])

    assert (made["name"], made["size"]) == ("made.bin", 20 * MIB)
    assert hashlib.sha256(data).hexdigest() == made["sha256"]
    assert record["output"]["grown"] < 16 * MIB
    again = ended(files_stack, f"files.digest{kind}", {"file": made})
    assert again["output"]["sha256"] == made["sha256"]


def test_a_missing_file_is_refused_at_submit(files_stack: Stack) -> None:
    """One that never was, one that is gone: 422 with the place, also within a batch."""
    info = put(files_stack, b"x")
    good = files_stack.submit("files.digest", {"file": info["file_id"]})
    assert files_stack.wait(good)["state"] == "Succeeded"
    assert files_stack.client.request("DELETE", f"/v1/files/{info['file_id']}").status == 204
    task = {"node": "files.digest", "inputs": {"file": info["file_id"]}}
    head = {"Content-Type": "application/json"}
    answer = files_stack.client.request("POST", "/v1/tasks", json.dumps(task).encode(), head)
    assert answer.status == 422
    assert answer.json["code"] == "invalid_inputs"
    assert answer.json["pointer"] == "/inputs/file"

    raw = json.dumps({"tasks": [task, {"node": "echo"}]}).encode()
    batch = files_stack.client.request("POST", "/v1/tasks/batch", raw, head).json
    assert [result["status"] for result in batch["results"]] == [422, 202]
    assert batch["results"][0]["error"]["pointer"] == "/tasks/0/inputs/file"
    retried = files_stack.client.request("POST", f"/v1/tasks/{good}/retry", b"{}", head)
    assert retried.status == 422


def test_a_task_keeps_its_files(files_stack: Stack) -> None:
    """A file of five seconds is there for as long as its task's record."""
    info = put(files_stack, b"x" * 300_000, "?ttl=5")
    task_id = files_stack.submit("files.digest", {"file": info["file_id"]}, delay=6, ttl=600)
    later = files_stack.client.request("GET", f"/v1/files/{info['file_id']}").json
    assert later["expires_at"] > info["expires_at"]
    record = files_stack.wait(task_id, 30)
    assert record["output"]["sha256"] == info["sha256"]
    assert content(files_stack, info["file_id"]) == b"x" * 300_000


@pytest.mark.parametrize("kind", ["", "_cpu"])
def test_a_file_that_is_deleted_under_a_body_ends_it(files_stack: Stack, kind: str) -> None:
    """The task fails with a reason and is not tried again: a part is never taken for the whole."""
    info = put(files_stack, b"x" * (8 * MIB))
    task_id = files_stack.submit(f"files.digest{kind}", {"file": info["file_id"], "pause": 0.1})
    files_stack.until(
        lambda: bool(files_stack.client.get(task_id)["progress"]), "the body does not read"
    )
    assert files_stack.client.request("DELETE", f"/v1/files/{info['file_id']}").status == 204
    record = files_stack.wait(task_id)

    assert record["state"] == "Failed"
    assert record["error"]["code"] == "file_gone"
    assert record["attempt"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_was_away_costs_a_body_nothing(
    new_stack: Callable[..., Stack], kind: str, tmp_path: Path
) -> None:
    """Redis dies and comes back while a body writes: the file is whole, the attempt the first."""
    stack = new_stack(environ=ENVIRON)
    task_id = stack.submit(f"files.make{kind}", {"mib": 30, "pause": 0.1})
    with stack.redis() as server:
        stack.until(lambda: int(server.hlen("an:{0}:filesize:default")) > 0, "nothing is written")
    time.sleep(0.5)
    stack.server.kill()
    time.sleep(1.5)
    stack.server.start()
    record = stack.wait(task_id, 60)

    assert record["state"] == "Succeeded", record["error"]
    assert record["attempt"] == 1
    made = record["output"]["made"]
    assert hashlib.sha256(content(stack, made["file_id"])).hexdigest() == made["sha256"]
    assert made["size"] == 30 * MIB


# -- the command line ------------------------------------------------------------------------------


def cli(stack: Stack, folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a folder."""
    command = [sys.executable, "-P", "-m", "async_nodes.cli", *words]
    environ = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "ASYNC_NODES_PORT": str(stack.client.port),
    }
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, timeout=60, check=False
    )


def test_the_command_line_carries_files(files_stack: Stack, tmp_path: Path) -> None:
    """Put, list, get and rm: the same bytes under the same name, and then nothing."""
    data = os.urandom(3_000_000)
    (tmp_path / "茶 1.bin").write_bytes(data)
    put = cli(files_stack, tmp_path, "files", "put", "茶 1.bin", "--ttl", "600")
    assert put.returncode == 0, put.stderr
    file_id = put.stdout.decode().strip()
    listed = cli(files_stack, tmp_path, "files", "list").stdout.decode()
    assert re.search(rf"{file_id} +3,000,000 .* 茶 1\.bin", listed)
    shown = json.loads(cli(files_stack, tmp_path, "files", "list", "--json").stdout.split(b"\n")[0])
    assert shown["file_id"] == file_id

    again = cli(files_stack, tmp_path, "files", "get", file_id)
    assert again.returncode == 2
    assert b"is there already" in again.stderr
    other = tmp_path / "other"
    other.mkdir()
    assert cli(files_stack, other, "files", "get", file_id).returncode == 0
    assert [path.name for path in other.iterdir()] == ["茶 1.bin"]
    assert (other / "茶 1.bin").read_bytes() == data
    assert cli(files_stack, other, "files", "get", file_id, "-o", "-").stdout == data

    assert cli(files_stack, other, "files", "rm", file_id).returncode == 0
    gone = cli(files_stack, other, "files", "get", file_id, "--force")
    assert gone.returncode == 1
    assert b"[file_gone]" in gone.stderr
    assert len(list(other.iterdir())) == 1


def test_run_uploads_what_it_is_given(files_stack: Stack, tmp_path: Path) -> None:
    """``key=@path`` is the file's id in the task; a file that is not there is named."""
    (tmp_path / "a.bin").write_bytes(b"hello")
    done = cli(files_stack, tmp_path, "run", "files.digest", "file=@a.bin", "--wait")
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(b"hello").hexdigest() in done.stdout.decode()

    missing = cli(files_stack, tmp_path, "run", "files.digest", "file=@nothing")
    assert missing.returncode == 1
    assert b"nothing cannot be read" in missing.stderr


def test_a_file_that_is_refused_is_explained(
    new_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """The server stops reading; the command still shows why."""
    stack = new_stack(io=0, cpu=0, environ={"ASYNC_NODES_FILE_MAX_BYTES": "1000"})
    (tmp_path / "a.bin").write_bytes(b"x" * 30_000_000)
    refused = cli(stack, tmp_path, "files", "put", "a.bin")

    assert refused.returncode == 1
    assert b"[file_too_large]" in refused.stderr, refused.stderr
