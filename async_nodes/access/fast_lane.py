"""Step 5, expose: the fast lane. The two requests that a server is full of, answered from bytes.

Reads of a record and submits of a task, ordinary and complete, get the very bytes that the app
would have given them: 200, 304 or 202. It never reports a fault: whatever it does not know is left
untouched for the app, and what fails halfway is handed over to it (see `lane_handover`). A test
holds lane and app to the same bytes.
"""

from __future__ import annotations

import os
import re
from time import perf_counter
from typing import Final

from async_nodes.access import negotiate
from async_nodes.access.answers import JSON, RETRY_AFTER, REVALIDATE
from async_nodes.access.app import SLOW_SECONDS, note
from async_nodes.access.guard import Guard
from async_nodes.access.http import Answer
from async_nodes.access.lane_handover import Handover
from async_nodes.access.lane_head import Head, Heads
from async_nodes.access.lane_reader import Reader
from async_nodes.access.services import Provider, Services
from async_nodes.dispatch.submit import links_of
from async_nodes.settings import Settings
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.telemetry import metrics

_REQUEST = re.compile(
    rb"(?:GET /v1/tasks/(t_[0-9A-HJKMNP-TV-Z]{26})|POST /v1/tasks) HTTP/1\.1\r\n"
    rb"((?:[!-~][ -~]*+\r\n)++)\r\n"
)

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
        settings: the key, or none.
        provider: gives the services, or raises ``store_unavailable``.

    """

    def __init__(self, settings: Settings, provider: Provider) -> None:
        self._heads = Heads(Guard(settings))
        self._provider = provider

    def __call__(self, reader: Reader) -> Answer | Handover | None:
        """Answer the request that waits in a reader, and take it from there.

        Returns:
            The answer; or, with nothing taken, None for the app to serve the request, or what the
            app has to report.

        """
        found = _REQUEST.match(reader.peek())
        if found is None:
            return None
        started = perf_counter()
        task_id, lines = found.groups()
        head = self._heads.of_read(lines) if task_id else self._heads.of_submit(lines)
        if head is None:
            return None
        try:
            services = self._provider()
        except StoreUnavailable:
            return None
        request = _Request(head, reader, found.end(), started)
        if task_id:
            return request.read(services, task_id.decode("ascii"))
        return request.submit(services)


class _Request:
    """Hold one ordinary request on its way through."""

    __slots__ = ("_head", "_reader", "_request_id", "_size", "_started", "_traceparent")

    def __init__(self, head: Head, reader: Reader, size: int, started: float) -> None:
        self._head = head
        self._reader = reader
        self._size = size
        self._started = started
        made = os.urandom(32).hex()
        self._request_id = head.request_id or made[:16]
        self._traceparent = head.traceparent or f"00-{made[16:48]}-{made[48:]}-00"

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
        counter: metrics.Children,
        outcome: str,
        route: tuple[str, str],
        status: str,
    ) -> None:
        """Count the answer as the app does, and log it if it was slow."""
        seconds = perf_counter() - self._started
        counter(outcome).inc()
        metrics.request_duration(*route, status).observe(seconds)
        if seconds > SLOW_SECONDS:
            names = (self._request_id, self._traceparent)
            note(route[1], path, int(status), seconds, slow=True, names=names)


_READ: Final = ("/v1/tasks/<task_id>", "GET")
_SUBMIT: Final = ("/v1/tasks", "POST")
