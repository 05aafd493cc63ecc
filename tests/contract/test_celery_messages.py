"""Our messages are Celery's: a stock worker takes them; and Celery's results beside our records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as CeleryTimeout
from celery.result import AsyncResult, GroupResult, ResultSet

from async_nodes.core.context import current, scope
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Ending
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.messages import templates
from async_nodes.execution.job import job_of
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from async_nodes.storage.celery_backend import RecordBackend, install
from async_nodes.storage.keys import Keys
from async_nodes.storage.script_library import SLOTS
from tests.contract.real_store import (
    IDS,
    KEYS,
    WORKER,
    RealStore,
    messages,
    open_store,
    submission,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery import Celery

    from tests.servers import RedisServer

ROOT = Path(__file__).parents[2]
ERROR = b'{"code":"model_refused","type":"ValueError","message":"no","retryable":false}'


@pytest.fixture
def store(one_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(one_server)
    made.register(WORKER)
    yield made
    made.link.close()


@pytest.fixture
def app(one_server: RedisServer) -> Iterator[Celery]:
    """Return an app with our backend; Celery's own results are in another database."""
    settings = Settings.load({}).with_redis_url(one_server.url)
    made = make_app(settings)
    made.conf.result_backend = one_server.kombu_url(2)
    install(made, settings)
    yield made
    made.backend._records.close()
    # A result that goes later unsubscribes, on a new connection if need be: not any more.
    made.backend.result_consumer.cancel_for = lambda _task_id: None
    made.backend.result_consumer.stop()
    made.backend.client.close()
    made.backend.client.connection_pool.disconnect()
    made.close()


@pytest.fixture
def stock_worker(one_server: RedisServer) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker that knows nothing of async_nodes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tests.contract.stock_celery_app", "worker",
         "-P", "solo", "-l", "WARNING", "--without-gossip", "--without-mingle"],
        cwd=ROOT,
        env={**os.environ, "TEST_BROKER": one_server.kombu_url(0), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    yield process
    process.terminate()
    process.communicate(timeout=30)


def submit(store: RealStore, **fields: Any) -> str:
    return str(store.submit(submission(IDS.make(store.now_ms()), **fields)).task_id)


# -- messages --------------------------------------------------------------------------------------


def test_templates_are_json_with_their_slots(store: RealStore) -> None:
    """One per list, every slot where a script fills it in, the body Celery's empty call."""
    assert set(messages()) == set(LISTS)
    for name, text in messages().items():
        filled = text
        for slot in SLOTS:
            assert (slot in text) == (slot != "%HARD%" or name.startswith("cpu")), (name, slot)
            filled = filled.replace(slot, "7")
        message = json.loads(filled)
        assert message["headers"]["task"] == "async_nodes.execute"
        assert message["properties"]["delivery_info"]["routing_key"] == KEYS.queue(name)
        assert "%" not in filled


def test_templates_follow_the_prefix() -> None:
    """Another prefix leads to queues of that name."""
    keys = Keys("other")
    text = templates(make_app(Settings(key_prefix="other")), keys)["io.high"]

    assert '"other.io.high"' in text
    assert '"an.' not in text


@pytest.mark.timeout(120)
def test_a_stock_worker_takes_our_messages(
    store: RealStore, stock_worker: subprocess.Popen[bytes], one_server: RedisServer
) -> None:
    """It sees our id, the dispatch number and its time, and the limits of a CPU task."""
    io = submit(store)
    cpu = submit(store, list_name="cpu.high", timeout_ms=5_000)
    seen = [json.loads(popped(one_server, stock_worker)) for _ in range(2)]
    by_id = {one["id"]: one for one in seen}

    assert set(by_id) == {io, cpu}
    for task_id, one in by_id.items():
        assert (one["task"], one["args"], one["kwargs"]) == ("async_nodes.execute", [], {})
        assert (one["an_dispatch"], one["ignore_result"], one["root_id"]) == (1, True, task_id)
        assert abs(one["an_at"] - store.now_ms()) < 60_000
    assert by_id[io]["timelimit"] == [None, None]
    hard, soft = by_id[cpu]["timelimit"]
    assert 5 < hard < 7
    assert soft is None or 5 <= soft <= hard


def popped(server: RedisServer, process: subprocess.Popen[bytes]) -> str:
    with server.client() as client:
        found = client.blpop(["seen"], timeout=60)
    assert found is not None, process.poll()
    return str(found[1].decode())


def test_kombu_can_put_a_message_back(store: RealStore, one_server: RedisServer) -> None:
    """A message that a stock consumer rejects to the queue is the same message again."""
    task_id = submit(store)
    made = make_app(Settings.load({}).with_redis_url(one_server.url))
    with made.connection_for_read() as connection, connection.channel() as channel:
        for queue in made.conf.task_queues:
            queue(channel).declare()  # as every consumer does
        message = channel.basic_get(KEYS.queue("io.default"))
        assert message.headers["id"] == task_id
        assert store.list_of("io.default") == []
        channel.basic_reject(message.delivery_tag, requeue=True)

    assert store.list_of("io.default") == [(task_id, 1)]
    made.close()


def test_a_scope_travels_with_its_task_and_no_further(store: RealStore) -> None:
    """A worker finds the scope the task was submitted in; the next task has its own or none."""
    with scope(user="u1", plan={"tier": 2}):
        private = {"node": "echo", "scope": current().to_headers()}
        first = submit(store, private=json.dumps(private).encode())
    second = submit(store)

    found = [job_of(store.start(task_id), registry()).scope for task_id in (first, second)]
    assert found[0].to_dict() == {"user": "u1", "plan": {"tier": 2}}
    assert found[1].to_dict() == {}
    assert current().to_dict() == {}


# -- results ---------------------------------------------------------------------------------------


def test_celery_s_backend_is_ours_and_keeps_its_address(
    app: Celery, one_server: RedisServer
) -> None:
    """The setting is unchanged, the class behind the scheme is replaced."""
    assert app.conf.result_backend == one_server.kombu_url(2)
    assert type(app.backend) is RecordBackend


def test_a_result_shows_every_state(app: Celery, store: RealStore) -> None:
    """PENDING, STARTED and SUCCESS with the output, read fresh from the record each time."""
    task_id = submit(store)
    result = AsyncResult(task_id, app=app)
    assert (result.state, result.ready(), result.result) == ("PENDING", False, None)

    claim = store.start(task_id)
    assert (result.state, result.ready()) == ("STARTED", False)
    with pytest.raises(CeleryTimeout):
        result.get(timeout=0.05)

    ending = Ending(event=EventType.COMPLETE, output=b'{"y":[1,"\\u4f60"]}')
    store.finish(task_id, claim.fence, ending)
    assert result.get(timeout=5) == {"y": [1, "\u4f60"]}
    assert (result.state, result.successful(), result.failed()) == ("SUCCESS", True, False)
    assert result.date_done is not None


def test_a_failed_task_raises_its_error(app: Celery, store: RealStore) -> None:
    """get() raises the catalogue's error with the node's own words; propagate=False returns it."""
    task_id = submit(store)
    claim = store.start(task_id)
    store.finish(task_id, claim.fence, Ending(event=EventType.ERROR, error=ERROR))
    result = AsyncResult(task_id, app=app)

    with pytest.raises(AsyncNodesError, match="ValueError: no") as raised:
        result.get(timeout=5)
    assert raised.value.code == "model_refused"
    assert isinstance(result.get(propagate=False), AsyncNodesError)
    assert (result.state, result.failed()) == ("FAILURE", True)


def test_a_cancelled_task_is_revoked(app: Celery, store: RealStore) -> None:
    """Celery's word for it, and Celery's exception."""
    task_id = submit(store)
    store.cancel(task_id, tenant="default")
    result = AsyncResult(task_id, app=app)

    assert result.state == "REVOKED"
    with pytest.raises(TaskRevokedError):
        result.get(timeout=5)


def test_an_id_of_ours_without_a_record_has_failed(app: Celery, store: RealStore) -> None:
    """Celery's PENDING would let a caller wait for ever; an id of Celery's stays PENDING."""
    result = AsyncResult(IDS.make(1), app=app)

    assert result.state == "FAILURE"
    with pytest.raises(AsyncNodesError) as raised:
        result.get(timeout=5)
    assert raised.value.code == "task_not_found"
    assert AsyncResult("0b1f1f6e-0000-4000-8000-000000000000", app=app).state == "PENDING"


def test_celery_cannot_write_over_a_record(app: Celery, store: RealStore) -> None:
    """Storing a result does nothing, forgetting one is refused."""
    task_id = submit(store)
    before = store.read(task_id).raw

    app.backend.store_result(task_id, "other", "SUCCESS")
    app.backend.mark_as_failure(task_id, ValueError("x"))
    with pytest.raises(AsyncNodesError, match="read-only"):
        AsyncResult(task_id, app=app).forget()
    assert store.read(task_id).raw == before
    assert app.backend.client.keys("celery-task-meta-t_*") == []


@pytest.mark.timeout(120)
def test_stock_tasks_keep_their_results(
    app: Celery,
    store: RealStore,
    stock_worker: subprocess.Popen[bytes],
    one_server: RedisServer,
) -> None:
    """An ordinary task's result, failure and forget are Celery's as ever, alone and in a set."""
    app.conf.result_backend = one_server.kombu_url(0)  # where the stock app has its own
    app.conf.task_ignore_result = False
    added = app.send_task("stock.add", (2, 3), queue="stock")
    failed = app.send_task("stock.fail", queue="stock")
    assert added.get(timeout=60) == 5
    with pytest.raises(ValueError, match="stock failure"):
        failed.get(timeout=60)
    added.forget()
    assert AsyncResult(added.id, app=app).state == "PENDING"

    task_id = submit(store, list_name="io.low")
    claim = store.start(task_id)
    more = app.send_task("stock.add", (1, 1), queue="stock")
    store.finish(task_id, claim.fence, Ending(event=EventType.COMPLETE, output=b'"ours"'))
    both = ResultSet([AsyncResult(task_id, app=app), more], app=app)
    assert both.get(timeout=60) == ["ours", 2]


def test_a_group_of_ours_is_waited_for(app: Celery, store: RealStore) -> None:
    """A set of our ids gives its results in order, and times out when one is missing."""
    tasks = [submit(store) for _ in range(3)]
    for number, task_id in enumerate(tasks[:2]):
        claim = store.start(task_id)
        output = str(number).encode()
        store.finish(task_id, claim.fence, Ending(event=EventType.COMPLETE, output=output))
    results = [AsyncResult(task_id, app=app) for task_id in tasks]

    assert GroupResult("g", results[:2], app=app).get(timeout=5) == [0, 1]
    started = time.monotonic()
    with pytest.raises(CeleryTimeout):
        GroupResult("h", results, app=app).get(timeout=0.2)
    assert time.monotonic() - started < 5
    assert not ResultSet(results, app=app).ready()
