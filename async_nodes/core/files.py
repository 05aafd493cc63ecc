"""Files beside the tasks: what is told of one, how it is named, and who gives its bytes.

Pure: the names, types and limits that the way in and the bodies share. A file is immutable; its id
is that of its content for ever, and a task's inputs and outputs refer to it by that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError

TAG: Final = "f"
"""What the ids of files begin with."""

CHUNK: Final = 256 << 10
"""Bytes of a file that are kept, sent and read at a time."""

MAX_TTL: Final = 30 * 86_400
DEFAULT_TTL: Final = 86_400
MAX_NAME: Final = 255
DEFAULT_TYPE: Final = "application/octet-stream"
DEFAULT_NAME: Final = "file"

_TYPE: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
    r"(?:\s*;\s*[A-Za-z0-9!#$&^_.+-]+=(?:[A-Za-z0-9!#$&^_.+-]+|\"[ !#-~]*\"))*",
    re.ASCII,
)
_MAX_TYPE: Final = 255


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Bound what files may take, in bytes.

    Attributes:
        one: of one file.
        all: of all files of a tenant.

    """

    one: int = 64 << 20
    all: int = 1 << 30


@dataclass(frozen=True, slots=True)
class FileInfo:
    """Tell what a stored file is.

    Attributes:
        file_id: ``f_`` and 26 characters.
        name: as its sender calls it; no path.
        media_type: as its sender says; nobody has checked it against the content.
        size: in bytes.
        sha256: of the content, 64 hex digits.
        created_ms, expires_ms: milliseconds since 1970.
        ttl_ms: how long its sender wanted it kept; tasks that take it have it kept for longer.

    """

    file_id: str
    name: str
    media_type: str
    size: int
    sha256: str
    created_ms: int = 0
    expires_ms: int = 0
    ttl_ms: int = 0

    @property
    def chunks(self) -> int:
        """Return how many chunks the content has."""
        return -(-self.size // CHUNK)

    def length_of(self, number: int) -> int:
        """Return how many bytes a chunk has."""
        return max(min(CHUNK, self.size - number * CHUNK), 0)

    def to_json(self) -> dict[str, Any]:
        """Return what the interface shows."""
        return {
            **reference(self),
            "created_at": iso(self.created_ms),
            "expires_at": iso(self.expires_ms),
            "ttl": self.ttl_ms / 1000 if self.ttl_ms % 1000 else self.ttl_ms // 1000,
        }


class Reference:
    """Stand for a file in a node's inputs and output; see `nodes.files.File`."""

    __slots__ = ()

    def reference(self) -> dict[str, Any]:
        """Return what stands for the file in JSON."""
        raise NotImplementedError


def reference(file: Any) -> dict[str, Any]:
    """Return the members by which a record refers to a file, and which an input takes."""
    return {
        "file_id": file.file_id,
        "name": file.name,
        "media_type": file.media_type,
        "size": file.size,
        "sha256": file.sha256,
    }


class Files(Protocol):
    """A tenant's files, as the body of a node needs them. Safe to call from any thread."""

    def known(self, ids: Sequence[str], *, seconds: float) -> list[FileInfo | None]:
        """Return what the files are, each kept for at least so many seconds from now."""

    def chunk(self, info: FileInfo, number: int) -> bytes:
        """Return a chunk of a file, whole.

        Raises:
            AsyncNodesError: ``file_gone``.

        """

    def write(
        self, pieces: Iterable[bytes], *, name: str, media_type: str, seconds: float
    ) -> FileInfo:
        """Keep a new file.

        Raises:
            AsyncNodesError: ``file_too_large`` or ``file_storage_full``.

        """


def base_name(text: str) -> str:
    r"""Return a file's name without the folders that some programs send along.

    Raises:
        ValueError: what is left is no name.

    """
    name = re.split(r"[/\\]", text.strip())[-1].strip()
    if not name or name.strip(".") == "":
        raise ValueError("a file's name may not be empty or dots only")
    if len(name) > MAX_NAME:
        message = f"a file's name may have {MAX_NAME} characters, not {len(name)}"
        raise ValueError(message)
    if not name.isprintable():
        raise ValueError("a file's name may not hold control characters")
    return name


def media_type_of(text: str) -> str:
    """Return a media type as it is to be shown.

    Raises:
        ValueError: it is none.

    """
    found = text.strip()
    if len(found) > _MAX_TYPE or not _TYPE.fullmatch(found):
        message = f"{found[:100]!r} is no media type such as application/pdf"
        raise ValueError(message)
    return found


def gone(file_id: str) -> AsyncNodesError:
    """Return the error for a file that was there."""
    detail = f"the file {file_id} was deleted, or it has expired"
    return AsyncNodesError("file_gone", detail, file_id=file_id)
