"""Carry files to a server of ours and back, in pieces, with a bar for those who wait."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from async_nodes.cli.failures import Failure
from async_nodes.cli.inputs import Upload
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import clip, pad, printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from async_nodes.cli.console import Console
    from async_nodes.cli.http import Client
    from async_nodes.cli.terminal import Terminal

PIECE = 256 << 10
SHOWN_AFTER = 0.5
"""Seconds after which a transfer shows a bar: a short one is over before it could be read."""

SHOWN_EVERY = 0.1
_BAR, _NAME = 24, 24


def path_of(file_id: str = "", rest: str = "") -> str:
    """Return the path of a file, or of all."""
    return f"/v1/files/{quote(file_id, safe='')}{rest}" if file_id else "/v1/files"


def upload(
    client: Client,
    path: Path,
    console: Console,
    *,
    name: str | None = None,
    media_type: str = "",
    ttl: int | None = None,
    hint: str = "",
) -> dict[str, Any]:
    """Upload a file and return what the server tells of it.

    Args:
        client: of the server.
        path: the file.
        console: where the bar is drawn.
        name: what it is to be called; its own name when omitted.
        media_type: guessed by the server from the name when empty.
        ttl: seconds to keep it; the server's default when omitted.
        hint: what to do about a file that cannot be read.

    Raises:
        Failure: the file cannot be read.
        AsyncNodesError: the server's problem.

    """
    query = {"name": name or path.name} | ({} if ttl is None else {"ttl": str(ttl)})
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            headers = {"Content-Length": str(size), "Idempotency-Key": uuid.uuid4().hex}
            if media_type:
                headers["Content-Type"] = media_type
            pieces = Bar(console, path.name, size).over(_pieces(file, size))
            target = f"{path_of()}?{urlencode(query)}"
            info: dict[str, Any] = client.upload(target, pieces, headers).document
    except OSError as error:
        detail = tr(f"{path} cannot be read: {error.strerror}", f"无法读取 {path}:{error.strerror}")
        raise Failure(detail, hint) from error
    return info


def with_files(client: Client, inputs: dict[str, Any], console: Console) -> dict[str, Any]:
    """Return inputs with the files that they name uploaded, and named by their ids.

    Raises what `upload` raises.
    """
    hint = tr(
        "For a text that begins with @ write key:='\"@…\"'.",
        "以 @ 开头的文本请写成 键:='\"@…\"'。",
    )
    return {
        name: upload(client, value.path, console, hint=hint)["file_id"]
        if isinstance(value, Upload)
        else value
        for name, value in inputs.items()
    }


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield as many bytes as were promised, whoever writes to the file meanwhile."""
    left = size
    while left and (piece := file.read(min(PIECE, left))):
        left -= len(piece)
        yield piece


def download(client: Client, info: dict[str, Any], target: BinaryIO, console: Console) -> None:
    """Write a file's content to a stream.

    Args:
        client: of the server.
        info: what it tells of the file.
        target: takes the bytes.
        console: where the bar is drawn.

    Raises:
        Failure: what arrived is not what was uploaded.
        AsyncNodesError: the server's problem, or ``egress_failed`` when the content is cut.

    """
    digest = hashlib.sha256()
    pieces = client.pieces(path_of(info["file_id"], "/content"))
    for piece in Bar(console, info["name"], info["size"]).over(pieces):
        digest.update(piece)
        target.write(piece)
    if digest.hexdigest() != info["sha256"]:
        raise Failure(
            tr(f"{info['name']} arrived damaged", f"{info['name']} 内容校验不一致"),
            tr("Try again.", "请重试。"),
        )


class Bar:
    """Show how far a transfer is, once it takes long enough.

    Args:
        console: where.
        name: of what is transferred.
        size: in bytes.

    """

    def __init__(self, console: Console, name: str, size: int) -> None:
        self._console = console
        self._name = printable(name)
        self._size = size

    def over(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield pieces, and draw beside that."""
        done, drawn = 0, time.monotonic() - SHOWN_EVERY + SHOWN_AFTER
        live = self._console.terminal.live
        try:
            for piece in pieces:
                yield piece
                done += len(piece)
                now = time.monotonic()
                if live and now - drawn >= SHOWN_EVERY:
                    drawn = now
                    self._console.status(bar(self._name, done, self._size, self._console.terminal))
        finally:
            self._console.status("")


def bar(name: str, done: int, size: int, terminal: Terminal) -> str:
    """Return the line of a transfer: name, bar, figures."""
    full, empty = ("━", "─") if terminal.unicode else ("#", ".")
    filled = _BAR * done // size if size else _BAR
    figures = f"{done / 1e6:.1f} / {size / 1e6:.1f} MB"
    return terminal.line(
        [
            (pad(clip(name, _NAME), _NAME) + "  ", ""),
            (full * filled, "cyan"),
            (empty * (_BAR - filled), "dim"),
            (f"  {figures}", ""),
        ]
    )
