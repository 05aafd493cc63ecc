"""Step 1 and 3: files as a node takes and gives them.

An input annotated with `File` is an id in JSON; in the body it is something to read from, in
pieces, however large. `ctx.files.write` makes a new one, to be returned. Reaches storage only
through the `Files` it was given.
"""

from __future__ import annotations

import io
import mimetypes
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from async_nodes.core.errors import AsyncNodesError, TerminalError
from async_nodes.core.files import (
    CHUNK,
    DEFAULT_NAME,
    DEFAULT_TTL,
    DEFAULT_TYPE,
    MAX_TTL,
    TAG,
    FileInfo,
    Reference,
    base_name,
    media_type_of,
    reference,
)
from async_nodes.core.ids import well_formed

if TYPE_CHECKING:
    from async_nodes.core.files import Files
    from async_nodes.nodes.context import NodeContext
    from async_nodes.nodes.spec import NodeSpec

MAX_FILES: Final = 100
"""Files that one task may take."""

MARGIN: Final = 3_600.0
"""Seconds beyond an attempt's time for which its files are kept."""

_MEMBERS: Final = frozenset(
    {"file_id", "name", "media_type", "size", "sha256", "created_at", "expires_at", "ttl", "links"}
)
SCHEMA: Final[Mapping[str, Any]] = {
    "description": "A file: its id, as POST /v1/files has answered it, or a reference to one.",
    "anyOf": [
        {"type": "string", "pattern": "^f_[0-9A-HJKMNP-TV-Z]{26}$"},
        {
            "type": "object",
            "required": ["file_id"],
            "properties": {name: {} for name in sorted(_MEMBERS)},
            "additionalProperties": False,
        },
    ],
}


class File(Reference):
    """Be a file, given to a node or made by it.

    Attributes:
        file_id: its id.
        name: as its sender calls it; no path.
        media_type: as its sender says.
        size: in bytes.
        sha256: of the content, 64 hex digits.

    """

    __slots__ = ("_files", "_info")

    def __init__(self, info: FileInfo, files: Files | None = None) -> None:
        self._info = info
        self._files = files

    def __repr__(self) -> str:
        return f"File({self._info.file_id!r}, {self._info.name!r}, {self._info.size} bytes)"

    @property
    def file_id(self) -> str:
        """Return its id."""
        return self._info.file_id

    @property
    def name(self) -> str:
        """Return its name."""
        return self._info.name

    @property
    def media_type(self) -> str:
        """Return its media type."""
        return self._info.media_type

    @property
    def size(self) -> int:
        """Return its size in bytes."""
        return self._info.size

    @property
    def sha256(self) -> str:
        """Return the digest of its content."""
        return self._info.sha256

    def open(self) -> io.BufferedReader:
        """Return a binary stream of the content that can seek; it holds 256 KiB at a time.

        Whoever reads from a file, such as `csv` (through `io.TextIOWrapper`) or `zipfile`, reads
        from this one. In an ``async def`` body every read belongs into `asyncio.to_thread`, or
        iterate over the file with ``async for``.

        Raises:
            TerminalError: ``file_gone`` while it is read: the file was deleted.
            StoreUnavailable: while it is read: the store does not answer.

        """
        if self._files is None:
            raise TerminalError("this file can be read inside a node only", code="file_gone")
        return io.BufferedReader(_Raw(self._info, self._files), CHUNK)

    def read(self) -> bytes:
        """Return the whole content: all of it in memory; the errors are those of `open`."""
        with self.open() as stream:
            return stream.read()

    def text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the whole content as text; a byte order mark is no part of it.

        Raises:
            UnicodeDecodeError: it is none in that encoding.

        """
        return self.read().decode(encoding, errors).removeprefix("\ufeff")

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content in pieces of up to 256 KiB."""
        with self.open() as stream:
            while piece := stream.read(CHUNK):
                yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the content in pieces, with every wait in a thread of its own."""
        import asyncio  # here: it brings TLS along, of which declaring nodes has no use

        with self.open() as stream:
            while piece := await asyncio.to_thread(stream.read, CHUNK):
                yield piece

    def bind(self, info: FileInfo, files: Files) -> None:
        """Say what the file is and where it can be read: the node does not see it before."""
        self._info, self._files = info, files

    def reference(self) -> dict[str, Any]:
        """Return what stands for the file in the output of a task."""
        return reference(self)


class _Raw(io.RawIOBase):
    """Read a file chunk by chunk; one is kept, for those who read in small steps."""

    def __init__(self, info: FileInfo, files: Files) -> None:
        super().__init__()
        self._info = info
        self._files = files
        self._at = 0
        self._number = -1
        self._chunk = b""

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the chunk at this place goes."""
        if self._at >= self._info.size:
            return 0
        number, offset = divmod(self._at, CHUNK)
        if number != self._number:
            self._chunk, self._number = self._fetched(number), number
        count = min(len(buffer), len(self._chunk) - offset)
        buffer[:count] = self._chunk[offset : offset + count]
        self._at += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to another place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._info.size}[whence]
        if start + offset < 0:
            raise ValueError("a place before the start of a file")
        self._at = start + offset
        return self._at

    def _fetched(self, number: int) -> bytes:
        try:
            return self._files.chunk(self._info, number)
        except AsyncNodesError as error:
            raise _final(error) from error


class NodeFiles:
    """Give a body its files, and take those that it makes: ``ctx.files``.

    Args:
        files: the tenant's; None where there is no store.
        seconds: how long the attempt may take.

    """

    def __init__(self, files: Files | None = None, *, seconds: float = 0.0) -> None:
        self._files = files
        self._seconds = seconds

    def write(
        self,
        name: str,
        data: bytes | str | Iterable[bytes | str] | IO[bytes],
        *,
        media_type: str = "",
        ttl: float = DEFAULT_TTL,
    ) -> File:
        """Keep a new file and return it, to be given back as (a part of) the output.

        An attempt that is tried again writes another one; what nobody refers to goes after its
        `ttl`. In an ``async def`` body call it in `asyncio.to_thread`.

        Args:
            name: what it is to be called.
            data: the content, text as UTF-8; whatever yields pieces is read as it goes, so a
                large file need never be whole.
            media_type: guessed from the name when empty.
            ttl: seconds to keep it, from when it is written.

        Raises:
            TerminalError: ``invalid_inputs`` for a name, type or ttl that is none,
                ``file_too_large``.
            AsyncNodesError: ``file_storage_full``, to be tried again.
            StoreUnavailable: the store does not answer.

        """
        if not 1 <= ttl <= MAX_TTL:
            message = f"a file is kept for 1 to {MAX_TTL} seconds, not {ttl}"
            raise TerminalError(message, code="invalid_inputs")
        try:
            name = base_name(name or DEFAULT_NAME)
            kind = media_type or mimetypes.guess_type(name)[0] or DEFAULT_TYPE
            kind = media_type_of(kind)
        except ValueError as error:
            raise TerminalError(str(error), code="invalid_inputs") from error
        files = self._there()
        try:
            info = files.write(_pieces(data), name=name, media_type=kind, seconds=ttl)
        except AsyncNodesError as error:
            raise _final(error) from error
        return File(info, files)

    def open(self, file_id: str) -> File:
        """Return a file by its id, where it came as plain text.

        Raises:
            TerminalError: ``file_gone``: there is none.

        """
        file = File(_named(file_id))
        self.load([file])
        return file

    def load(self, found: Sequence[File]) -> None:
        """Look up files that inputs name, and keep them for as long as the attempt may take.

        Raises:
            TerminalError: ``file_gone``.

        """
        files = self._there()
        ids = [file.file_id for file in found]
        known = files.known(ids, seconds=self._seconds + MARGIN)
        for file, info in zip(found, known, strict=True):
            if info is None:
                message = f"the file {file.file_id} was deleted, or it has expired"
                raise TerminalError(message, code="file_gone", file_id=file.file_id)
            file.bind(info, files)

    def _there(self) -> Files:
        if self._files is None:
            raise TerminalError("there is no store for files here", code="file_gone")
        return self._files


def prepared(spec: NodeSpec, inputs: bytes | Mapping[str, Any], ctx: NodeContext) -> dict[str, Any]:
    """Return the keyword arguments of a body, its files ready to be read.

    Raises:
        AsyncNodesError: what `Inputs.validate` and `NodeFiles.load` raise.

    """
    found: list[File] = []
    values = spec.validate(inputs, found)
    if found:
        ctx.files.load(found)
    return values


def reader(
    found: list[File] | None = None, missing: frozenset[str] = frozenset()
) -> Callable[[type, Any], Any]:
    """Return the hook by which msgspec makes files of their JSON.

    Args:
        found: takes those that are made.
        missing: ids that are refused.

    """

    def read(kind: type, value: Any) -> Any:
        if kind is not File:
            message = f"Expected `{kind.__name__}`"
            raise NotImplementedError(message)
        file = File(_named(_id_in(value)))
        if file.file_id in missing:
            message = f"there is no file {file.file_id}: it was deleted, has expired or never was"
            raise ValueError(message)
        if found is not None:
            if len(found) == MAX_FILES:
                message = f"a task may take {MAX_FILES} files"
                raise ValueError(message)
            found.append(file)
        return file

    return read


def schema_of(kind: type) -> dict[str, Any]:
    """Return the JSON schema of a file; the hook by which msgspec asks for it."""
    if kind is File:
        return dict(SCHEMA)
    raise NotImplementedError


def _id_in(value: Any) -> str:
    if isinstance(value, Mapping):
        for name in value:
            if name not in _MEMBERS:
                message = f"a file has no member {str(name)[:100]!r}"
                raise ValueError(message)
        value = value.get("file_id")
    if not isinstance(value, str):
        raise ValueError("Expected the id of a file, or an object with its `file_id`")  # noqa: TRY004 - msgspec's word
    return value


def _named(file_id: str) -> FileInfo:
    if not well_formed(file_id, TAG):
        message = f"{file_id[:40]!r} is not the id of a file"
        raise ValueError(message)
    return FileInfo(file_id, "", "", 0, "")


def _pieces(data: Any) -> Iterator[bytes]:
    """Yield content in pieces, whatever it comes as."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        yield bytes(data)
        return
    for piece in _read(data) if hasattr(data, "read") else data:
        yield piece.encode() if isinstance(piece, str) else bytes(piece)


def _read(stream: Any) -> Iterator[Any]:
    while piece := stream.read(CHUNK):
        yield piece


def _final(error: AsyncNodesError) -> AsyncNodesError:
    """Return an error of the store as one that ends the task, where trying again is of no use."""
    if error.retryable:
        return error
    return TerminalError(error.detail, code=error.code, **error.extra)
