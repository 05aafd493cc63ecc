"""What streams and waits must withstand, each as a program of its own.

A gevent-patched process cannot be made inside pytest, so `test_streams.py` runs this file:

    python stream_scenarios.py SCENARIO SERVER

A scenario has a Redis server, a store, a hub and a web server that streams; it drives tasks as a
worker would, asserts, and exits with 1 and a traceback when it fails.
"""

from __future__ import annotations

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import gc
import itertools
import json
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import flask
import gevent
import greenlet
import hiredis
import pytest
from gevent.pywsgi import WSGIServer
from gevent.server import StreamServer

from async_nodes.access.streams import longpoll, sse
from async_nodes.access.streams.hub import CLOSED, GAP, Hub, Message
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Claim, Ending, Submission
from async_nodes.core.states import EventType, NodeState
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.messages import templates
from async_nodes.settings import Settings
from async_nodes.storage.group_commit import GroupCommit
from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_connection import PipelinedConnection
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.storage.redis_store import RedisStore
from async_nodes.storage.script_library import render
from tests.event_stream import Parser, ServerEvent
from tests.servers import RedisServer

NASTY = (
    "\u2028a\u2029b\u0085c\vd\fe\rf\r\ng\n\nh", "\ufeffdata: x\n\ndata: y", "id: 9-9\nevent: done",
    "👩‍👩‍👧‍👦🏳️‍🌈", ": ping\n\n", "", "\0\x1f", " leading and trailing ",
)  # fmt: skip
WORKER = "io-1-deadbeef"


class World:
    """Everything a scenario plays with."""

    def __init__(self, *, heartbeat: float = 15.0, stream_cap: int = 8 << 20) -> None:
        self.redis = RedisServer(sys.argv[2])
        self.redis.start()
        self.control = self.redis.client()
        self.settings = Settings(redis_url=self.redis.url)
        keys = Keys()
        messages = templates(make_app(self.settings), keys)
        link = PipelinedConnection(self.redis.url, client_name="scenario")
        scripts = render(keys, messages, allow_oom=True, stream_cap=stream_cap)
        self.store = RedisStore(
            link=link, committer=GroupCommit(link, scripts, keys.base), keys=keys, scripts=scripts,
            patience=10.0,
        )  # fmt: skip
        self.store.register(WORKER)
        self.hub = Hub(self.settings, self.store)
        self.heartbeat = heartbeat
        self.web = WSGIServer(("127.0.0.1", 0), self._app(), log=None, error_log=sys.stderr)
        self.web.start()
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hub.close()
        self.web.stop(timeout=1)
        self.control.close()
        self.redis.remove()

    def _app(self) -> flask.Flask:
        app = flask.Flask("scenario")

        @app.get("/<task_id>")
        def events(task_id: str) -> flask.Response:
            document = self.store.read(task_id)
            assert document is not None
            after = flask.request.args.get("after")
            return sse.respond(
                self.hub, self.store, document, after=after, heartbeat=self.heartbeat
            )

        @app.errorhandler(AsyncNodesError)
        def problem(error: AsyncNodesError) -> tuple[dict[str, Any], int]:
            return {"code": error.code, "pointer": error.pointer}, error.status

        return app

    # -- a task's life -----------------------------------------------------------------------

    def submit(self, **options: int) -> str:
        """Put a task into the store; return its id."""
        task_id = f"t_{next(self._numbers):026d}"
        tail = b'"inputs":{"a":\r\n 1},'
        accepted = self.store.submit(
            Submission(
                task_id=task_id, tenant="default", list_name="io.default", private=b"{}",
                tail=tail, inputs_at=9, inputs_len=10, timeout_ms=60_000, ttl_ms=60_000, **options,
            )
        )  # fmt: skip
        assert accepted.task_id == task_id
        return task_id

    def claim(self, task_id: str) -> Claim:
        """Begin the task's next attempt."""
        document = self.store.read(task_id)
        assert document is not None
        fence = f"{document.dispatch}:{next(self._numbers):012d}"[:16].ljust(16)
        claim = self.store.claim(task_id, document.dispatch, worker=WORKER, fence=fence)
        assert isinstance(claim, Claim), claim
        return claim

    def running(self) -> tuple[str, Claim]:
        """Return a task that runs, and the right to run it."""
        task_id = self.submit()
        return task_id, self.claim(task_id)

    def chunk(self, claim: Claim, n: int, text: str = "x") -> None:
        """Write a piece of output."""
        data = json.dumps({"text": text, "attempt": claim.attempt, "n": n}, ensure_ascii=False)
        assert self.store.chunk(claim.task_id, claim.fence, data.encode()).applied

    def progress(self, claim: Claim, fraction: float) -> None:
        """Write progress."""
        data = json.dumps({"fraction": fraction, "text": "", "attempt": claim.attempt})
        assert self.store.progress(claim.task_id, claim.fence, data.encode()).applied

    def finish(
        self, claim: Claim, event: EventType = EventType.COMPLETE, delay_ms: int = 0
    ) -> None:
        """End an attempt."""
        ending = Ending(event=event, delay_ms=delay_ms, output=b'{"ok":\ntrue}')
        assert self.store.finish(claim.task_id, claim.fence, ending).applied

    def retry(self, claim: Claim) -> Claim:
        """Let an attempt fail and the next one begin."""
        self.finish(claim, EventType.RETRY, delay_ms=1)
        gevent.sleep(0.003)
        self.store.fire_timers()
        return self.claim(claim.task_id)

    # -- the outside -------------------------------------------------------------------------

    def open(self, task_id: str, after: str | None = None, **headers: str) -> Client:
        """Open a task's stream; underscores in header names stand for hyphens."""
        return Client(self.web.server_port, task_id, after, headers)

    def watch(self, task_id: str, after: str | None = None) -> Any:
        """Return a greenlet whose value is the whole stream's events."""
        client = self.open(task_id, after)
        return gevent.spawn(client.rest)

    def redis_clients(self) -> int:
        """Count the server's connections."""
        return len(self.control.client_list())


class Client:
    """A client of one stream, as strict as the standard."""

    def __init__(
        self, port: int, task_id: str, after: str | None, headers: dict[str, str],
        method: str = "GET",
    ) -> None:  # fmt: skip
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(20)
        query = f"?after={after}" if after is not None else ""
        lines = [f"{method} /{task_id}{query} HTTP/1.1", "Host: localhost"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._file = self.socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while line := self._file.readline().decode().strip():
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value
        self.parser = Parser()
        self.ended = False

    def body(self) -> bytes:
        """Return the body of an answer that is no stream."""
        return self._file.read(int(self.headers["content-length"]))

    def some(self) -> list[ServerEvent]:
        """Return the events of one piece of the body."""
        size = int(self._file.readline().strip(), 16)
        data = self._file.read(size)
        assert self._file.readline() == b"\r\n"
        self.ended = size == 0
        return self.parser.feed(data)

    def take(self, count: int) -> list[ServerEvent]:
        """Return at least so many events, or what there is."""
        found: list[ServerEvent] = []
        while len(found) < count and not self.ended:
            found += self.some()
        return found

    def rest(self) -> list[ServerEvent]:
        """Return all events until the stream ends by itself."""
        found: list[ServerEvent] = []
        while not self.ended:
            found += self.some()
        return found

    def close(self) -> None:
        """Leave."""
        self._file.close()
        self.socket.close()

    def reset(self) -> None:
        """Leave without a word of farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def eventually(check: Callable[[], bool], seconds: float = 5.0) -> float:
    """Return how long it took until something was true."""
    start = time.monotonic()
    while not check():
        assert time.monotonic() - start < seconds, "it never came true"
        gevent.sleep(0.01)
    return time.monotonic() - start


def kinds(events: list[ServerEvent]) -> list[str]:
    return [event.type for event in events]


def told(events: list[ServerEvent]) -> list[tuple[str, str, Any]]:
    """Return what may not differ between a live stream and a replay: not all times are kept."""
    found = []
    for event in events:
        data = event.json
        if event.type == "state":
            data = {name: data[name] for name in ("state", "reason", "attempt", "version")}
        found.append((event.id, event.type, data))
    return found


def in_order(events: list[ServerEvent]) -> bool:
    positions = [event.position for event in events]
    return positions == sorted(set(positions))


def whole_life(world: World) -> tuple[str, list[ServerEvent]]:
    """Play a task with everything in it; return its id and what a live reader was told."""
    task_id = world.submit(delay_ms=5)
    live = world.watch(task_id)
    eventually(lambda: world.hub.subscribers == 1)
    gevent.sleep(0.01)
    world.store.fire_timers()
    claim = world.claim(task_id)
    world.chunk(claim, 1, "a")
    world.progress(claim, 0.5)
    world.chunk(claim, 2, "b")
    claim = world.retry(claim)
    world.chunk(claim, 1, "c")
    world.finish(claim, EventType.RELEASE)
    claim = world.claim(task_id)
    world.progress(claim, 0.1)
    world.store.cancel(task_id, tenant="default")
    world.chunk(claim, 1, "d")
    world.finish(claim)
    return task_id, live.get(timeout=5)


# -- scenarios ---------------------------------------------------------------------------------


def headers() -> None:
    with World() as world:
        task_id, claim = world.running()
        client = world.open(task_id)
        assert client.status == 200
        assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert client.headers["cache-control"] == "no-store"
        assert client.headers["x-accel-buffering"] == "no"
        assert "content-length" not in client.headers
        assert "content-encoding" not in client.headers
        assert kinds(client.take(2)) == ["state", "state"]
        assert client.parser.retry == [2000]
        head = Client(world.web.server_port, task_id, None, {}, method="HEAD")
        assert (head.status, head.headers["content-type"]) == (200, client.headers["content-type"])
        assert world.hub.subscribers == 1
        world.finish(claim)
        assert kinds(client.rest()) == ["done"]


def whole_record() -> None:
    with World() as world:
        task_id, live = whole_life(world)
        last = live[-1]
        document = world.store.read(task_id)
        assert document is not None
        assert last.type == "done"
        assert last.json == json.loads(document.json)
        assert last.json["inputs"] == {"a": 1}
        assert last.json["output"] == {"ok": True}
        assert kinds(live).count("done") == 1
        assert "Succeeded" not in [event.json.get("state") for event in live[:-1]]
        assert [event.json["reason"] for event in live if event.type == "state"] == [
            "delayed", None, None, "backoff", None, None, "released", None, "cancelling",
        ]  # fmt: skip
        assert [event.json["attempt"] for event in live if event.type == "chunk"] == [1, 1, 2, 3]


def late_subscriber() -> None:
    with World() as world:
        task_id, live = whole_life(world)
        assert in_order(live)
        replay = world.open(task_id).rest()
        assert told(replay) == told(live)
        assert world.hub.subscribers == 0


def between_events() -> None:
    """Readers that come at any moment all get the same."""
    with World() as world:
        task_id = world.submit()
        watchers = [world.watch(task_id)]
        claim = world.claim(task_id)
        for n in range(1, 60):
            watchers.append(world.watch(task_id))
            world.chunk(claim, n)
            if n % 7 == 0:
                world.progress(claim, n / 60)
            if n % 20 == 0:
                world.store.cancel(task_id, tenant="default")
        world.finish(claim)
        first, *others = [told(watcher.get(timeout=10)) for watcher in watchers]
        assert len(first) == 2 + 59 + 8 + 1 + 1, len(first)
        assert all(other == first for other in others)


def resume() -> None:
    with World() as world:
        task_id, live = whole_life(world)
        for k, event in enumerate(live[:-1]):
            for options in ({"after": event.id}, {"Last_Event_ID": event.id, "after": "0-0"}):
                client = world.open(task_id, **options)
                assert told(client.rest()) == told(live[k + 1 :])
        for cursor in (live[-1].id, "4000000000-0"):
            assert world.open(task_id, Last_Event_ID=cursor).status == 204


def resume_running() -> None:
    """A client that is cut off at every third event misses and doubles nothing."""
    with World() as world:
        task_id, claim = world.running()

        def work() -> None:
            for n in range(1, 200):
                world.chunk(claim, n, str(n))
                if n % 10 == 0:
                    world.progress(claim, n / 200)
            world.finish(claim)

        worker = gevent.spawn(work)
        events: list[ServerEvent] = []
        while not events or events[-1].type != "done":
            cursor = {"Last_Event_ID": events[-1].id} if events else {}
            client = world.open(task_id, **cursor)
            events += client.take(3)
            client.reset()
        worker.get()
        assert in_order(events)
        assert [e.json["n"] for e in events if e.type == "chunk"] == list(range(1, 200))
        assert kinds(events).count("progress") == 19


def bad_cursor() -> None:
    with World() as world:
        task_id, _ = world.running()
        for options, pointer in (
            ({"after": "x"}, "/query/after"),
            ({"after": ""}, "/query/after"),
            ({"Last_Event_ID": "3"}, "/headers/Last-Event-ID"),
        ):
            client = world.open(task_id, **options)
            assert client.status == 400
            assert json.loads(client.body()) == {"code": "bad_request", "pointer": pointer}
        assert world.hub.subscribers == 0


def separators() -> None:
    with World() as world:
        task_id, claim = world.running()
        live = world.watch(task_id)
        for n, text in enumerate(NASTY, 1):
            world.chunk(claim, n, text)
        world.finish(claim)
        for events in (live.get(timeout=5), world.open(task_id).rest()):
            assert [e.json["text"] for e in events if e.type == "chunk"] == list(NASTY)
            assert in_order(events)


def client_gone() -> None:
    with World(heartbeat=0.5) as world:
        task_id, _ = world.running()
        world.open(task_id).reset()  # warms up what is made once
        eventually(lambda: world.hub.subscribers == 0)
        greenlets, clients = count_greenlets(), world.redis_clients()
        watchers = [world.open(task_id) for _ in range(200)]
        eventually(lambda: world.hub.subscribers == 200)
        assert world.redis_clients() == clients
        assert world.hub.channels == 1
        for watcher in watchers:
            watcher.reset()
        took = eventually(lambda: world.hub.subscribers == 0)
        assert took < 2 * world.heartbeat + 0.5, took
        gevent.sleep(0.1)
        assert world.hub.channels == 0
        assert count_greenlets() <= greenlets, (count_greenlets(), greenlets)
        assert world.redis_clients() == clients
        assert world.control.pubsub_channels() == []


def count_greenlets() -> int:
    gc.collect()
    return sum(
        isinstance(thing, greenlet.greenlet) and not thing.dead for thing in gc.get_objects()
    )


def heartbeat() -> None:
    with World(heartbeat=0.1) as world:
        task_id, claim = world.running()
        client = world.open(task_id)
        reader = gevent.spawn(client.rest)
        gevent.sleep(0.65)
        world.finish(claim)
        assert kinds(reader.get(timeout=5)) == ["state", "state", "done"]
        assert 4 <= len(client.parser.comments) <= 6, client.parser.comments


def cut() -> None:
    """The subscriber connection is killed over and over while chunks are written."""
    with World() as world:
        task_id, claim = world.running()
        watchers = [world.watch(task_id) for _ in range(5)]
        eventually(lambda: world.hub.subscribers == 5)

        def kill() -> None:
            while True:
                gevent.sleep(0.05)
                world.control.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

        killer = gevent.spawn(kill)
        for n in range(1, 1_000):
            world.chunk(claim, n, str(n))
        killer.kill()
        world.finish(claim)
        for watcher in watchers:
            events = watcher.get(timeout=10)
            assert in_order(events)
            assert [e.json["n"] for e in events if e.type == "chunk"] == list(range(1, 1_000))
            assert kinds(events)[-1] == "done"


def restart() -> None:
    """The server dies under a stream and is back two seconds later."""
    with World() as world:
        task_id, claim = world.running()
        watcher = world.watch(task_id)
        waiter = gevent.spawn(
            longpoll.wait_for, world.hub, world.store, task_id, seconds=15, until=is_over
        )
        world.chunk(claim, 1)
        eventually(lambda: world.hub.subscribers == 2)
        world.redis.kill()
        gevent.sleep(2)
        world.redis.start()
        world.chunk(claim, 2)
        world.finish(claim)
        events = watcher.get(timeout=10)
        assert [e.json["n"] for e in events if e.type == "chunk"] == [1, 2]
        assert in_order(events)
        assert kinds(events)[-1] == "done"
        assert waiter.get(timeout=10).state is NodeState.SUCCEEDED


def is_over(document: Any) -> bool:
    return document.state.terminal


def outage() -> None:
    """A server that stays away, or hangs, ends the streams within ten seconds."""
    both = [gevent.spawn(end_under, RedisServer.kill), gevent.spawn(end_under, RedisServer.pause)]
    gevent.joinall(both, raise_error=True)


def end_under(break_it: Callable[[RedisServer], None]) -> None:
    with World() as world:
        task_id, _ = world.running()
        client = world.open(task_id)
        client.take(2)
        reader = gevent.spawn(client.rest)
        start = time.monotonic()
        break_it(world.redis)
        assert reader.get(timeout=12) == []
        took = time.monotonic() - start
        assert 2.5 < took < 10, took
        assert client.parser.retry == [2000, 1000]
        assert world.hub.subscribers == 0
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            world.hub.subscribe(task_id)
        assert time.monotonic() - start < 1.3


def stop() -> None:
    with World() as world:
        task_id, _ = world.running()
        clients = [world.open(task_id) for _ in range(20)]
        readers = [gevent.spawn(client.rest) for client in clients]
        eventually(lambda: world.hub.subscribers == 20)
        start = time.monotonic()
        world.hub.close()
        for client, reader in zip(clients, readers, strict=True):
            assert kinds(reader.get(timeout=2)) == ["state", "state"]
            assert client.parser.retry == [2000, 1000]
        assert time.monotonic() - start < 0.5
        assert world.hub.subscribers == 0
        assert world.open(task_id).status == 503


def trimmed() -> None:
    with World(stream_cap=2_000) as world:
        task_id, claim = world.running()
        live = world.watch(task_id)
        eventually(lambda: world.hub.subscribers == 1)
        for n in range(1, 101):
            world.chunk(claim, n, "x" * 50)
        document = world.store.read(task_id)
        assert document is not None
        dropped = (document.trimmed_version, document.trimmed_seq)
        assert dropped[1] > 50
        late = world.open(task_id)
        reset, *_ = begun = late.take(1 + 100 - dropped[1])
        assert reset.type == "reset"
        assert reset.position == dropped
        assert reset.json["state"] == "Running"
        assert [e.json["n"] for e in begun[1:]] == list(range(dropped[1] + 1, 101))
        seen = world.open(task_id, after=f"{dropped[0]}-{dropped[1] + 1}").take(1)
        assert seen[0].json["n"] == dropped[1] + 2
        world.finish(claim)
        assert kinds(late.rest()) == ["done"]
        assert [e.json["n"] for e in live.get(timeout=5) if e.type == "chunk"] == list(
            range(1, 101)
        )
        after_the_end = world.open(task_id, after="2-1").rest()
        assert kinds(after_the_end) == ["reset"] + ["chunk"] * (100 - dropped[1]) + ["done"]
        assert after_the_end[0].json == after_the_end[-1].json


def forgotten() -> None:
    """A client that knows more than a store that has lost its last second gets a reset."""
    with World() as world:
        task_id, claim = world.running()
        client = world.open(task_id, Last_Event_ID="7-3")
        (reset,) = client.take(1)
        assert (reset.type, reset.position) == ("reset", (2, 0))
        world.chunk(claim, 1)
        assert [e.id for e in client.take(1)] == ["2-1"]


def burst() -> None:
    """What gathered while a client was slow goes out in a few writes, complete."""
    with World() as world:
        task_id, claim = world.running()
        stream = sse.EventStream(world.hub, world.store, task_id, (0, 0), heartbeat=1)
        next(stream)
        for n in range(1, 501):
            world.chunk(claim, n, "x" * 300)
        eventually(lambda: len(stream._subscription._buffer) == 500)
        world.finish(claim)
        parser = Parser()
        blocks = list(stream)
        events = [event for block in blocks for event in parser.feed(block)]
        stream.close()
        assert [e.json["n"] for e in events if e.type == "chunk"] == list(range(1, 501))
        assert kinds(events)[-1] == "done"
        assert len(blocks) < 25


def slow_reader() -> None:
    """A reader that stops for a while overflows its buffer and still gets everything once."""
    with World() as world:
        task_id, claim = world.running()
        subscription_bound = 1_000
        stream = sse.EventStream(world.hub, world.store, task_id, (0, 0), heartbeat=1)
        next(stream)
        total = 3 * subscription_bound
        writers = [
            gevent.spawn(lambda first=first: [
                world.chunk(claim, n) for n in range(first, first + 300)
            ])
            for first in range(1, total, 300)
        ]  # fmt: skip
        gevent.joinall(writers, raise_error=True)
        gevent.sleep(0.2)
        assert len(stream._subscription._buffer) == 0  # dropped
        world.finish(claim)
        parser = Parser()
        events = [event for block in stream for event in parser.feed(block)]
        stream.close()
        assert in_order(events)
        assert kinds(events).count("chunk") == total
        assert kinds(events)[-1] == "done"


def one_connection() -> None:
    with World() as world:
        tasks = [world.submit() for _ in range(300)]
        world.store.read(tasks[0])
        before = world.redis_clients()
        joined = gevent.joinall([gevent.spawn(world.hub.subscribe, t) for t in tasks for _ in "ab"])
        subscriptions = [reader.get() for reader in joined]
        assert world.redis_clients() == before + 1
        assert (world.hub.subscribers, world.hub.channels) == (600, 300)
        assert len(world.control.pubsub_channels()) == 300
        for subscription in subscriptions:
            subscription.close()
        eventually(lambda: world.control.pubsub_channels() == [])
        assert (world.hub.subscribers, world.hub.channels) == (0, 0)
        assert world.redis_clients() == before + 1
        world.hub.close()
        eventually(lambda: world.redis_clients() == before)


def churn() -> None:
    """Whoever was told that it is subscribed gets what is published from then on."""
    with World() as world:
        world.hub.start()
        tasks = [f"t_{number}" for number in range(3)]
        unheard = []

        def come_and_go(number: int) -> None:
            for turn in range(60):
                task = tasks[(number + turn) % len(tasks)]
                with world.hub.subscribe(task) as subscription:
                    word = json.dumps({"from": number, "turn": turn}).encode()
                    world.store.link.call(
                        "PUBLISH", world.store.keys.channel(task), b"1-1 chunk " + word
                    )
                    while isinstance(item := subscription.get(2), Message) and item.json != word:
                        pass
                    if not isinstance(item, Message):
                        unheard.append((number, turn, item))

        gevent.joinall([gevent.spawn(come_and_go, n) for n in range(20)], raise_error=True)
        assert unheard == []
        assert world.hub.channels == 0


class FakeServer:
    """A Redis that confirms subscriptions when it is told to."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="an-")
        self.url = f"unix://{self._directory}/s"
        self.asked: list[list[bytes]] = []
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{self._directory}/s")
        listener.listen()
        self._server = StreamServer(listener, self._serve)
        self._server.start()
        self._client: Any = None

    def _serve(self, client: Any, _address: object) -> None:
        self._client = client
        reader = hiredis.Reader()
        while data := client.recv(4096):
            reader.feed(data)
            while command := reader.gets():
                if command[0].endswith(b"SUBSCRIBE"):
                    self.asked += [[command[0].lower(), name] for name in command[1:]]
                else:
                    client.sendall(b"+PONG\r\n" if command[0] == b"PING" else b"+OK\r\n")

    def confirm(self) -> None:
        """Answer the oldest request."""
        kind, name = self.asked.pop(0)
        sizes = (len(kind), kind, len(name), name)
        self._client.sendall(b"*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n" % sizes)

    def close(self) -> None:
        """End it."""
        self._server.stop()
        shutil.rmtree(self._directory)


def own_confirmation() -> None:
    """A reader is let in by the answer to its own request, not to one that was taken back."""
    fake = FakeServer()
    keys = SimpleNamespace(keys=Keys())
    hub = Hub(SimpleNamespace(store_url=fake.url), keys)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        hub.subscribe("t_x", timeout=0.1)
    second = gevent.spawn(hub.subscribe, "t_x", timeout=5)
    eventually(lambda: len(fake.asked) == 3)
    assert [kind for kind, _ in fake.asked] == [b"subscribe", b"unsubscribe", b"subscribe"]
    for _ in range(2):
        fake.confirm()
        gevent.sleep(0.05)
        assert not second.ready()
    fake.confirm()
    assert second.get(timeout=1).confirmed
    hub.close()
    fake.close()


def hub_signals() -> None:
    with World() as world:
        with world.hub.subscribe("t_x") as subscription:
            assert subscription.get(0.01) is None
            world.control.publish(world.store.keys.channel("t_x"), "nonsense")
            world.control.publish(world.store.keys.channel("t_x"), "3-1 chunk {}")
            assert subscription.get(1) == Message(3, 1, "chunk", b"{}")
            world.control.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            assert subscription.get(2) is GAP
            world.control.publish(world.store.keys.channel("t_x"), "3-2 chunk {}")
            assert subscription.get(1) == Message(3, 2, "chunk", b"{}")
            world.hub.close()
            assert subscription.get(1) is CLOSED
        assert world.hub.subscribers == 0


def forbidden_channels() -> None:
    """A user that may not subscribe gets a named error in time, not a hang."""
    with World() as world:
        world.control.acl_setuser(
            "poor", enabled=True, passwords=["+pw"], categories=["+@all"], keys=["*"],
            reset_channels=True,
        )  # fmt: skip
        url = world.redis.url.replace("unix://", "unix://poor:pw@")
        hub = Hub(SimpleNamespace(store_url=url), world.store)  # type: ignore[arg-type]
        start = time.monotonic()
        with pytest.raises(StoreUnavailable, match="refused to subscribe"):
            hub.subscribe("t_x")
        assert time.monotonic() - start < 1.3
        hub.close()


def one_last_look() -> None:
    """The record of an ended task is read once for all who watch it, and held once."""
    with World() as world:
        task_id, claim = world.running()
        watchers = [world.watch(task_id) for _ in range(100)]
        eventually(lambda: world.hub.subscribers == 100)
        gevent.sleep(0.3)
        calls = world.control.info("commandstats")["cmdstat_get"]["calls"]
        world.finish(claim)
        for watcher in watchers:
            assert kinds(watcher.get(timeout=5)) == ["state", "state", "done"]
        assert world.control.info("commandstats")["cmdstat_get"]["calls"] == calls + 1


def wait() -> None:
    with World() as world:
        task_id = world.submit()

        def timed(**options: Any) -> tuple[Any, float]:
            start = time.monotonic()
            document = longpoll.wait_for(world.hub, world.store, task_id, **options)
            return document, time.monotonic() - start

        document, took = timed(seconds=0, until=is_over)
        assert (document.state, took < 0.1) == (NodeState.PENDING, True)
        document, took = timed(seconds=0.3, until=is_over)
        assert (document.version, 0.29 < took < 0.5) == (1, True), took
        waiting = [gevent.spawn(timed, seconds=5, until=is_over) for _ in range(20)]
        changed = gevent.spawn(timed, seconds=5, until=lambda d: d.version > 1)
        gevent.sleep(0.1)
        claim = world.claim(task_id)
        assert changed.get(timeout=1)[0].version == 2
        for n in range(50):
            world.chunk(claim, n)
        world.progress(claim, 0.5)
        gevent.sleep(0.1)
        assert not any(waiter.ready() for waiter in waiting)
        start = time.monotonic()
        world.finish(claim)
        assert {w.get(timeout=1)[0].state for w in waiting} == {NodeState.SUCCEEDED}
        assert time.monotonic() - start < 0.2
        assert world.hub.subscribers == 0
        assert longpoll.wait_for(world.hub, world.store, "t_none", seconds=5, until=is_over) is None


def wait_without_hub() -> None:
    """A hub that cannot be used costs half a second of delay, no more; a closed one none."""
    with World() as world:
        task_id, claim = world.running()
        settings = SimpleNamespace(store_url="unix:///nowhere/at/all")
        hub = Hub(settings, world.store)  # type: ignore[arg-type]
        waiter = gevent.spawn(
            longpoll.wait_for, hub, world.store, task_id, seconds=6, until=is_over
        )
        gevent.sleep(1.2)
        world.finish(claim)
        start = time.monotonic()
        assert waiter.get(timeout=2).state is NodeState.SUCCEEDED
        assert time.monotonic() - start < 0.7
        start = time.monotonic()
        other, _ = world.running()
        document = longpoll.wait_for(hub, world.store, other, seconds=1.5, until=is_over)
        assert document is not None
        assert 1.4 < time.monotonic() - start < 2
        stopping = gevent.spawn(
            longpoll.wait_for, world.hub, world.store, other, seconds=6, until=is_over
        )
        eventually(lambda: world.hub.subscribers == 1)
        world.hub.close()
        assert stopping.get(timeout=0.5).state is NodeState.RUNNING
        hub.close()


if __name__ == "__main__":
    gevent.Timeout(50, RuntimeError("the scenario hangs")).start()
    globals()[sys.argv[1]]()
