"""Step 5, expose: the fast lane. The two requests that a server is full of, answered from bytes.

Reads of a record and submits of a task, ordinary and complete, get the very bytes that the app
would have given them: 200, 304 or 202. It never reports a fault: whatever it does not know is left
untouched for the app, and what fails halfway is handed over to it (see `handover`). A test
holds lane and app to the same bytes.
"""

from __future__ import annotations

import os
import re
from time import perf_counter
from typing import Final

from async_nodes.access import negotiate
from async_nodes.access.api.answers import JSON, RETRY_AFTER, REVALIDATE
from async_nodes.access.app import SLOW_SECONDS, note
from async_nodes.access.guard import Guard
from async_nodes.access.keyring import Keyring
from async_nodes.access.lane.handover import Handover
from async_nodes.access.lane.head import Head, Heads
from async_nodes.access.lane.reader import Reader
from async_nodes.access.services import Provider, Services
from async_nodes.access.serving.http import Answer
from async_nodes.dispatch.submit import links_of
from async_nodes.settings import Settings
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.telemetry import metrics
from async_nodes.telemetry.tallies import Counts
from async_nodes.telemetry.tracing import TRACING

_TASK: Final = b"GET /v1/tasks/"
_TASKS: Final = b"POST /v1/tasks HTTP/1.1\r\n"
_VERSION_LINE: Final = b" HTTP/1.1\r\n"
_ID = re.compile(rb"t_[0-9A-HJKMNP-TV-Z]{26}")
_ID_AT, _ID_END = len(_TASK), len(_TASK) + 28
_READ_LINES, _SUBMIT_LINES = _ID_END + len(_VERSION_LINE), len(_TASKS)
_END: Final = b"\r\n\r\n"

# In the order in which Flask and gevent write them; `Date` is the server's to add.
_NAMES: Final = "X-Request-ID: %s\r\ntraceparent: %s\r\nX-Content-Type-Options: nosniff\r\n"
_VERSION: Final = f'ETag: "%d"\r\nCache-Control: {REVALIDATE}\r\nVary: Accept, Prefer\r\n'
_RECORD: Final = (
    f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nContent-Length: %d\r\n{_VERSION}{_NAMES}"
)
_NOT_MODIFIED: Final = f"HTTP/1.1 304 NOT MODIFIED\r\n{_VERSION}{_NAMES}"
_ACCEPTED: Final = (
    f"HTTP/1.1 202 ACCEPTED\r\nContent-Type: {JSON}\r\nContent-Length: %d\r\n"
    f"Cache-Control: no-store\r\nRetry-After: {RETRY_AFTER}\r\nLocation: /v1/tasks/%s\r\n%s{_NAMES}"
)
_REPLAYED: Final = "Idempotency-Replayed: true\r\n"
_SUBMITTED: Final = '{"task_id":"%s","state":"%s","version":%d,"created_at":"%s","links":%s}'


class FastLane:
    """Answer ordinary requests of one process.

    Args:
        settings: the keys, or none.
        provider: gives the services, or raises ``store_unavailable``.

    """

    def __init__(self, settings: Settings, provider: Provider) -> None:
        keyring = Keyring(provider) if settings.api_keys else None
        self._heads = Heads(Guard(settings, keyring))
        self._keyring = keyring
        self._provider = provider

    def __call__(self, reader: Reader) -> Answer | Handover | None:
        """Answer the request that waits in a reader, and take it from there.

        Returns:
            The answer; or, with nothing taken, None for the app to serve the request, or what the
            app has to report.

        """
        if self._keyring is not None:
            try:
                self._heads.look_at_the_keys()
            except StoreUnavailable:
                return None
        data = reader.peek()
        end = data.find(_END) + 4
        if data.startswith(_TASKS):
            head, task_id = self._heads.of_submit(data[_SUBMIT_LINES : end - 2]), ""
        elif data.startswith(_TASK) and data[_ID_END:_READ_LINES] == _VERSION_LINE:
            asked = data[_ID_AT:_ID_END]
            if _ID.fullmatch(asked) is None:
                return None
            head, task_id = self._heads.of_read(data[_READ_LINES : end - 2]), asked.decode("ascii")
        else:
            return None
        if head is None:  # of an end that is not there, too: no head has so few lines
            return None
        try:
            services = self._provider()
        except StoreUnavailable:
            return None
        request = _Request(head, reader, end)
        return request.read(services, task_id) if task_id else request.submit(services)


class _Request:
    """Hold one ordinary request on its way through."""

    __slots__ = ("_head", "_reader", "_request_id", "_size", "_started", "_traceparent")

    def __init__(self, head: Head, reader: Reader, size: int) -> None:
        self._head = head
        self._reader = reader
        self._size = size
        self._started = perf_counter()
        made = os.urandom(32).hex()
        self._request_id = head.request_id or made[:16]
        flags = "01" if made[16:24] < TRACING.bound else "00"
        self._traceparent = head.traceparent or f"00-{made[16:48]}-{made[48:]}-{flags}"

    def read(self, services: Services, task_id: str) -> Answer | Handover | None:
        """Show a record, or that it is still the one the client has."""
        try:
            record = services.store.glance(task_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, the app reports it
            return self._handed(error)
        if record is None or record.tenant != self._head.tenant:
            return None
        self._reader.take(self._size)
        version, body = record.version, record.json
        known = self._head.if_none_match
        if known is not None and negotiate.matches(known, f'"{version}"'):
            self._count(f"/v1/tasks/{task_id}", metrics.polls, "not_modified", _READ, "304")
            head = _NOT_MODIFIED % (version, self._request_id, self._traceparent)
            return Answer(head, b"")
        self._count(f"/v1/tasks/{task_id}", metrics.polls, "ok", _READ, "200")
        head = _RECORD % (len(body), version, self._request_id, self._traceparent)
        return Answer(head, body)

    def submit(self, services: Services) -> Answer | Handover | None:
        """Accept a task."""
        start, self._size = self._size, self._size + self._head.length
        data = self._reader.peek(self._size)
        if len(data) < self._size:
            return None  # the client has left or stalls: the app meets the same end
        try:
            done = services.submitter.submit(
                data[start : self._size],
                tenant=self._head.tenant,
                idempotency_key=self._head.idempotency_key,
                traceparent=self._traceparent,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the app reports it
            return self._handed(error)
        self._reader.take(self._size)
        task_id = done.task_id
        state, created = done.state.value, done.created_at
        links = links_of(f"/v1/tasks/{task_id}")
        body = _SUBMITTED % (task_id, state, done.version, created, links)
        outcome, replayed = ("replayed", _REPLAYED) if done.replayed else ("accepted", "")
        self._count("/v1/tasks", metrics.submits, outcome, _SUBMIT, "202")
        names = (self._request_id, self._traceparent)
        head = _ACCEPTED % (len(body), task_id, replayed, *names)
        return Answer(head, body.encode("ascii"))

    def _handed(self, error: Exception) -> Handover:
        return Handover(error, self._started, self._request_id, self._traceparent)

    def _count(
        self,
        path: str,
        counter: Counts,
        outcome: str,
        route: tuple[str, str],
        status: str,
    ) -> None:
        """Count the answer as the app does, and log it if it was slow."""
        seconds = perf_counter() - self._started
        counter(outcome).inc()
        metrics.request_duration(*route, status).observe(seconds)
        if TRACING.spans is not None:
            TRACING.spans.expose(route, int(status), self._traceparent, seconds)
        if seconds > SLOW_SECONDS:
            names = (self._request_id, self._traceparent)
            note(route[1], path, int(status), seconds, slow=True, names=names)


_READ: Final = ("/v1/tasks/<task_id>", "GET")
_SUBMIT: Final = ("/v1/tasks", "POST")
