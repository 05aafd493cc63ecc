"""The service's HTTP interface, as far as the tools need it."""

from __future__ import annotations

import hashlib
import json
import math
import re
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

CONNECT = 5.0
SILENCE = 40.0
"""Seconds: the service says something in every 15, so after these a connection is dead."""

PAGE = 200
"""Tasks that can be read at once."""

LAST = 597.0
"""Seconds from its begin in which a call must have said all: Dify's daemon ends it after 600."""

UNKNOWN_CERTIFICATE = "CERTIFICATE_VERIFY_FAILED"
MARKUP = re.compile(r"<(style|script).*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
PLAIN = re.compile(r"[!-~]+", re.ASCII)
KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
"""What a header takes as it is, and the service as an idempotency key."""

# A client costs 20 ms to make, so the process has one; connections are shared by all its calls.
_client = httpx.Client(
    timeout=httpx.Timeout(SILENCE, connect=CONNECT),
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
        if key and not PLAIN.fullmatch(key):
            message = "the API key holds spaces or letters that no key has: copy it anew"
            raise AsyncNodesInvalidInput(message)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._patience = patience
        self._last = time.monotonic() + LAST

    def left(self) -> float:
        """Return the seconds in which this call must have said all; never less than none."""
        return max(0.0, self._last - time.monotonic())

    def nodes(self) -> list[dict[str, Any]]:
        """Return what nodes there are."""
        return _read(self._ask("GET", "/v1/nodes"), "nodes")["nodes"]

    def takes_list(self, node: str, name: str) -> bool:
        """Tell whether an input of a node takes a list."""
        found = _read(self._ask("GET", f"/v1/nodes/{quote(node, safe='')}"), "inputs")
        declared = (found["inputs"].get("properties") or {}).get(name) or {}
        options = declared.get("anyOf") or [declared]
        return any(option.get("type") == "array" for option in options)

    def submit(self, request: dict[str, Any], key: str) -> dict[str, Any]:
        """Return the record of a task, new or of an earlier request with the same key."""
        answer = self._ask("POST", "/v1/tasks", content=_written(request), key=_key(key))
        return _read(answer, "task_id")

    def submit_many(self, requests: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
        """Return the answer to each of some requests, in their order."""
        body = _written({"tasks": requests})
        return _read(self._ask("POST", "/v1/tasks/batch", content=body, key=_key(key)), "results")[
            "results"
        ]

    def read(self, task_id: str) -> dict[str, Any]:
        """Return a task's record."""
        return _read(self._ask("GET", f"/v1/tasks/{task_id}"), "task_id")

    def read_many(self, task_ids: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the records of those of some tasks that are there, and the ids of the others."""
        found: list[dict[str, Any]] = []
        missing: list[str] = []
        for start in range(0, len(task_ids), PAGE):
            left = task_ids[start : start + PAGE]
            while left:
                query = {"ids": ",".join(left), "fields": "full"}
                page = _read(self._ask("GET", "/v1/tasks", params=query), "tasks")
                found += page["tasks"]
                missing += page["missing"]
                left = page["left"]  # what one answer had no room for
        return found, missing

    def cancel(self, task_id: str, wait: int = 5) -> dict[str, Any]:
        """Cancel a task; return its record a moment later. One that has ended is left alone."""
        try:
            answer = self._ask("POST", f"/v1/tasks/{task_id}/cancel?wait={wait}")
            return _read(answer, "task_id")
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
        return _read(answer, "file_id")["file_id"]

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
        if "content" in request:
            sent.setdefault("Content-Type", "application/json")
        until = time.monotonic() + min(self._patience, self.left())
        pause = 0.2
        while True:
            try:
                answer = _client.request(
                    method, self._base + path, headers=sent, timeout=self._times(), **request
                )
                if answer.is_success:
                    return answer
                error = _error(answer)
                wanted = _seconds(answer.headers.get("Retry-After"))
            except httpx.HTTPError as problem:
                error = AsyncNodesUnavailable(f"{self._base} was not reached: {_said(problem)}")
                wanted = 0.0 if _may_pass(problem) else math.inf
            passes = isinstance(error, AsyncNodesOverloaded | AsyncNodesUnavailable)
            wait = max(pause, wanted)
            if not passes or time.monotonic() + wait > until:
                raise error
            time.sleep(wait)
            pause = min(pause * 2, 3.0)

    def _times(self) -> httpx.Timeout:
        """Return how long a request may take: not longer than anybody hears of it."""
        silence = min(SILENCE, max(1.0, self.left()))
        return httpx.Timeout(silence, connect=min(CONNECT, silence))


def base_url(text: str) -> str:
    """Return the root of a service from what was typed."""
    found = text.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(found)
        host, _ = httpx.URL(found).host, parts.port
    except (ValueError, httpx.InvalidURL):
        host = ""
    plain = host and parts.scheme in ("http", "https") and re.search(r"\s", found) is None
    if not plain or parts.query or parts.fragment or parts.username is not None:
        message = f"the URL of the service must look like http://host:8000, not {text[:100]!r}"
        raise AsyncNodesInvalidInput(message)
    return found


def _written(body: dict[str, Any]) -> bytes:
    """Return a request as JSON, or say why its values are none that JSON has."""
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        message = f"the inputs hold {half!r}, half a character, which is no text"
        raise AsyncNodesInvalidInput(message) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise AsyncNodesInvalidInput(f"the inputs are no JSON: {error}") from None


def _key(given: str) -> str:
    """Return an idempotency key; one that a header cannot hold by its digest."""
    if not given:
        return uuid.uuid4().hex
    if KEY.fullmatch(given) and not given.startswith('"'):
        return given
    return "sha256-" + hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()


def _read(answer: httpx.Response, member: str) -> dict[str, Any]:
    """Return what an answer says, which must be what this service says: it has a member."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict) or member not in found:
        message = (
            f"{answer.url.copy_with(query=None)} answers, but not as async_nodes does: is the URL "
            f"of the service right? It said: {answer.text[:100]!r}"
        )
        raise AsyncNodesUnavailable(message)
    return found


def _error(answer: httpx.Response) -> AsyncNodesError:
    try:
        problem = answer.json()
        code, detail = problem["code"], problem["detail"]
    except (ValueError, KeyError, TypeError):
        code, detail = "", f"the service answered {answer.status_code}: {_plain(answer.text)}"
    if answer.is_redirect:
        detail = f"the service moved to {answer.headers['Location'][:200]}: enter the new URL"
    text = f"{detail} [{code}]" if code else detail
    return _class_of(answer.status_code)(text)


def _plain(page: str) -> str:
    """Return the words of an answer that may be a page of a proxy."""
    return " ".join(MARKUP.sub(" ", page[:5000]).split())[:200]


def _class_of(status: int) -> type[AsyncNodesError]:
    if status in (401, 403):
        return AsyncNodesUnauthorized
    if status in (404, 410):
        return AsyncNodesNotFound
    if status in (429, 503):
        return AsyncNodesOverloaded
    server_failed = status >= httpx.codes.INTERNAL_SERVER_ERROR
    return AsyncNodesUnavailable if server_failed else AsyncNodesInvalidInput


def _seconds(text: str | None) -> float:
    """Return the seconds of a ``Retry-After``; 0 where it has none that can be read."""
    return float(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else 0.0


def _may_pass(error: httpx.HTTPError) -> bool:
    """Tell whether a moment later it may be different: a certificate is the same then."""
    return UNKNOWN_CERTIFICATE not in str(error)


def _said(error: httpx.HTTPError) -> str:
    text = str(error) or type(error).__name__
    if UNKNOWN_CERTIFICATE in text:
        return f"{text}. Name its authority in SSL_CERT_FILE for Dify's plugin_daemon"
    if isinstance(error, httpx.ConnectError):
        text += ". Inside a container 127.0.0.1 is the container itself"
    return text
