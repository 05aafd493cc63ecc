"""The verbs list, result, retry and delete, against the product itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.cli_processes import command, environ

if TYPE_CHECKING:
    import subprocess

    from tests.acceptance.stack import Stack


def run(stack: Stack, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a verb against the stack."""
    env = environ(ASYNC_NODES_PORT=str(stack.client.port), **variables)
    return command(*words, env=env)


def test_tasks_are_listed_by_what_they_are(stack: Stack) -> None:
    """Newest first, a line each; filters as options; JSON for programs."""
    failed = stack.submit("test.fail", {"kind": "terminal"}, tags=["cli-list"])
    done = stack.submit("echo", {"text": "hi"}, tags=["cli-list", "é"])
    stack.wait_all([failed, done])

    lines = run(stack, "list", "--tag", "cli-list").stdout.splitlines()
    assert [line.split()[2] for line in lines] == [done, failed]
    assert "Succeeded" in lines[0]
    assert "failed on request" in lines[1]
    only = run(stack, "list", "--state", "failed", "--node", "test.fail", "--tag", "cli-list")
    assert only.stdout.splitlines() == lines[1:]
    shown = run(stack, "list", "--tag", "cli-list", "--tag", "é", "--json").stdout
    assert json.loads(shown)["task_id"] == done
    assert len(run(stack, "list", "--tag", "cli-list", "--limit", "1").stdout.splitlines()) == 1
    nothing = run(stack, "list", "--tag", "no such tag")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no such task" in nothing.stderr
    assert "没有符合" in run(stack, "list", "--tag", "no such tag", LANG="zh_CN.UTF-8").stderr


def test_a_long_list_goes_over_pages(stack: Stack) -> None:
    """More than a page holds, each once."""
    items = [{"node": "echo", "tags": ["cli-pages"]}] * 250
    raw = json.dumps({"tasks": items}).encode()
    kind = {"Content-Type": "application/json"}
    assert stack.client.request("POST", "/v1/tasks/batch", raw, kind).json["accepted"] == 250

    done = run(stack, "list", "--tag", "cli-pages", "--limit", "1000", "--json")
    found = [json.loads(line)["task_id"] for line in done.stdout.splitlines()]
    assert len(set(found)) == len(found) == 250


def test_a_result_is_printed_or_saved(stack: Stack, tmp_path: Path) -> None:
    """A text as it is, everything else as JSON; a file gets the output's own bytes."""
    text = stack.submit("test.emit", {"n": 3000, "text": "tick "})
    large = stack.submit("echo", {"text": "é" * 50_000})
    stack.wait_all([text, large])

    assert run(stack, "result", text).stdout == "tick " * 3000 + "\n"
    assert json.loads(run(stack, "result", large).stdout) == {"text": "é" * 50_000}
    file = tmp_path / "out.json"
    saved = run(stack, "result", large, "-o", str(file))
    assert saved.returncode == 0
    assert file.read_bytes() == stack.client.request("GET", f"/v1/tasks/{large}/result").body
    assert list(tmp_path.iterdir()) == [file]
    refused = run(stack, "result", large, "-o", str(tmp_path / "no" / "such"))
    assert (refused.returncode, "cannot be written" in refused.stderr) == (1, True)


def test_a_large_output_is_shown_at_the_end_of_a_run(stack: Stack) -> None:
    """`run --wait` and `watch` fetch what the record does not hold."""
    words = ("echo", f"text={'y' * 20_000}")
    assert json.loads(run(stack, "run", *words, "--wait").stdout) == {"text": "y" * 20_000}
    task_id = run(stack, "run", *words).stdout.strip()
    stack.wait(task_id)
    assert json.loads(run(stack, "watch", task_id).stdout) == {"text": "y" * 20_000}


def test_a_task_without_a_result_is_told(stack: Stack, tmp_path: Path) -> None:
    """Failed, or not ended: in words and with the code; no file is left."""
    failed = stack.submit("test.fail", {"kind": "terminal"})
    slow = stack.submit("test.sleep", {"seconds": 20})
    stack.wait(failed)
    for task_id, code in ((failed, "task_has_no_result"), (slow, "task_not_finished")):
        done = run(stack, "result", task_id, "-o", str(tmp_path / "file"))
        assert (done.returncode, f"[{code}]" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
    assert "[task_not_finished]" in run(stack, "delete", slow).stderr
    stack.client.cancel(slow)


def test_an_ended_task_is_run_again(stack: Stack) -> None:
    """The same, or with some inputs changed; shown like a run."""
    failed = stack.submit("test.fail", {"kind": "terminal", "message": "first"}, tags=["kept"])
    stack.wait(failed)

    again = run(stack, "retry", failed).stdout.strip()
    record = stack.wait(again)
    assert (record["retry_of"], record["state"]) == (failed, "Failed")
    assert (record["inputs"]["message"], record["tags"]) == ("first", ["kept"])
    changed = run(stack, "retry", failed, "message=second", "times:=0", "--wait")
    assert changed.returncode == 0
    assert json.loads(changed.stdout) == {"attempt": 1}


def test_a_deleted_task_is_told_to_be_gone(stack: Stack) -> None:
    """Afterwards every verb says so, in the person's language."""
    task_id = stack.submit("echo", {})
    stack.wait(task_id)
    done = run(stack, "delete", task_id)
    assert (done.returncode, done.stdout) == (0, "")
    for verb in ("delete", "watch", "result", "retry", "cancel"):
        gone = run(stack, verb, task_id)
        assert (gone.returncode, "[task_gone]" in gone.stderr) == (1, True), verb
    assert "任务记录" in run(stack, "watch", task_id, LANG="zh_CN.UTF-8").stderr


@pytest.mark.parametrize("words", ["list --state nope", "list --limit 0", "delete", "result"])
def test_wrong_use_is_told(stack: Stack, words: str) -> None:
    """With the usage line and exit status 2."""
    done = run(stack, *words.split())
    assert (done.returncode, "Usage:" in done.stderr) == (2, True)


def test_a_text_for_a_number_is_told_how_numbers_are_written(stack: Stack) -> None:
    """The server's refusal, and the spelling that works."""
    done = run(stack, "run", "test.emit", "n=3")

    assert done.returncode == 1
    assert "[invalid_inputs]" in done.stderr
    assert "n:=3" in done.stderr
    assert run(stack, "run", "test.emit", "n:=3", "--wait").returncode == 0
