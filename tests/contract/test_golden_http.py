"""What the routes of many and of ended tasks answer, byte for byte, ids and times apart.

A change here is a change of the product's interface. To accept one, run with ``GOLDEN=write`` and
read the difference.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes.access.app import build_app
from async_nodes.access.services import Services
from async_nodes.core.ports import Ending
from async_nodes.core.states import EventType
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from tests.contract.real_store import WORKER, RealStore, open_store
from tests.contract.test_golden import ERROR, check_golden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

    from tests.servers import RedisServer

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
AN_ID = re.compile(rb"t_[0-9A-HJKMNP-TV-Z]{26}")
CURSOR = re.compile(rb'"next":"[^"]+"')


@pytest.fixture
def store(one_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(one_server)
    made.register(WORKER)
    yield made
    made.link.close()


@pytest.fixture
def client(store: RealStore) -> FlaskClient:
    nodes, nobody = registry(()), None  # nothing here waits, so nobody tells of events
    services = Services.assemble(Settings(), store.store, nobody, nodes)  # type: ignore[arg-type]
    return build_app(Settings(), lambda: services, nodes=nodes).test_client()


def ask(client: FlaskClient, method: str, path: str, members: Any = None, **headers: str) -> Any:
    return client.open(
        path, method=method, json=members, headers={**TRACE, **headers},
        base_url="http://127.0.0.1:8000",
    )  # fmt: skip


def check(name: str, answer: Any) -> None:
    """Compare status, telling headers and body with the golden file."""
    told = ("Content-Type", "Retry-After", "Content-Range", "Accept-Ranges", "Idempotency-Replayed")
    head = [f"{answer.status_code}"] + [
        f"{name}: {answer.headers[name]}" for name in told if name in answer.headers
    ]
    body = CURSOR.sub(b'"next":"<cursor>"', AN_ID.sub(b"<id>", answer.data))
    check_golden(f"{name}.txt", "\n".join(head).encode() + b"\n\n" + body)


def ended(store: RealStore, client: FlaskClient, ending: Ending, **members: Any) -> str:
    asked = {"node": "echo", "inputs": {"n": 1.5}, "tags": ["a"], "metadata": {"k": 1}, **members}
    task_id = str(ask(client, "POST", "/v1/tasks", asked).json["task_id"])
    claim = store.start(task_id)
    assert store.finish(task_id, claim.fence, ending).applied
    return task_id


FAILED = Ending(event=EventType.ERROR, error=ERROR)
DONE = Ending(event=EventType.COMPLETE, output=b'{"n": 1.50}', usage=b'{"tokens":3}')


def test_a_batch(client: FlaskClient) -> None:
    """An accepted item, one with faults, one that is no JSON object."""
    items = [{"node": "echo"}, {"node": "echo", "priority": 11, "ttl": 0}, 7]
    check("batch", ask(client, "POST", "/v1/tasks/batch", {"tasks": items}))


def test_a_list(store: RealStore, client: FlaskClient) -> None:
    """A page in brief with a next, and tasks by their ids."""
    ended(store, client, FAILED)
    time.sleep(0.005)  # within a millisecond the order is that of the ids
    task_id = ended(store, client, DONE)
    check("list", ask(client, "GET", "/v1/tasks?limit=1"))
    missing = "t_00000000000000000000000000"
    check("list_ids", ask(client, "GET", f"/v1/tasks?ids={task_id},{missing}"))


def test_results(store: RealStore, client: FlaskClient) -> None:
    """Whole, in part, behind the end, and where there is none."""
    task_id = ended(store, client, DONE)
    path = f"/v1/tasks/{task_id}/result"
    check("result", ask(client, "GET", path))
    check("result_part", ask(client, "GET", path, Range="bytes=1-3"))
    check("result_behind", ask(client, "GET", path, Range="bytes=99-"))
    none = ended(store, client, FAILED)
    check("result_none", ask(client, "GET", f"/v1/tasks/{none}/result"))
    waiting = ask(client, "POST", "/v1/tasks", {"node": "echo"}).json["task_id"]
    check("result_early", ask(client, "GET", f"/v1/tasks/{waiting}/result"))


def test_a_retry(store: RealStore, client: FlaskClient) -> None:
    """The answer, and the new task's record."""
    task_id = ended(store, client, FAILED)
    answer = ask(client, "POST", f"/v1/tasks/{task_id}/retry")
    check("retry", answer)
    check("retry_record", ask(client, "GET", answer.headers["Location"]))
    again = ask(client, "POST", f"/v1/tasks/{task_id}/retry", {"inputs": {}, "tags": []})
    assert json.loads(store.read(again.json["task_id"]).json)["inputs"] == {}


def test_what_is_gone(store: RealStore, client: FlaskClient) -> None:
    """After a delete, and before there is anything to delete."""
    task_id = ended(store, client, DONE)
    waiting = ask(client, "POST", "/v1/tasks", {"node": "echo"}).json["task_id"]
    check("delete_early", ask(client, "DELETE", f"/v1/tasks/{waiting}"))
    check("delete", ask(client, "DELETE", f"/v1/tasks/{task_id}"))
    check("gone", ask(client, "GET", f"/v1/tasks/{task_id}"))
