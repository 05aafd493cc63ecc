from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.cli_processes import (
    TITLES,
    Program,
    command,
    environ,
    free_port,
    get,
    is_alive,
    is_ready,
    program,
    until,
)

pytestmark = pytest.mark.needs("redis")


@dataclass
class Dev:
    """A whole installation that runs."""

    running: Program
    port: int
    env: dict[str, str]

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command line beside it."""
        return command(*arguments, env=self.env)


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """One installation for all tests here; each leaves it ready."""
    port = free_port()
    env = environ(
        ASYNC_NODES_DATA_DIR=str(tmp_path_factory.mktemp("dev")),
        ASYNC_NODES_PORT=str(port),
        ASYNC_NODES_IMPORTS="async_nodes.testing.nodes",
    )
    with program("dev", env=env) as running:
        running.wait_for("curl")
        yield Dev(running, port, env)
        if running.process.poll() is None:
            assert running.stop(signal.SIGTERM) == 0


def test_it_is_ready_when_it_says_so(dev: Dev) -> None:
    """`/readyz` is 200, and the four processes have their titles."""
    assert is_ready(dev.port)
    assert set(TITLES) <= set(dev.running.children().values())


def test_every_url_it_prints_answers(dev: Dev) -> None:
    """The URLs of the greeting are there: none is a 404."""
    urls = re.findall(r"^  \w+ +(http\S+)$", dev.running.text, re.MULTILINE)
    assert len(urls) == 4
    for url in urls:
        done = subprocess.run(
            ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout in {"200", "405"}, url  # tasks are posted to


def test_the_curl_works_as_pasted(dev: Dev) -> None:
    """The printed command, given to a shell, runs a task and prints its record."""
    line = next(line for line in dev.running.lines if line.strip().startswith("curl "))
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    record = json.loads(done.stdout)
    assert record["state"] == "Succeeded"
    assert record["output"] == {"text": "hello"}


def test_run_follows_a_stream(dev: Dev) -> None:
    """Text goes to stdout exactly as it was streamed, states to stderr."""
    done = dev.cli("run", "test.emit", 'pieces:=["你好 ", "\\n", "wor", "ld"]', "--follow")
    assert (done.returncode, done.stdout) == (0, "你好 \nworld\n")
    assert "Succeeded" in done.stderr


def test_run_tells_a_retry_and_a_failure(dev: Dev) -> None:
    """Each attempt is told; a failure ends with 1 and the node's own words."""
    done = dev.cli("run", "test.fail", "kind=terminal", "message=no luck", "--follow")
    assert done.returncode == 1
    assert "no luck [node_failed]" in done.stderr


def test_inputs_that_do_not_fit_are_told(dev: Dev) -> None:
    """The server's refusal is one sentence with the name that was meant."""
    done = dev.cli("run", "test.sleep", "second:=1")
    assert done.returncode == 1
    assert "seconds" in done.stderr
    assert "[invalid_inputs]" in done.stderr


def test_cancel_stops_a_running_task(dev: Dev) -> None:
    """`cancel --wait` returns when the task has stopped; `watch` shows its life afterwards."""
    task_id = dev.cli("run", "test.sleep", "seconds:=60").stdout.strip()
    url = f"http://127.0.0.1:{dev.port}/v1/tasks/{task_id}"
    until(lambda: get(url)[1]["state"] == "Running", 5.0)
    done = dev.cli("cancel", task_id, "--wait")
    assert done.returncode == 0, done.stderr
    assert "Cancelled" in done.stdout
    watched = dev.cli("watch", task_id)
    assert watched.returncode == 1
    assert "Running" in watched.stderr
    assert dev.cli("cancel", task_id).returncode == 1


def test_doctor_finds_it_well(dev: Dev) -> None:
    """All checks pass within five seconds, the echo task and the live events included."""
    done = dev.cli("doctor", "--json")
    found = json.loads(done.stdout)
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    assert set(outcomes.values()) == {"ok"}, done.stdout
    assert {"workers", "web", "echo", "events"} <= set(outcomes)
    assert done.returncode == 0
    assert sum(check["seconds"] for check in found["checks"]) < 5


def test_a_second_one_on_the_same_port_refuses(dev: Dev) -> None:
    """The same port again is refused with the address of the one that runs."""
    done = dev.cli("dev")
    assert done.returncode == 1
    assert f"already runs at http://127.0.0.1:{dev.port}" in done.stderr
    assert is_ready(dev.port)


def test_a_second_one_on_another_port_shares_the_store(dev: Dev) -> None:
    """Another port on the same data directory works beside the first, on the same store."""
    port = free_port()
    with program("dev", "--port", str(port), env=dev.env) as second:
        second.wait_for("curl")
        assert "The store is shared" in second.text
        task_id = dev.cli("run", "echo", "text=shared").stdout.strip()
        assert get(f"http://127.0.0.1:{port}/v1/tasks/{task_id}")[0] == 200
        assert second.stop() == 130
    assert is_ready(dev.port)


@pytest.mark.parametrize("victim", TITLES)
def test_what_is_killed_comes_back(dev: Dev, victim: str) -> None:
    """SIGKILL of any process is told, and the whole is ready again; what was accepted runs."""
    before = dev.running.child(victim)
    os.kill(before, signal.SIGKILL)
    name = victim.removeprefix("async-nodes ")
    dev.running.wait_for(f"was ended by SIGKILL (process {before})", 5.0)
    until(lambda: victim in dev.running.children().values(), 10.0)
    until(lambda: is_ready(dev.port), 15.0)
    assert dev.running.child(victim) != before
    # The store may serve before its supervisor has heard that it does.
    again = re.compile(rf"^{name} +│ ! runs again", re.MULTILINE)
    until(lambda: again.search(dev.running.text) is not None, 10.0)
    node = "test.spin" if name == "worker cpu" else "test.sleep"
    done = dev.cli("run", node, "seconds:=0.01", "--wait")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"seconds": 0.01})


def test_nothing_outlives_it(tmp_path: Path) -> None:
    """SIGKILL of `dev` ends every process it started."""
    env = environ(ASYNC_NODES_DATA_DIR=str(tmp_path))
    with program("dev", "--port", "0", env=env) as running:
        running.wait_for("curl")
        children = list(running.children())
        assert len(children) >= len(TITLES)
        running.process.kill()
        until(lambda: not any(map(is_alive, children)), 15.0, lambda: str(children))


def test_a_module_that_cannot_be_imported_is_said_once(tmp_path: Path) -> None:
    """A wrong ASYNC_NODES_IMPORTS ends the start with its reason, not with a crash loop."""
    env = environ(ASYNC_NODES_DATA_DIR=str(tmp_path), ASYNC_NODES_IMPORTS="no_such_module")
    done = command("dev", "--port", "0", env=env)
    assert done.returncode == 1
    assert "no_such_module" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_nodes_of_the_current_directory_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASYNC_NODES_IMPORTS may name a module beside the person, and theirs do not hide ours."""
    (tmp_path / "my_nodes.py").write_text(
        "from async_nodes import node\n\n@node('mine')\ndef mine(name: str) -> str:\n"
        "    return f'hello {name}'\n"
    )
    (tmp_path / "settings.py").write_text("raise RuntimeError('the wrong settings')\n")
    monkeypatch.chdir(tmp_path)
    env = environ(
        ASYNC_NODES_DATA_DIR=str(tmp_path / "data"),
        ASYNC_NODES_IMPORTS="my_nodes",
        ASYNC_NODES_PORT=str(free_port()),
        PYTHONSAFEPATH="1",
    )
    with program("dev", env=env) as running:
        running.wait_for("curl")
        done = command("run", "mine", "name=you", "--wait", env=env)
        assert (done.returncode, done.stdout) == (0, "hello you\n")


def test_the_store_alone(tmp_path: Path) -> None:
    """`redis` runs the store under its title; a second one refuses; `doctor` finds it."""
    env = environ(ASYNC_NODES_DATA_DIR=str(tmp_path), ASYNC_NODES_PORT=str(free_port()))
    with program("redis", env=env) as running:
        running.wait_for("ASYNC_NODES_REDIS_URL=unix://")
        assert "async-nodes redis" in running.children().values()
        second = command("redis", env=env)
        assert second.returncode == 1
        assert "[data_dir_busy]" in second.stderr
        done = command("doctor", "--json", env=env)
        outcomes = {c["name"]: c["outcome"] for c in json.loads(done.stdout)["checks"]}
        assert done.returncode == 2
        assert (outcomes["store"], outcomes["persistence"]) == ("ok", "ok")
        assert (outcomes["workers"], outcomes["web"]) == ("fail", "fail")
        assert outcomes["echo"] == "warn"
        assert running.stop(signal.SIGTERM) == 0
