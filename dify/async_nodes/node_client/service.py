"""The service's HTTP interface, as far as the tools need it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from node_client.errors import (
    AsyncNodesError,
    AsyncNodesInvalidInput,
    AsyncNodesNotFound,
    AsyncNodesOverloaded,
    AsyncNodesUnauthorized,
    AsyncNodesUnavailable,
)
from node_client.sse import Event, events

PATIENCE = 15.0
"""Seconds for which a call is made again while the service cannot be reached or is overloaded."""

SILENCE = 40.0
"""Seconds: the service says something in every 15, so after these a connection is dead."""

PAGE = 200
"""Tasks that can be read at once."""

# A client costs 20 ms to make, so the process has one; connections are shared by all its calls.
_client = httpx.Client(
    timeout=httpx.Timeout(SILENCE, connect=5.0),
    limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100),
    follow_redirects=False,
)


class Service:
    """Ask one service, with one key.

    Args:
        credentials: ``base_url`` and, where the service wants one, ``api_key``.
        patience: seconds for which what may pass is tried again.

    """

    def __init__(self, credentials: Mapping[str, Any], *, patience: float = PATIENCE) -> None:
        self._base = base_url(str(credentials.get("base_url") or ""))
        key = str(credentials.get("api_key") or "").strip()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._patience = patience

    def nodes(self) -> list[dict[str, Any]]:
        """Return what nodes there are."""
        answer = self._ask("GET", "/v1/nodes").json()
        return answer["nodes"]

    def takes_list(self, node: str, name: str) -> bool:
        """Tell whether an input of a node takes a list."""
        found = self._ask("GET", f"/v1/nodes/{quote(node, safe='')}").json()
        declared = (found["inputs"].get("properties") or {}).get(name) or {}
        options = declared.get("anyOf") or [declared]
        return any(option.get("type") == "array" for option in options)

    def submit(self, request: dict[str, Any], key: str) -> dict[str, Any]:
        """Return the record of a task, new or of an earlier request with the same key."""
        return self._ask("POST", "/v1/tasks", json=request, key=key or uuid.uuid4().hex).json()

    def submit_many(self, requests: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
        """Return the answer to each of some requests, in their order."""
        body = {"tasks": requests}
        answer = self._ask("POST", "/v1/tasks/batch", json=body, key=key or uuid.uuid4().hex)
        return answer.json()["results"]

    def read(self, task_id: str) -> dict[str, Any]:
        """Return a task's record."""
        return self._ask("GET", f"/v1/tasks/{task_id}").json()

    def read_many(self, task_ids: list[str]) -> list[dict[str, Any]]:
        """Return the records of those of some tasks that are there."""
        found: list[dict[str, Any]] = []
        for start in range(0, len(task_ids), PAGE):
            query = {"ids": ",".join(task_ids[start : start + PAGE]), "fields": "full"}
            while True:
                page = self._ask("GET", "/v1/tasks", params=query).json()
                found += page["tasks"]
                if not page.get("next"):
                    break
                query = {**query, "cursor": page["next"]}
        return found

    def cancel(self, task_id: str, *, wait: int = 5) -> dict[str, Any]:
        """Cancel a task; return its record a moment later. One that has ended is left alone."""
        try:
            return self._ask("POST", f"/v1/tasks/{task_id}/cancel?wait={wait}").json()
        except AsyncNodesInvalidInput:  # it has ended meanwhile
            return self.read(task_id)

    def result(self, task_id: str) -> bytes:
        """Return a task's output as JSON."""
        return self._ask("GET", f"/v1/tasks/{task_id}/result").content

    def result_url(self, task_id: str) -> str:
        """Return where the output can be read, with the key."""
        return f"{self._base}/v1/tasks/{task_id}/result"

    def upload(self, content: bytes, name: str, media_type: str) -> str:
        """Keep a file in the service; return its id."""
        headers = {"Content-Type": media_type or "application/octet-stream"}
        answer = self._ask(
            "POST",
            "/v1/files",
            params={"name": name[:255]},
            content=content,
            headers=headers,
            key=uuid.uuid4().hex,
        )
        return answer.json()["file_id"]

    def content(self, file_id: str) -> bytes:
        """Return a file's content."""
        return self._ask("GET", f"/v1/files/{file_id}/content").content

    def events(self, task_id: str, after: str) -> Iterator[Event]:
        """Yield a task's events after a position, for as long as the connection holds."""
        url = f"{self._base}/v1/tasks/{task_id}/events"
        headers = {**self._headers, "Accept": "text/event-stream"}
        params = {"after": after} if after else {}
        try:
            with _client.stream("GET", url, headers=headers, params=params) as answer:
                if answer.status_code == httpx.codes.OK:
                    yield from events(answer.iter_lines())
                elif answer.status_code != httpx.codes.NO_CONTENT:
                    answer.read()
                    raise _error(answer)
        except httpx.HTTPError as error:
            raise AsyncNodesUnavailable(f"the stream of events was cut: {error}") from error

    def _ask(
        self,
        method: str,
        path: str,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> httpx.Response:
        """Return a good answer; what may pass is tried again for a while.

        Every request here may be sent twice: a submit carries a key.
        """
        sent = {**self._headers, **(headers or {}), **({"Idempotency-Key": key} if key else {})}
        until = time.monotonic() + self._patience
        pause = 0.2
        while True:
            try:
                answer = _client.request(method, self._base + path, headers=sent, **request)
                if answer.is_success:
                    return answer
                error = _error(answer)
                wanted = _seconds(answer.headers.get("Retry-After"))
            except httpx.HTTPError as problem:
                error = AsyncNodesUnavailable(f"{self._base} was not reached: {_said(problem)}")
                wanted = None
            passes = isinstance(error, AsyncNodesOverloaded | AsyncNodesUnavailable)
            wait = pause if wanted is None else wanted
            if not passes or time.monotonic() + wait > until:
                raise error
            time.sleep(wait)
            pause = min(pause * 2, 3.0)


def base_url(text: str) -> str:
    """Return the root of a service from what was typed."""
    found = text.strip().rstrip("/").removesuffix("/v1")
    parts = urlsplit(found)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        message = f"the URL of the service must look like http://host:8000, not {text[:100]!r}"
        raise AsyncNodesInvalidInput(message)
    return found


def _error(answer: httpx.Response) -> AsyncNodesError:
    try:
        problem = answer.json()
        code, detail = problem["code"], problem["detail"]
    except (ValueError, KeyError, TypeError):
        code, detail = "", f"the service answered {answer.status_code}: {answer.text[:200]}"
    text = f"{detail} [{code}]" if code else detail
    return _class_of(answer.status_code)(text)


def _class_of(status: int) -> type[AsyncNodesError]:
    if status in (401, 403):
        return AsyncNodesUnauthorized
    if status in (404, 410):
        return AsyncNodesNotFound
    if status in (429, 503):
        return AsyncNodesOverloaded
    server_failed = status >= httpx.codes.INTERNAL_SERVER_ERROR
    return AsyncNodesUnavailable if server_failed else AsyncNodesInvalidInput


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def _said(error: httpx.HTTPError) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        text += ". Inside a container 127.0.0.1 is the container itself"
    return text
