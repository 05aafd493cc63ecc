"""Celery's result backend over our records: ``AsyncResult(task_id).get()`` works for our tasks.

`CELERY_RESULT_BACKEND` keeps its ``redis://`` value and its meaning for Celery's own tasks. The
class behind that scheme is replaced, through the loader's own hook, by one that answers for ids
of ours from the record, read-only, and leaves every other id to Celery.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from celery import states
from celery.backends.base import SyncBackendMixin
from celery.backends.redis import RedisBackend, SentinelBackend
from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import ResultSet

from async_nodes.core.errors import CATALOGUE, AsyncNodesError
from async_nodes.core.ids import well_formed
from async_nodes.core.states import NodeState
from async_nodes.storage import layout
from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_connection import BlockingConnection

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import AsyncResult

    from async_nodes.settings import Settings

SCHEMES = ("redis", "rediss", "socket")
SENTINEL = "sentinel"
POLL_FIRST, POLL_MOST = 0.01, 0.5
READ_TIMEOUT = 5.0

_STATUS = {
    NodeState.PENDING: states.PENDING,
    NodeState.RUNNING: states.STARTED,
    NodeState.SUCCEEDED: states.SUCCESS,
    NodeState.FAILED: states.FAILURE,
    NodeState.CANCELLED: states.REVOKED,
}


def install(app: Celery, settings: Settings) -> None:
    """Let an app answer for our ids from our records."""
    _places[app] = Keys(settings.key_prefix), settings.store_url
    overrides = dict.fromkeys(SCHEMES, f"{__name__}:{RecordBackend.__name__}")
    overrides[SENTINEL] = f"{__name__}:{SentinelRecordBackend.__name__}"
    app.loader.override_backends = {**app.loader.override_backends, **overrides}


_places: WeakKeyDictionary[Celery, tuple[Keys, str]] = WeakKeyDictionary()
"""Where an app's records are: Celery makes the backend, from its name, with the app alone."""


class _Records(RedisBackend):
    """Answer for ids of ours; everything else is Celery's."""

    def __init__(self, *args: Any, app: Celery, **kwargs: Any) -> None:
        super().__init__(*args, app=app, **kwargs)
        self.record_keys, url = _places[app]
        self._records = BlockingConnection(url, timeout=READ_TIMEOUT)

    def _get_task_meta_for(self, task_id: str) -> dict[str, Any]:
        if not well_formed(task_id):
            meta: dict[str, Any] = super()._get_task_meta_for(task_id)
            return meta
        raw = self._records.call("GET", self.record_keys.task(task_id))
        if raw is None:
            # Celery's PENDING for whatever it does not know would let a caller wait for ever.
            return _meta(task_id, states.FAILURE, AsyncNodesError("task_not_found"), None)
        document = layout.parse(raw)
        record = json.loads(document.json)
        status = _STATUS[NodeState(record["state"])]
        if document.apart:
            output = self._records.call("GET", self.record_keys.output(task_id))
            record["output"] = json.loads(output or b"null")
        return _meta(task_id, status, _result(status, record), record["finished_at"])

    def wait_for_pending(
        self,
        result: AsyncResult[Any],
        timeout: float | None = None,
        on_interval: Callable[[], object] | None = None,
        propagate: bool = True,  # noqa: FBT001, FBT002 - Celery's signature
        callback: Callable[..., object] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Wait for a result; for ids of ours by looking, at growing intervals."""
        if not well_formed(result.id):
            return super().wait_for_pending(
                result,
                timeout=timeout,
                on_interval=on_interval,
                propagate=propagate,
                callback=callback,
                **kwargs,
            )
        until = None if timeout is None else time.monotonic() + timeout
        pause = POLL_FIRST
        while (meta := self._get_task_meta_for(result.id))["status"] not in states.READY_STATES:
            if until is not None and time.monotonic() >= until:
                raise CeleryTimeoutError("The operation timed out.")
            if on_interval is not None:
                on_interval()
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_MOST)
        result._maybe_set_cache(meta)  # noqa: SLF001 - how Celery's own waiting ends
        return result.maybe_throw(propagate=propagate, callback=callback)

    def iter_native(self, result: ResultSet, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Wait for a group; one with ids of ours by looking, as for a backend without push."""
        if _has_ours(result):
            yield from SyncBackendMixin.iter_native(self, result, **kwargs)
        else:
            yield from super().iter_native(result, **kwargs)

    def _mget_to_results(
        self, values: Any, keys: list[str], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        found: dict[str, Any] = super()._mget_to_results(values, keys, *args, **kwargs)
        for task_id in filter(well_formed, keys):
            meta = self._get_task_meta_for(task_id)
            if meta["status"] in states.READY_STATES:
                found[task_id] = meta
        return found

    def add_pending_result(self, result: Any, *args: Any, **kwargs: Any) -> Any:
        """Follow a result; nothing has to be followed for ids of ours."""
        if well_formed(result.id):
            return result
        return super().add_pending_result(result, *args, **kwargs)

    def remove_pending_result(self, result: Any) -> Any:
        """Stop following a result."""
        if well_formed(result.id):
            return result
        return super().remove_pending_result(result)

    def on_task_call(self, producer: Any, task_id: str) -> Any:
        """Prepare for a result that is going to be wanted."""
        return {} if well_formed(task_id) else super().on_task_call(producer, task_id)

    def store_result(self, task_id: str, result: Any, state: str, *args: Any, **kwargs: Any) -> Any:
        """Store a result, unless the record is the result."""
        if well_formed(task_id):
            return result
        return super().store_result(task_id, result, state, *args, **kwargs)

    def forget(self, task_id: str) -> None:
        """Forget a result of Celery's.

        Raises:
            AsyncNodesError: ``bad_request`` for ids of ours: records go by their ttl.

        """
        if well_formed(task_id):
            raise AsyncNodesError("bad_request", "a task's record is read-only through Celery")
        super().forget(task_id)


class RecordBackend(_Records):
    """Answer for ids of ours beside Celery's backend for one server."""


class SentinelRecordBackend(_Records, SentinelBackend):
    """Answer for ids of ours beside Celery's backend for servers under Sentinel."""


def _has_ours(result: ResultSet) -> bool:
    return any(
        _has_ours(node) if isinstance(node, ResultSet) else well_formed(node.id)
        for node in result.results
    )


def _meta(task_id: str, status: str, result: object, done: str | None) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "status": status,
        "result": result,
        "traceback": None,
        "children": [],
        "date_done": done,
    }


def _result(status: str, record: dict[str, Any]) -> object:
    if status == states.SUCCESS:
        return record["output"]
    if status == states.REVOKED:
        return TaskRevokedError("the task was cancelled")
    if status == states.FAILURE:
        error = record["error"] or {}
        code = error.get("code") if error.get("code") in CATALOGUE else "node_failed"
        return AsyncNodesError(str(code), f"{error.get('type')}: {error.get('message')}")
    return None
