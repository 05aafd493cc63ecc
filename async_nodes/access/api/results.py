"""Step 5, expose: ``GET …/result``, a task's output alone, whole or in part, however large.

A large output goes out in pieces as it comes from the store: no process holds all of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Final

from flask import Blueprint, Response, request

from async_nodes.access import negotiate
from async_nodes.access.api.answers import (
    JSON,
    ended,
    find,
    headed,
    located,
    missing,
    preferring,
    wait_seconds,
    wait_until,
)
from async_nodes.access.api.ranges import Part, part_for
from async_nodes.access.services import Provider, Services
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import NULL
from async_nodes.core.states import NodeState
from async_nodes.dispatch.again import not_finished
from async_nodes.storage.layout import Document
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.storage.redis_store import RedisStore

PIECE: Final = 512 << 10
"""Bytes of an output that are read from the store at a time."""

log = logging.getLogger(__name__)


def blueprint(provider: Provider) -> Blueprint:
    """Return the route."""
    made = Blueprint("results", __name__)

    @made.get("/v1/tasks/<task_id>/result")
    def read_result(task_id: str) -> Response:
        return read(located(provider, task_id), task_id)

    return made


def read(services: Services, task_id: str) -> Response:
    """Show a task's output: 200, or 206 with the part that was asked for."""
    document = find(services, task_id)
    seconds = wait_seconds()
    if seconds:
        later = wait_until(services, task_id, seconds, until=ended, first=document)
        if later is None:
            missing(services, task_id)
        document = later
    check_result(task_id, document)
    if negotiate.matches(request.headers.get("If-None-Match"), document.etag):
        return preferring(_headed(Response(status=304), document), seconds)
    part = part_for(
        request.method,
        request.headers.get("Range"),
        request.headers.get("If-Range"),
        etag=document.etag,
        size=_size(document),
    )
    return preferring(_headed(_shown(services, task_id, document, part), document), seconds)


def check_result(task_id: str, document: Document) -> None:
    """Refuse to show the output of a task that has none.

    Raises:
        AsyncNodesError: ``task_not_finished``, or ``task_has_no_result`` with the task's ``error``.

    """
    if not document.state.terminal:
        raise not_finished(task_id, document)
    if document.state is not NodeState.SUCCEEDED:
        state = document.state.value
        raise AsyncNodesError(
            "task_has_no_result",
            f"the task ended as {state}",
            task_id=task_id,
            state=state,
            version=document.version,
            error=json.loads(document.json)["error"],
        )


def _headed(response: Response, document: Document) -> Response:
    headed(response, document)
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Vary"] = "Prefer"
    return response


def _shown(services: Services, task_id: str, document: Document, part: Part | None) -> Response:
    size = _size(document)
    wanted = part or Part(0, size - 1)
    if request.method == "HEAD":
        body: Iterator[bytes] = iter(())
    else:
        first = Part(wanted.first, min(wanted.first + PIECE - 1, wanted.last))
        beginning = _piece(services.store, document, first)
        if beginning is None:
            missing(services, task_id)
        body = _pieces(services.store, document, beginning, Part(first.last + 1, wanted.last))
    response = Response(body, status=200 if part is None else 206, content_type=JSON)
    response.headers["Content-Length"] = str(wanted.length)
    if part is not None:
        response.headers["Content-Range"] = part.content_range(size)
    return response


def _size(document: Document) -> int:
    return document.output_bytes or len(NULL)


def _piece(store: RedisStore, document: Document, part: Part) -> bytes | None:
    """Return a part of an output; of the output null the store keeps nothing."""
    if not document.output_bytes:
        return NULL[part.first : part.last + 1]
    return store.output(document, *part)


def _pieces(store: RedisStore, document: Document, beginning: bytes, rest: Part) -> Iterator[bytes]:
    """Yield an output, piece by piece.

    Raises:
        ConnectionError: the rest cannot be read. The head has promised it: the client has to see
            that the body is cut.

    """
    yield beginning
    for first in range(rest.first, rest.last + 1, PIECE):
        last = min(first + PIECE - 1, rest.last)
        try:
            piece = _piece(store, document, Part(first, last))
        except StoreUnavailable:
            piece = None
        if piece is None or len(piece) != last - first + 1:
            log.warning("A result was cut", extra={"action": "result_cut"})
            raise ConnectionError("the rest of the output cannot be read")
        yield piece
