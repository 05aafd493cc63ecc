"""The functions that every task passes through, each as a call that can be made again and again.

They are entered as the product enters them. Only the far end is cut off: instead of a server, a
link that packs each command and reads a canned reply through the product's own parser. So what is
counted is our own Python and what it calls, without waiting, and each call does the same as the
one before it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, Final, cast

from async_nodes.access.guard import Guard
from async_nodes.access.lane.fast_lane import FastLane
from async_nodes.access.lane.head import Heads
from async_nodes.access.lane.reader import Reader
from async_nodes.access.streams import sse_format
from async_nodes.core.ids import IdSource
from async_nodes.core.ports import Ending, Submission
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType, NodeState
from async_nodes.dispatch.request import parse
from async_nodes.dispatch.submit import Submitter, compose
from async_nodes.execution.attempt import run_attempt
from async_nodes.execution.green_host import GreenHost
from async_nodes.execution.process import executor_for
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from async_nodes.storage import layout, plain
from async_nodes.storage.commit import DirectCommit
from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_store import RedisStore
from async_nodes.storage.resp import new_reader, pack
from async_nodes.storage.script_library import Script

NOW_MS: Final = 1_796_072_400_007
TASK_ID: Final = "t_01KEXAMPZE0123456789ABCDEF"
FENCE: Final = "0123456789abcdef"
WORKER: Final = "io@host/1"
TOGETHER: Final = 50
"""Rows in a flush, and claims in a take: what a busy process sends and gets at once."""

OUTPUT: Final = b'{"n":1,"model":"sim","prompt":"What does a queue owe to the one who waits?"}'
BODY: Final = b'{"node":"echo","inputs":%s}' % OUTPUT
LINES: Final = b"Host: 127.0.0.1:8000\r\nUser-Agent: client/1.0\r\nAccept: */*\r\n"
BODY_LINES: Final = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(BODY)
READ: Final = b"GET /v1/tasks/%s HTTP/1.1\r\n%s\r\n" % (TASK_ID.encode(), LINES)
UNCHANGED: Final = READ[:-2] + b'If-None-Match: "3"\r\n\r\n'
SUBMIT: Final = b"POST /v1/tasks HTTP/1.1\r\n%s%s\r\n%s" % (LINES, BODY_LINES, BODY)

Operation = Callable[[], object]


class CannedLink:
    """Pack what is sent, and read the same reply to it each time."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._reader = new_reader()

    def call(self, *args: Any, timeout: float | None = None) -> Any:
        """Return the reply to one command."""
        pack(args)
        self._reader.feed(self._reply)
        return self._reader.gets()

    def call_many(
        self, commands: Sequence[Sequence[Any]], *, timeout: float | None = None
    ) -> list[Any]:
        """Return the reply to each of some commands."""
        return [self.call(*command, timeout=timeout) for command in commands]

    def close(self) -> None:
        """Do nothing."""


class CannedCommitter:
    """Take a row and give the same verdict each time."""

    def __init__(self, verdict: object) -> None:
        self._verdict = verdict

    def commit(self, _script: str, _row: Any, *, patience: float) -> object:
        """Return the verdict on a row."""
        return self._verdict

    def commit_many(self, _script: str, rows: Sequence[Any], *, patience: float) -> list[object]:
        """Return the verdict on each of some rows."""
        return [self._verdict for _ in rows]


def operations() -> dict[str, Operation]:
    """Return the hot functions by name."""
    ids, nodes = IdSource(b"0123456789abcdef"), registry()
    request = parse(BODY, nodes, now_ms=NOW_MS)
    accepting = _store(verdict=NOW_MS)
    reading = _store(reply=_bulk(record()))
    submitter = Submitter(accepting, ids, nodes, Settings(), lambda: NOW_MS / 1000)
    lane_of = {"read": _lane(reading, submitter), "submit": _lane(accepting, submitter)}
    heads, numbers = Heads(Guard(Settings())), count()
    made = ids.make(NOW_MS)
    kwargs: dict[str, Any] = {"tenant": "default", "default_timeout_ms": 60_000}

    def head() -> object:
        named = b"X-Request-ID: request-%08d\r\n" % (next(numbers) % 10**8)
        return heads.of_submit(LINES + BODY_LINES + named)

    return {
        "read the head of a request": head,
        "answer a poll": lambda: lane_of["read"](_reader(READ)),
        "answer a poll with 304": lambda: lane_of["read"](_reader(UNCHANGED)),
        "answer a submit": lambda: lane_of["submit"](_reader(SUBMIT)),
        "make an id": lambda: ids.make(NOW_MS),
        "recognise an id": lambda: ids.issued(made),
        "check a submit": lambda: parse(BODY, nodes, now_ms=NOW_MS),
        "make a row": lambda: plain.accept_row(compose(request, task_id=TASK_ID, **kwargs)),
        **_of_the_store(compose(request, task_id=TASK_ID, **kwargs)),
        "frame an event": lambda: sse_format.frame((3, 17), "chunk", OUTPUT),
    }


def _of_the_store(submission: Submission) -> dict[str, Operation]:
    waiting = plain.accept_row(submission)
    raw = b"".join((waiting[6], bytes(16), waiting[7], plain.moment(NOW_MS)))
    claims = _array(
        [b":%d\r\n" % NOW_MS, _array([_bulk(raw), _bulk(OUTPUT)] * TOGETHER), b"*0\r\n"]
    )
    taking, finishing = _store(reply=claims), _store(verdict=1)
    lists = [name for name in LISTS if name.startswith("io")]
    claim = taking.take(lists, TOGETHER, worker=WORKER).claims[0]
    rows = [plain.complete_row(cast("plain.Origin", claim.origin), FENCE, OUTPUT)] * TOGETHER
    committer = DirectCommit(
        CannedLink(_array([b":1\r\n"] * TOGETHER)), _scripts("complete"), "an:"
    )
    ending = Ending(event=EventType.COMPLETE, output=OUTPUT)
    executor = executor_for(Settings(), finishing, GreenHost())
    return {
        f"take {TOGETHER} claims": lambda: taking.take(lists, TOGETHER, worker=WORKER),
        "run an attempt": lambda: run_attempt(executor, claim),
        "finish a task": lambda: finishing.finish(TASK_ID, FENCE, ending, origin=claim.origin),
        f"commit {TOGETHER} rows": lambda: committer.commit_many("complete", rows, patience=1.0),
    }


def record() -> bytes:
    """Return a finished task as the store keeps it."""
    document = b'{"task_id":"%s","state":"Succeeded","output":%s}' % (TASK_ID.encode(), OUTPUT)
    columns = struct.Struct("<" + "".join(field.python for field in layout.FIELDS))
    values: Mapping[str, int | bytes] = {
        "schema": layout.SCHEMA,
        "version": 3,
        "state": layout.STATES.index(NodeState.SUCCEEDED),
        "json_at": columns.size,
        "tenant": b"default".ljust(32),
    }
    empty = {field.name: b"" if "s" in field.python else 0 for field in layout.FIELDS}
    return columns.pack(*{**empty, **values}.values()) + document


def _lane(store: RedisStore, submitter: Submitter) -> FastLane:
    services: Any = SimpleNamespace(store=store, submitter=submitter)
    return FastLane(Settings(), lambda: services)


def _reader(data: bytes) -> Reader:
    return Reader(SimpleNamespace(recv=lambda _most: data))


def _store(*, reply: bytes = b"$-1\r\n", verdict: object = 0) -> RedisStore:
    return RedisStore(
        link=CannedLink(reply),
        committer=CannedCommitter(verdict),
        keys=Keys(),
        scripts=_scripts("take", "accept"),
    )


def _scripts(*names: str) -> dict[str, Script]:
    return {name: Script(name, "return 1", "0" * 40) for name in names}


def _bulk(data: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(data), data)


def _array(items: Sequence[bytes]) -> bytes:
    return b"*%d\r\n" % len(items) + b"".join(items)
