"""What was published about a task against what its record tells later, on the real store."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_nodes.access.api.backlog import Event, backlog
from async_nodes.access.streams.history import START
from async_nodes.core import machine
from async_nodes.core.ports import Claim, Ending, Submission
from async_nodes.core.states import EventType, NodeState
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_blocking
from async_nodes.settings import Settings
from async_nodes.storage.redis_store import RedisStore
from tests.servers import RedisServer

E = EventType
WORKER = "io-1-deadbeef"
NUMBERS = count(1)
ENDINGS = (E.COMPLETE, E.ERROR, E.RETRY, E.RETRY, E.RELEASE, E.TIMEOUT, E.CANCEL)
STEPS = (
    "chunk", "chunk", "progress", "ask", "lost", "isolated death", "sweep", *ENDINGS,
)  # fmt: skip


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RedisStore]:
    config = Settings(redis_url=redis_server.url)
    opened = open_blocking(config, make_app(config), title="history")
    opened.register(WORKER)
    yield opened
    opened.link.close()


class Played:
    """A task on the real store, driven through the events that its state allows."""

    def __init__(self, store: RedisStore, client: redis.Redis, *, delay_ms: int) -> None:
        self.store = store
        self.task_id = f"t_{next(NUMBERS):026d}"
        self.claim: Claim | None = None
        self._channel = client.pubsub()
        self._channel.subscribe(store.keys.channel(self.task_id))
        assert self._channel.get_message(timeout=5)["type"] == "subscribe"
        store.submit(
            Submission(
                task_id=self.task_id, tenant="default", list_name="io.default", private=b"{}",
                tail=b'"inputs":{},', inputs_at=9, inputs_len=2, timeout_ms=1000, ttl_ms=60_000,
                delay_ms=delay_ms,
            )
        )  # fmt: skip

    @property
    def state(self) -> NodeState:
        """Return the task's state now."""
        document = self.store.read(self.task_id)
        assert document is not None
        return document.state

    def go_on(self) -> None:
        """Bring a waiting task to a worker."""
        until = time.monotonic() + 2
        while self.claim is None:
            self.store.fire_timers()
            document = self.store.read(self.task_id)
            assert document is not None
            fence = f"{next(NUMBERS):016d}"
            claim = self.store.claim(self.task_id, document.dispatch, worker=WORKER, fence=fence)
            self.claim = claim if isinstance(claim, Claim) else None
            assert time.monotonic() < until, (claim, document.state)

    def step(self, what: str | EventType) -> None:
        """Let something happen to the running task."""
        claim = self.claim
        assert claim is not None
        if what in {"chunk", "progress"}:
            getattr(self.store, what)(self.task_id, claim.fence, b'{"n": 1}')
            return
        if what == "ask":
            self.store.cancel(self.task_id, tenant="default")
            return
        self.claim = None
        if what == "sweep":
            self.store.expire(WORKER)
            self.store.sweep()
            self.store.register(WORKER)
        elif isinstance(what, EventType):
            self.store.finish(self.task_id, claim.fence, Ending(event=what, delay_ms=1))
        else:
            isolated = what == "isolated death"
            self.store.lost(self.task_id, worker=WORKER, dispatch=0, isolated=isolated)

    def published(self) -> list[Event]:
        """Return all that was published so far."""
        found = []
        while (message := self._channel.get_message(timeout=0.02)) is not None:
            position, kind, data = message["data"].split(b" ", 2)
            version, seq = position.split(b"-")
            found.append(Event((int(version), int(seq)), kind.decode(), data))
        self._channel.close()
        return found

    def stored(self) -> list[Event]:
        """Return all that the store tells."""
        document = self.store.read(self.task_id)
        assert document is not None
        entries = self.store.entries(self.task_id, after=START)
        return backlog(document, entries, START).events


def comparable(event: Event) -> tuple[object, ...]:
    data = json.loads(event.json) if event.kind != "done" else {}
    if data.get("reason") in {"cancelling", "delayed", "backoff"}:
        # The time of a request to cancel is not kept, nor the plan of a wait that is over.
        known = {"at"} if data["reason"] == "cancelling" else {"next_attempt_at"}
        data = {name: value for name, value in data.items() if name not in known}
    return (event.position, event.kind, data)


plans = st.tuples(
    st.sampled_from([0, 0, 2]),
    st.lists(st.sampled_from(STEPS), max_size=12),
    st.sampled_from(["leave", "cancel"]),
)


@given(plan=plans)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_store_tells_what_was_published(
    store: RedisStore, redis_server: RedisServer, plan: tuple[int, list[str | EventType], str]
) -> None:
    """Every event has the position, type and data that it had on the channel."""
    delay_ms, steps, finally_ = plan
    with redis_server.client() as client:
        task = Played(store, client, delay_ms=delay_ms)
        for what in steps:
            if task.state.terminal:
                break
            task.go_on()
            task.step(what)
        if finally_ == "cancel" and not task.state.terminal:
            store.cancel(task.task_id, tenant="default")

        published, stored = task.published(), task.stored()

    assert [comparable(event) for event in stored] == [comparable(event) for event in published]
    assert published[0].position == (1, 0)


def test_every_step_of_the_plan_is_in_the_machine() -> None:
    """The events played here are those that a running task takes."""
    running = {event for state, event in machine.TABLE if state is NodeState.RUNNING}

    assert {*ENDINGS, E.CHUNK, E.PROGRESS, E.LOST, E.CANCEL_ASKED} == running - {E.WAIT}
