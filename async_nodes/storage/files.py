"""Step 4, store: a tenant's files, in chunks. No process ever holds a whole one.

A file arrives chunk by chunk and becomes one at its commit; what breaks off in between goes by
itself. Its chunks are a hash of their own, so that reading, keeping and deleting it are each one
key's matter.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.files import (
    CHUNK,
    DEFAULT_NAME,
    DEFAULT_TTL,
    DEFAULT_TYPE,
    TAG,
    FileInfo,
    FileLimits,
    gone,
)
from async_nodes.storage.redis_errors import StoreFull, StoreUnavailable
from async_nodes.storage.retention import Retention

if TYPE_CHECKING:
    from async_nodes.core.ids import IdSource
    from async_nodes.storage.redis_store import RedisStore

GRACE_MS: Final = 120_000
"""How long after a chunk the next one may come, and what has arrived is kept without it."""

MOST_PRESSURE: Final = 0.80
"""Share of the server's memory beyond which no further file is taken: the rest is for tasks."""

SECONDS: Final = 5.0
PAUSE: Final = 0.1
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Say what a file is to be called and how long it is kept.

    Attributes:
        idempotency: 32 hex digits that stand for the sender's key, empty without one.

    """

    name: str = DEFAULT_NAME
    media_type: str = DEFAULT_TYPE
    ttl_ms: int = DEFAULT_TTL * 1000
    idempotency: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Hold some of a tenant's files, the youngest first.

    Attributes:
        used: bytes that all of them take, arriving ones included.
        next: the id to go on after, None when there are no more.

    """

    files: tuple[FileInfo, ...]
    used: int
    next: str | None


class Files:
    """Keep one tenant's files.

    Args:
        store: where.
        tenant: whose.
        limits: how much.
        patience: seconds for which a read is tried while the store is away.
        ids: makes ids; asked of the store when first needed otherwise.

    """

    def __init__(
        self,
        store: RedisStore,
        tenant: str,
        limits: FileLimits,
        *,
        patience: float = 0.0,
        ids: IdSource | None = None,
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._patience = patience
        self._ids = ids
        self.limits = limits

    def find(self, file_id: str) -> FileInfo | None:
        """Return what a file is, None for none of the tenant's."""
        (found,) = self.known([file_id])
        return found

    def known(self, ids: Sequence[str], *, seconds: float = 0.0) -> list[FileInfo | None]:
        """Return what files are, each kept for at least so many seconds from now."""
        if not ids:
            return []
        life = max(int(seconds * 1000), 0)
        found = self._tried(lambda: self._store.run("file_keep", self._tenant, life, *ids))
        return [_info(file_id, row) for file_id, row in zip(ids, found, strict=True)]

    def chunk(self, info: FileInfo, number: int) -> bytes:
        """Return a chunk of a file, whole.

        Raises:
            AsyncNodesError: ``file_gone``.
            StoreUnavailable: the store does not answer.

        """
        key = self._store.keys.parts(self._tenant, info.file_id)
        found = self._tried(lambda: self._store.link.call("HGET", key, number, timeout=SECONDS))
        if not isinstance(found, bytes) or len(found) != info.length_of(number):
            raise gone(info.file_id)
        return found

    def page(self, *, after: str = "", most: int = 50) -> Page:
        """Return files, the youngest first, from behind the one of an id."""
        used, more, *rows = self._store.run("file_list", self._tenant, after, most)
        ids = [file_id.decode() for file_id in rows[::2]]
        files = [_info(file_id, row) for file_id, row in zip(ids, rows[1::2], strict=True)]
        shown = tuple(info for info in files if info is not None)
        return Page(shown, int(used), ids[-1] if more and ids else None)

    def delete(self, file_id: str) -> bool:
        """Remove a file; tell whether it was there."""
        verdict = self._store.row("file_delete", (self._tenant, file_id))
        return bool(verdict[0] == b"deleted")

    def drop(self, file_id: str) -> None:
        """Remove what has arrived of a file that will not be one, if the store answers at once.

        Otherwise it goes by itself, `GRACE_MS` after its last chunk.
        """
        with contextlib.suppress(StoreUnavailable):
            self._store.run("file_delete", self._tenant, file_id)

    def check_room(self, size: int = 0) -> None:
        """Refuse a file that cannot be kept, before it is sent.

        Args:
            size: in bytes, as far as it is known.

        Raises:
            AsyncNodesError: ``file_too_large``, ``file_storage_full``.
            StoreFull: the server's memory is needed for tasks.

        """
        self.check_size(size)
        used = self._used() if size else 0
        if used + size > self.limits.all:
            raise self._full(used)
        if Retention(self._store).pressure() > MOST_PRESSURE:
            share = f"{MOST_PRESSURE:.0%}"
            raise StoreFull(
                f"the store has used {share} of its memory: it takes no further files for now",
                retry_after=10.0,
            )

    def check_size(self, size: int) -> None:
        """Refuse a file of so many bytes; raises ``file_too_large``."""
        if size > self.limits.one:
            raise AsyncNodesError("file_too_large", f"a file may have {self.limits.one:,} bytes")

    def receive(self) -> Upload:
        """Return a place for a new file; use it in a ``with`` statement."""
        if self._ids is None:
            self._ids = self._store.id_source().tagged(TAG)
        return Upload(self, self._ids.make(int(time.time() * 1000)))

    def write(
        self,
        pieces: Iterable[bytes],
        *,
        name: str = DEFAULT_NAME,
        media_type: str = DEFAULT_TYPE,
        seconds: float = DEFAULT_TTL,
    ) -> FileInfo:
        """Keep a new file; raises what `Upload` raises."""
        about = About(name=name, media_type=media_type, ttl_ms=int(seconds * 1000))
        with self.receive() as upload:
            for piece in pieces:
                upload.write(piece)
            return upload.commit(about).info

    def put_chunk(self, file_id: str, number: int, data: bytes) -> None:
        """Keep a chunk of a file that arrives; sending it again is harmless.

        Raises:
            AsyncNodesError: ``file_storage_full``; ``file_gone`` when earlier ones took too long.
            StoreUnavailable: the store does not answer, or has no memory left.

        """
        row = (self._tenant, file_id, number, data, self.limits.all, GRACE_MS)
        verdict = self._store.row("file_part", row)
        if verdict[0] == b"full":
            raise self._full(int(verdict[1]))
        if verdict[0] != b"ok":
            raise _broken(file_id)

    def commit(self, info: FileInfo, idempotency: str, fingerprint: str) -> tuple[FileInfo, bool]:
        """Make a file of the chunks that have arrived; tell whether an earlier one takes its place.

        Raises:
            AsyncNodesError: ``idempotency_mismatch``, or ``file_gone`` when chunks are missing.
            StoreUnavailable: the store does not answer.

        """
        row = (
            self._tenant, info.file_id, info.chunks, info.size, info.name, info.media_type,
            info.sha256, info.ttl_ms, idempotency, fingerprint,
        )  # fmt: skip
        verdict, *said = self._store.row("file_commit", row)
        if verdict == b"ok":
            created, expires = map(int, said)
            return replace(info, created_ms=created, expires_ms=expires), False
        if verdict == b"lost":
            raise _broken(info.file_id)
        first = said[0].decode()
        earlier = self.find(first) if verdict == b"replay" else None
        if verdict == b"replay" and earlier is None:  # it expired in this very moment
            raise gone(first)
        if earlier is None:
            raise AsyncNodesError("idempotency_mismatch", file_id=first)
        return earlier, True

    def _used(self) -> int:
        """Return the bytes that the tenant's files take, those that have expired left out."""
        used, *_ = self._store.run("file_list", self._tenant, "", 0)
        return int(used)

    def _full(self, used: int) -> AsyncNodesError:
        detail = f"files take {used:,} of {self.limits.all:,} bytes"
        return AsyncNodesError("file_storage_full", detail)

    def _tried(self, ask: Callable[[], Result]) -> Result:
        """Return what a read gives, asked again for as long as the patience lasts."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return ask()
            except StoreUnavailable:
                if time.monotonic() >= until:
                    raise
                time.sleep(PAUSE)


@dataclass(frozen=True, slots=True)
class Kept:
    """Tell what was kept; `replayed` when an earlier request with the same key had done it."""

    info: FileInfo
    replayed: bool = False


class Upload:
    """Take a file piece by piece; what is not committed is dropped at the end of the block.

    Args:
        files: where it goes.
        file_id: its id.

    """

    def __init__(self, files: Files, file_id: str) -> None:
        self._files = files
        self._file_id = file_id
        self._buffer = bytearray()
        self._number = 0
        self._size = 0
        self._sha256 = hashlib.sha256()
        self._done = False

    def __enter__(self) -> Self:
        """Return the upload itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop what was not committed."""
        if self._number and not self._done:
            self._files.drop(self._file_id)

    def write(self, data: bytes) -> None:
        """Take some bytes.

        Raises:
            AsyncNodesError: ``file_too_large``, ``file_storage_full``, ``file_gone``.
            StoreUnavailable: the store does not answer, or has no memory left.

        """
        self._size += len(data)
        self._files.check_size(self._size)
        self._sha256.update(data)
        view = memoryview(data)
        while view:
            room = CHUNK - len(self._buffer)
            self._buffer += view[:room]
            view = view[room:]
            if len(self._buffer) == CHUNK:
                self._flush()

    def commit(self, about: About) -> Kept:
        """Make it a file; raises what `write` raises, and ``idempotency_mismatch``."""
        if self._buffer:
            self._flush()
        digest = self._sha256.hexdigest()
        info = FileInfo(
            file_id=self._file_id,
            name=about.name,
            media_type=about.media_type,
            size=self._size,
            sha256=digest,
            ttl_ms=about.ttl_ms,
        )
        meaning = "\0".join((about.name, about.media_type, digest, str(about.ttl_ms)))
        fingerprint = hashlib.sha256(meaning.encode()).hexdigest()
        kept, replayed = self._files.commit(info, about.idempotency, fingerprint)
        self._done = True
        return Kept(kept, replayed)

    def _flush(self) -> None:
        self._files.put_chunk(self._file_id, self._number, bytes(self._buffer))
        self._number += 1
        self._buffer.clear()


def _info(file_id: str, row: Sequence[Any]) -> FileInfo | None:
    """Return what a row of the scripts says of a file, None for an empty one."""
    if not row:
        return None
    name, media_type, size, sha256, created, expires, ttl = (part.decode() for part in row)
    return FileInfo(
        file_id, name, media_type, int(size), sha256, int(created), int(expires), int(ttl)
    )


def _broken(file_id: str) -> AsyncNodesError:
    seconds = GRACE_MS // 1000
    detail = f"a part of the file did not follow within {seconds} s: send it again from its start"
    return AsyncNodesError("upload_too_slow", detail, file_id=file_id)
