"""The store on a real server, with the doors that the tests need: time, lists, raw columns."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from async_nodes.core.ids import IdSource
from async_nodes.core.ports import Submission
from async_nodes.core.priority import LISTS
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.messages import templates
from async_nodes.settings import Settings
from async_nodes.storage.commit import DirectCommit
from async_nodes.storage.ends import Ends
from async_nodes.storage.keys import Keys
from async_nodes.storage.layout import FIELDS, SCHEMA
from async_nodes.storage.redis_connection import BlockingConnection
from async_nodes.storage.redis_store import RedisStore, scripts_for
from async_nodes.storage.script_library import render

if TYPE_CHECKING:
    from tests.servers import RedisServer

KEYS = Keys()
IDS = IdSource(b"a secret of the tests")
WORKER, OTHER = "io-1-aaaaaaaa", "cpu-2-bbbbbbbb"


@cache
def messages() -> dict[str, str]:
    return templates(make_app(Settings()), KEYS)


@dataclass(slots=True)
class RealStore:
    """A `RedisStore` over a blocking connection, and what is behind it."""

    store: RedisStore
    link: BlockingConnection
    fences: int = field(default=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def fence(self) -> str:
        """Return a fence that no other claim has."""
        self.fences += 1
        return f"{self.fences:016d}"

    def settle(self, task_id: str) -> None:
        """Say that a task was cleaned up after."""
        Ends(self.store, 60.0).settle(task_id)

    def now_ms(self) -> int:
        """Return the server's time."""
        seconds, micros = self.link.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def list_of(self, name: str) -> list[tuple[str, int]]:
        """Return the messages of a list, newest first, as (id, dispatch)."""
        found = [json.loads(raw) for raw in self.link.call("LRANGE", KEYS.queue(name), 0, -1)]
        return [(one["headers"]["id"], one["headers"]["an_dispatch"]) for one in found]

    def lists(self) -> dict[str, list[tuple[str, int]]]:
        """Return the messages of every list that has some."""
        return {name: found for name in LISTS if (found := self.list_of(name))}

    def pop(self, name: str = "io.default") -> tuple[str, int]:
        """Take the oldest message of a list, as a worker does."""
        headers = json.loads(self.link.call("RPOP", KEYS.queue(name)))["headers"]
        return headers["id"], headers["an_dispatch"]

    def dispatch_of(self, task_id: str) -> int:
        """Return the number of the dispatch that counts."""
        return int(self.store.read(task_id).dispatch)

    def start(self, task_id: str, worker: str = WORKER) -> Any:
        """Claim a task that waits."""
        fence = self.fence()
        return self.store.claim(task_id, self.dispatch_of(task_id), worker=worker, fence=fence)

    def json_of(self, task_id: str) -> dict[str, Any]:
        """Return the public document."""
        found: dict[str, Any] = json.loads(self.store.read(task_id).json)
        return found

    def set_column(self, task_id: str, name: str, value: float) -> None:
        """Change a column of a record behind the scripts' back: let time pass, say."""
        before = [column.python for column in FIELDS]
        index = [column.name for column in FIELDS].index(name)
        offset = struct.calcsize("<" + "".join(before[:index]))
        packed = struct.pack("<" + before[index], value)
        self.link.call("SETRANGE", KEYS.task(task_id), offset, packed)


def open_store(
    server: RedisServer,
    *,
    gate_limit: int = 0,
    stream_cap: int = 0,
    lease_seconds: float = 15.0,
    schema: int = SCHEMA,
    **options: Any,
) -> RealStore:
    """Return the store of an empty server."""
    link = BlockingConnection(server.url, timeout=5.0)
    scripts = scripts_for(link, KEYS, messages(), gate_limit=gate_limit, schema=schema)
    if stream_cap:
        scripts = render(KEYS, messages(), stream_cap=stream_cap)
    committer = DirectCommit(link, scripts, KEYS.base)
    store = RedisStore(
        link=link, committer=committer, keys=KEYS, scripts=scripts,
        lease_seconds=lease_seconds, **options,
    )  # fmt: skip
    return RealStore(store, link)


def tail_of(inputs: bytes, **fields: Any) -> tuple[bytes, int]:
    """Return a document's tail and where the inputs are in it."""
    known = {"node": "echo", "priority": 5, "tags": [], "metadata": {}, **fields}
    start = json.dumps(known, separators=(",", ":"))[1:-1].encode() + b',"inputs":'
    return start + inputs + b",", len(start)


def submission(task_id: str = "", *, inputs: bytes = b'{"x":1}', **fields: Any) -> Submission:
    """Return a task as `dispatch.submit` would send it."""
    tail, inputs_at = tail_of(inputs)
    defaults: dict[str, Any] = {
        "task_id": task_id or IDS.make(1_700_000_000_000),
        "tenant": "default",
        "list_name": "io.default",
        "private": b'{"node":"echo"}',
        "tail": tail,
        "inputs_at": inputs_at,
        "inputs_len": len(inputs),
        "timeout_ms": 30_000,
        "ttl_ms": 86_400_000,
    }
    return Submission(**defaults | fields)
