"""The product's HTTP interface as a test uses it: the standard library, and nothing of ours."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from tests.event_stream import Parser, ServerEvent

TERMINAL = frozenset({"Succeeded", "Failed", "Cancelled"})
JSON = "application/json"


@dataclass(frozen=True)
class Reply:
    """Hold one answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    @property
    def is_problem(self) -> bool:
        """Tell whether this is a problem document whose status is the answer's."""
        kind = self.headers.get("content-type", "")
        return kind.startswith("application/problem+json") and self.json["status"] == self.status


class NotEnded(AssertionError):
    """Report a task that has not ended in time."""


class WebClient:
    """Speak HTTP to one address, one kept-alive connection per thread.

    Args:
        port: on 127.0.0.1.
        prefix: what every path begins with.

    Attributes:
        key: sent with every request when it is not empty.

    """

    def __init__(self, port: int, *, prefix: str = "") -> None:
        self.port = port
        self.prefix = prefix
        self.key = ""
        self._local = threading.local()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = 35.0,
    ) -> Reply:
        """Return the answer to one request; a connection that was cut before is made anew.

        Raises:
            OSError: nobody listens, or the answer was cut off.

        """
        fresh = not hasattr(self._local, "connection")
        connection = self._connection(timeout)
        try:
            return self._exchange(connection, method, path, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            # Only a kept connection may have been closed between two requests.
            if fresh or not isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                raise _as_os_error(error) from error
        try:
            return self._exchange(self._connection(timeout), method, path, body, headers)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise _as_os_error(error) from error

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> Reply:
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        connection.request(method, self.prefix + path, body, {**key, **(headers or {})})
        answer = connection.getresponse()
        raw = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, found, raw)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if not hasattr(self._local, "connection"):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._local.connection = connection
        made: http.client.HTTPConnection = self._local.connection
        made.timeout = timeout
        if made.sock is not None:
            made.sock.settimeout(timeout)
        return made

    def close(self) -> None:
        """Close this thread's connection."""
        if hasattr(self._local, "connection"):
            self._local.connection.close()
            del self._local.connection

    def connect(self, timeout: float = 20.0) -> http.client.HTTPConnection:
        """Return a connection of one's own."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    # -- tasks -------------------------------------------------------------------------------

    def post(
        self,
        node: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 35.0,
        **fields: Any,
    ) -> Reply:
        """Return the answer to a submit."""
        body = json.dumps({"node": node, "inputs": dict(inputs or {}), **fields}).encode()
        sent = {"Content-Type": JSON, **(headers or {})}
        return self.request("POST", "/v1/tasks", body, sent, timeout=timeout)

    def submit(self, node: str, inputs: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Return the id of an accepted task."""
        reply = self.post(node, inputs, **fields)
        assert reply.status == 202, (reply.status, reply.body)
        task_id: str = reply.json["task_id"]
        return task_id

    def get(self, task_id: str) -> dict[str, Any]:
        """Return a task's record."""
        reply = self.request("GET", f"/v1/tasks/{task_id}")
        assert reply.status == 200, (reply.status, reply.body)
        record: dict[str, Any] = reply.json
        return record

    def cancel(self, task_id: str, *, wait: float = 0) -> Reply:
        """Return the answer to a cancel."""
        return self.request(
            "POST", f"/v1/tasks/{task_id}/cancel" + (f"?wait={wait:g}" * (wait > 0))
        )

    def wait(self, task_id: str, seconds: float = 15.0) -> dict[str, Any]:
        """Return the record of a task that has ended, seen through every kind of outage.

        Raises:
            NotEnded: it has not, within so many seconds.

        """
        return self.wait_until(task_id, lambda record: record["state"] in TERMINAL, seconds)

    def wait_until(self, task_id: str, test: Any, seconds: float = 15.0) -> dict[str, Any]:
        """Return the first record that passes a test."""
        until = time.monotonic() + seconds
        seen: object = None
        while time.monotonic() < until:
            try:
                reply = self.request("GET", f"/v1/tasks/{task_id}", timeout=5.0)
                seen = reply.json
                if reply.status == 200 and test(seen):
                    record: dict[str, Any] = reply.json
                    return record
            except OSError as error:
                seen = error
            time.sleep(0.02)
        message = f"{task_id} after {seconds} s: {seen}"
        raise NotEnded(message)

    def wait_running(self, task_id: str, seconds: float = 10.0) -> dict[str, Any]:
        """Return the record of a task that runs."""
        return self.wait_until(task_id, lambda record: record["state"] == "Running", seconds)

    def events(
        self, task_id: str, *, after: str | None = None, query: str = "", timeout: float = 20.0
    ) -> EventFeed:
        """Open the stream of a task's events."""
        path = f"{self.prefix}/v1/tasks/{task_id}/events{query}"
        return EventFeed(self.port, path, after=after, timeout=timeout)


class EventFeed:
    """Read one event stream; iterate over its events, close it when done.

    Attributes:
        status: of the answer.
        headers: of the answer, names in lower case.
        parser: what read the stream.

    """

    def __init__(self, port: int, path: str, *, after: str | None, timeout: float) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = after
        self._connection.request("GET", path, headers=headers)
        self._answer = self._connection.getresponse()
        self.socket = self._connection.sock
        self.status = self._answer.status
        self.headers = {name.lower(): value for name, value in self._answer.getheaders()}
        self.parser = Parser()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServerEvent]:
        while block := self._answer.read1(65536):
            yield from self.parser.feed(block)

    def until(self, kind: str) -> list[ServerEvent]:
        """Return the events up to the first of a kind."""
        found = []
        for event in self:
            found.append(event)
            if event.type == kind:
                return found
        message = f"the stream ended without {kind}: {found}"
        raise AssertionError(message)

    def body(self) -> bytes:
        """Return the rest of the answer."""
        return self._answer.read()

    def close(self) -> None:
        """Leave."""
        self._answer.close()
        self._connection.close()


def _as_os_error(error: BaseException) -> OSError:
    return error if isinstance(error, OSError) else ConnectionError(repr(error))
