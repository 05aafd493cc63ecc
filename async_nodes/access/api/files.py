"""Step 5, expose: the routes of files. Upload, describe, download, delete, list.

A file goes through this process in pieces, both ways. What somebody has uploaded is never shown as
a page of ours: it is sent as an attachment, in a sandbox, under the type that its sender gave.
"""

from __future__ import annotations

import logging
import mimetypes
import re
import threading
from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final
from urllib.parse import quote

from flask import Blueprint, Response, g, request
from werkzeug.http import http_date, parse_options_header

from async_nodes.access import negotiate
from async_nodes.access.api import query
from async_nodes.access.api.answers import idempotency_key, in_json
from async_nodes.access.api.multipart import FRAMING, Form
from async_nodes.access.api.ranges import Part, part_for
from async_nodes.access.lane import arrival
from async_nodes.access.services import Provider, Services
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.files import (
    CHUNK,
    DEFAULT_NAME,
    DEFAULT_TTL,
    DEFAULT_TYPE,
    MAX_TTL,
    TAG,
    FileInfo,
    FileLimits,
    base_name,
    gone,
    media_type_of,
)
from async_nodes.core.ids import made_at, well_formed
from async_nodes.dispatch.submit import digest_of_key
from async_nodes.storage.files import About, Files, Kept
from async_nodes.storage.redis_errors import StoreUnavailable

FORM: Final = "multipart/form-data"
UNTOLD: Final = frozenset({"", "application/x-www-form-urlencoded"})
"""Content types that say nothing about a file: programs send the second when nobody chose one."""

FIELDS: Final = ("name", "ttl")
GONE_MS: Final = (MAX_TTL + 86_400) * 1000
"""How long after its making an id without a file is known as that of one that was."""

MOST_UPLOADS: Final = 200
"""Files that may arrive at once in a process: each holds half a MiB."""

MOST: Final = 200
USUAL: Final = 50
POLICY: Final = "default-src 'none'; sandbox"
_TTL: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_PLAIN: Final = re.compile(r"[^A-Za-z0-9 !#$&+.^_`~()\[\]{}=@,-]", re.ASCII)

log = logging.getLogger(__name__)


def blueprint(provider: Provider, limits: FileLimits) -> Blueprint:
    """Return the routes under ``/v1/files``."""
    made = Blueprint("files", __name__)
    places = Places(MOST_UPLOADS)

    def files() -> Files:
        services = provider()
        return Files(services.store, g.tenant, limits, ids=services.ids.tagged(TAG))

    @made.post("/v1/files")
    def upload_file() -> Response:
        query.refuse_unknown(FIELDS)
        with places:
            return upload(files())

    @made.get("/v1/files")
    def list_files() -> Response:
        query.refuse_unknown(("limit", "cursor"))
        return listed(files())

    @made.get("/v1/files/<file_id>")
    def show_file(file_id: str) -> Response:
        return in_json(described(find(files(), provider(), file_id)))

    @made.get("/v1/files/<file_id>/content")
    def download_file(file_id: str) -> Response:
        there = files()
        return download(there, find(there, provider(), file_id))

    @made.delete("/v1/files/<file_id>")
    def delete_file(file_id: str) -> Response:
        there = files()
        if not well_formed(file_id, TAG) or not there.delete(file_id):
            raise missing(provider(), file_id)
        return Response(status=204)

    return made


class Places:
    """Let only so many requests be within the block at once.

    Args:
        most: how many.

    """

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)

    def __enter__(self) -> None:
        """Take a place.

        Raises:
            AsyncNodesError: ``store_busy``: there is none.

        """
        if not self._free.acquire(blocking=False):
            detail = "this process takes no further file while so many arrive"
            raise AsyncNodesError("store_busy", detail, retry_after=1.0)

    def __exit__(self, *_: object) -> None:
        """Give the place back."""
        self._free.release()


def find(files: Files, services: Services, file_id: str) -> FileInfo:
    """Return a file of the request's tenant.

    Raises:
        AsyncNodesError: ``file_not_found``, or ``file_gone`` for an id of ours without a file.

    """
    info = files.find(file_id) if well_formed(file_id, TAG) else None
    if info is None:
        raise missing(services, file_id)
    return info


def missing(services: Services, file_id: str) -> AsyncNodesError:
    """Return what has to be said of an id without a file."""
    if not well_formed(file_id, TAG):
        return AsyncNodesError("file_not_found", "this is not a file's id")
    now_ms = services.clock() * 1000
    if services.ids.tagged(TAG).issued(file_id) and now_ms < made_at(file_id) + GONE_MS:
        return gone(file_id)
    return AsyncNodesError("file_not_found")


def described(info: FileInfo) -> dict[str, Any]:
    """Return a file as the interface shows it."""
    address = f"{g.get('base', '')}/v1/files/{info.file_id}"
    return {**info.to_json(), "links": {"self": address, "content": f"{address}/content"}}


# -- upload ----------------------------------------------------------------------------------------


def upload(files: Files) -> Response:
    """Take a file from the body, or from the one form field in it: 201."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise AsyncNodesError("bad_request", "send the file as it is, without Content-Encoding")
    content_type = (request.content_type or "").strip()
    is_form = content_type.lower().startswith(FORM)
    key = idempotency_key()
    files.check_room(_told_length(is_form))
    told = {name: request.headers.get(name, "") for name in arrival.DIGESTS}
    body = arrival.Digests(told).passed(arrival.pieces(request.environ))
    started = perf_counter()
    try:
        if is_form:
            kept = _from_form(files, Form(content_type, FIELDS), body, key)
        else:
            kept = _from_body(files, content_type, body, key)
    finally:
        g.waited = perf_counter() - started  # for the client, whose line it is
    response = in_json(described(kept.info), 201)
    response.headers["Location"] = f"{g.get('base', '')}/v1/files/{kept.info.file_id}"
    if kept.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return response


def _told_length(is_form: bool) -> int:  # noqa: FBT001 - one thing to know
    """Return the least size of the file that the head's Content-Length means."""
    length = request.content_length or 0
    return max(length - FRAMING, 0) if is_form else length


def _from_body(files: Files, content_type: str, body: Iterator[bytes], key: str) -> Kept:
    disposition = request.headers.get("Content-Disposition", "")
    named = parse_options_header(disposition)[1].get("filename", "") if disposition else ""
    about = _about(named, content_type, request.args.to_dict(), key)
    with files.receive() as arriving:
        for piece in body:
            arriving.write(piece)
        return arriving.commit(about)


def _from_form(files: Files, form: Form, body: Iterator[bytes], key: str) -> Kept:
    """Take the form's file; its fields may come behind it, and the query goes before them."""
    _about("", "", request.args.to_dict(), key)  # a wrong query is told before the upload
    with files.receive() as arriving:
        form.read(body, arriving.write)
        _about("", "", form.values, key)  # also what the query goes before
        given = {**form.values, **request.args.to_dict()}
        return arriving.commit(_about(form.name, form.media_type, given, key))


def _about(named: str, content_type: str, given: dict[str, str], key: str) -> About:
    """Return how a file is to be kept.

    Args:
        named: the name that its head gives.
        content_type: that of its head.
        given: what was asked for by name: ``name``, ``ttl``.
        key: the client's name for the request.

    Raises:
        AsyncNodesError: ``invalid_request``.

    """
    try:
        name = base_name(given.get("name") or named or DEFAULT_NAME)
    except ValueError as error:
        raise AsyncNodesError("invalid_request", str(error), pointer="/name") from error
    try:
        media_type = media_type_of(content_type) if content_type.lower() not in UNTOLD else ""
    except ValueError as error:
        raise AsyncNodesError("invalid_request", str(error), pointer="/content_type") from error
    ttl = given.get("ttl", str(DEFAULT_TTL))
    if not _TTL.fullmatch(ttl) or not 1 <= int(ttl) <= MAX_TTL:
        detail = f"ttl must be a whole number of seconds from 1 to {MAX_TTL}"
        raise AsyncNodesError("invalid_request", detail, pointer="/ttl")
    return About(
        name=name,
        media_type=media_type or mimetypes.guess_type(name)[0] or DEFAULT_TYPE,
        ttl_ms=int(ttl) * 1000,
        idempotency=digest_of_key(g.tenant, f"file\0{key}") if key else "",
    )


# -- download --------------------------------------------------------------------------------------


def download(files: Files, info: FileInfo) -> Response:
    """Send a file's content: 200, 206 with a part of it, or 304."""
    etag = f'"{info.sha256}"'
    if negotiate.matches(request.headers.get("If-None-Match"), etag):
        return _headed(Response(status=304), info, etag)
    part = part_for(
        request.method,
        request.headers.get("Range"),
        request.headers.get("If-Range"),
        etag=etag,
        size=info.size,
    )
    wanted = part or Part(0, info.size - 1)
    body: Iterator[bytes] = iter(())
    if request.method != "HEAD" and wanted.length:
        # The first chunk before the head goes out: whether it is there can still be told.
        first = files.chunk(info, wanted.first // CHUNK)
        body = _content(files, info, wanted, first)
    response = Response(body, status=200 if part is None else 206, content_type=info.media_type)
    response.headers["Content-Length"] = str(wanted.length)
    if part is not None:
        response.headers["Content-Range"] = part.content_range(info.size)
    return _headed(response, info, etag)


def _headed(response: Response, info: FileInfo, etag: str) -> Response:
    headers = response.headers
    headers["ETag"] = etag
    headers["Last-Modified"] = http_date(info.created_ms / 1000)
    headers["Accept-Ranges"] = "bytes"
    headers["Cache-Control"] = "private, no-cache"
    headers["Content-Disposition"] = disposition(info.name)
    headers["Content-Security-Policy"] = POLICY
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


def disposition(name: str) -> str:
    """Return ``Content-Disposition`` for a download (RFC 6266): plain, and exact in UTF-8."""
    plain = _PLAIN.sub("_", name)
    exact = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'attachment; filename="{plain}"{exact}'


def _content(files: Files, info: FileInfo, wanted: Part, first: bytes) -> Iterator[bytes]:
    """Yield a run of a file's bytes.

    Raises:
        ConnectionError: the rest cannot be read. The head has promised it: the client has to see
            that the body is cut.

    """
    number, last = wanted.first // CHUNK, wanted.last // CHUNK
    chunk = first
    while True:
        start = number * CHUNK
        yield chunk[max(wanted.first - start, 0) : wanted.last + 1 - start]
        if number == last:
            return
        number += 1
        try:
            chunk = files.chunk(info, number)
        except (AsyncNodesError, StoreUnavailable) as error:
            log.warning("A download was cut: %s", error, extra={"action": "download_cut"})
            raise ConnectionError("the rest of the file cannot be read") from error


# -- list ------------------------------------------------------------------------------------------


def listed(files: Files) -> Response:
    """Show the tenant's files, the youngest first."""
    most = query.number("limit", least=1, most=MOST, default=USUAL)
    cursor = query.text("cursor", longest=64) or ""
    if cursor and not well_formed(cursor, TAG):
        query.refuse("cursor", "cursor is not one that a list has answered")
    page = files.page(after=cursor, most=most)
    return in_json(
        {
            "files": [described(info) for info in page.files],
            "next": page.next,
            "used_bytes": page.used,
            "max_bytes": files.limits.all,
        }
    )
