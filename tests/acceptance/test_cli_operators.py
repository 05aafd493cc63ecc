"""What operators type: the verbs of schedules, files and used-up inputs against a whole product."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.cli_processes import command, environ
from tests.acceptance.stack import Stack

pytestmark = pytest.mark.needs("redis")


@pytest.fixture
def env(stack: Stack) -> dict[str, str]:
    """Give the environment of somebody who works with the stack."""
    return environ(ASYNC_NODES_PORT=str(stack.client.port))


def test_a_number_of_nothing_is_not_taken_for_left_out(env: dict[str, str]) -> None:
    """``--every 0`` is a wrong pace, and said to be one; so is a jitter below nothing."""
    wrong = command("schedule", "add", "zero", "echo", "--every", "0", env=env)
    assert wrong.returncode == 1
    assert "every must be a number of seconds, 1 to " in wrong.stderr
    made = command(
        "schedule", "add", "calm", "echo", "--every", "9999", "--jitter", "0", "--paused", env=env
    )
    assert made.returncode == 0
    assert command("schedule", "rm", "calm", env=env).returncode == 0


def test_a_file_goes_along_with_a_retry(stack: Stack, env: dict[str, str], tmp_path: Path) -> None:
    """As it does with a new task; a schedule wants one that lasts, and says how to get it."""
    path = tmp_path / "letter.txt"
    path.write_text("first")
    first = command("run", "echo", f"file=@{path}", "--wait", env=env)
    assert first.returncode == 0
    task_id = stack.submit("echo", json.loads(first.stdout))
    stack.wait(task_id)
    again = command("retry", task_id, f"file=@{path}", "--wait", env=env)
    assert again.returncode == 0
    assert json.loads(again.stdout)["file"] != json.loads(first.stdout)["file"]
    assert json.loads(again.stdout)["file"].startswith("f_")

    refused = command("schedule", "add", "x", "echo", f"file=@{path}", "--every", "60", env=env)
    assert refused.returncode == 1
    assert "a schedule's file must outlive its tasks" in refused.stderr
    assert "--ttl" in refused.stderr


def test_what_cannot_be_read_is_told_where_it_was_named(
    env: dict[str, str], tmp_path: Path
) -> None:
    """How to write a text that begins with @ is of use only to who wrote one."""
    missing = str(tmp_path / "missing")
    put = command("files", "put", missing, env=env)
    run = command("run", "echo", f"file=@{missing}", env=env)
    assert put.returncode == run.returncode == 1
    assert put.stderr.count("cannot be read") == run.stderr.count("cannot be read") == 1
    assert "begins with @" in run.stderr
    assert "begins with @" not in put.stderr
