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


def test_dead_letters_from_the_command_line(stack: Stack, env: dict[str, str]) -> None:
    """Listed, shown, sent again once however often it is asked for, dropped; ids for programs."""
    buried = [stack.submit("probe.exit_cpu") for _ in range(2)]
    for task_id in buried:
        assert stack.wait(task_id, 60)["reason"] == "poison"
    listed = command("dead", "list", "--node", "probe.exit_cpu", "--json", env=env)
    letters = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {letter["task_id"] for letter in letters} >= set(buried)
    plain = command("dead", "list", env=env).stdout
    assert all(f"{task_id}  probe.exit_cpu  poison" in plain for task_id in buried)
    shown = command("dead", "show", buried[0], env=env)
    assert json.loads(shown.stdout)["task_id"] == buried[0]
    assert "poison" in shown.stderr

    once = command("dead", "requeue", buried[0], env=env)
    again = command("dead", "requeue", buried[0], env=env)
    assert once.returncode == again.returncode == 0
    assert once.stdout == again.stdout
    assert command("dead", "drop", buried[1], env=env).returncode == 0
    assert command("dead", "drop", buried[1], env=env).returncode == 1
    unsaid = command("dead", "requeue", env=env)
    assert unsaid.returncode == 2
    assert "--all or --node" in unsaid.stderr
    assert stack.wait(once.stdout.strip(), 60)["reason"] == "poison"
    assert command("dead", "drop", once.stdout.strip(), env=env).returncode == 0


def test_usage_and_logs_from_the_command_line(stack: Stack, env: dict[str, str]) -> None:
    """For people in columns, for programs as JSON; a wrong day is told with the right form."""
    stack.wait(stack.submit("test.usage", {"counts": {"pages": 1_200}}))
    totals = json.loads(command("usage", "--node", "test.usage", "--json", env=env).stdout)
    assert totals["nodes"]["test.usage"]["pages"] >= 1_200
    assert "1,200" in command("usage", "--node", "test.usage", "--days", env=env).stdout
    assert "%Y-%m-%d" in command("usage", "--from", "yesterday", env=env).stderr

    task_id = stack.submit("test.log", {"lines": ["\x1b[31mred", "done"], "level": "warning"})
    stack.wait(task_id)
    assert "\x1b" not in command("logs", task_id, env=env).stdout
    for more in ((), ("--follow",)):
        lines = command("logs", task_id, "--json", *more, env=env).stdout.splitlines()
        assert [json.loads(line)["text"] for line in lines] == ["\x1b[31mred", "done"]


@pytest.mark.parametrize(
    "words",
    [("queues",), ("workers",), ("pause", "io"), ("purge", "io"), ("dead", "list"), ("usage",),
     ("logs", "t_00000000000000000000000000"), ("schedule", "list"), ("files", "list")],
)  # fmt: skip
def test_who_finds_nobody_is_told(words: tuple[str, ...]) -> None:
    """In a sentence, in the language that is spoken, without a traceback, with exit status 1."""
    nobody = command(*words, env=environ(ASYNC_NODES_PORT="1"))
    chinese = command(*words, env=environ(ASYNC_NODES_PORT="1", LANG="zh_CN.UTF-8"))
    assert nobody.returncode == chinese.returncode == 1
    assert "does not answer" in nobody.stderr
    assert "Traceback" not in nobody.stderr
    assert any("\u4e00" <= letter <= "\u9fff" for letter in chinese.stderr)
