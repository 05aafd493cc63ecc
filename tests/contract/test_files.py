"""Files in the store: what is kept, counted, kept for longer, and what breaks off."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.files import CHUNK, FileInfo, FileLimits
from async_nodes.storage.files import About, Files
from tests.contract.real_store import IDS, KEYS, RealStore, open_store
from tests.servers import RedisServer

TENANT = "default"
LIMITS = FileLimits(one=4 * CHUNK, all=6 * CHUNK)


@pytest.fixture
def real(redis_server: RedisServer) -> Iterator[RealStore]:
    """Return the store of an empty server."""
    opened = open_store(redis_server)
    yield opened
    opened.link.close()


@pytest.fixture
def files(real: RealStore) -> Files:
    """Return a tenant's files, of narrow limits."""
    return Files(real.store, TENANT, LIMITS)


def put(files: Files, data: bytes, **about: object) -> FileInfo:
    """Keep a file and return what it is."""
    with files.receive() as upload:
        upload.write(data)
        return upload.commit(About(**about)).info  # type: ignore[arg-type]


def read(files: Files, info: FileInfo) -> bytes:
    """Return a file's content."""
    return b"".join(files.chunk(info, number) for number in range(info.chunks))


def keys_left(real: RealStore) -> set[str]:
    """Return the keys of files that hold something."""
    found = {key.decode() for key in real.link.call("KEYS", f"{KEYS.base}*")}
    return {key for key in found if "file" in key or "part" in key}


def used(files: Files) -> int:
    """Return how many bytes are counted."""
    return files.page().used


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17])
def test_a_file_is_kept_as_it_came(files: Files, size: int) -> None:
    """Whatever the pieces, content, size and digest are those that were sent."""
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    with files.receive() as upload:
        for start in range(0, size, 100_000):
            upload.write(data[start : start + 100_000])
        info = upload.commit(About(name="a.bin", media_type="text/plain", ttl_ms=60_000)).info

    assert files.find(info.file_id) == info
    assert (info.name, info.media_type, info.size) == ("a.bin", "text/plain", size)
    assert info.sha256 == hashlib.sha256(data).hexdigest()
    assert info.expires_ms == info.created_ms + 60_000
    assert read(files, info) == data
    assert used(files) == size


def test_what_breaks_off_leaves_nothing(real: RealStore, files: Files) -> None:
    """An upload that fails is dropped at once, and would go by itself within two minutes."""
    with files.receive() as upload:
        upload.write(b"x" * (2 * CHUNK))
        (parts,) = [key for key in keys_left(real) if "part" in key]
        assert 0 < real.link.call("PTTL", parts) <= 120_000
        assert used(files) == 2 * CHUNK

    assert used(files) == 0
    assert keys_left(real) == {f"{KEYS.base}filesize:{TENANT}"}


def test_a_file_may_not_be_too_large(files: Files) -> None:
    """The limit of one file is exact, and what had arrived is dropped."""
    assert put(files, b"x" * LIMITS.one).size == LIMITS.one
    with pytest.raises(AsyncNodesError) as refused:
        put(files, b"x" * (LIMITS.one + 1))

    assert refused.value.code == "file_too_large"
    assert used(files) == LIMITS.one


def test_a_tenant_may_not_take_more_than_its_share(real: RealStore, files: Files) -> None:
    """Arriving files count; room that a deleted file leaves can be used at once."""
    first = put(files, b"x" * (4 * CHUNK))
    with pytest.raises(AsyncNodesError) as refused:
        put(files, b"y" * (3 * CHUNK))
    assert refused.value.code == "file_storage_full"
    assert refused.value.status == 507
    assert used(files) == 4 * CHUNK
    assert put(Files(real.store, "other", LIMITS), b"z" * (3 * CHUNK)).size == 3 * CHUNK

    assert files.delete(first.file_id)
    assert put(files, b"y" * (3 * CHUNK)).size == 3 * CHUNK


def test_a_chunk_that_is_sent_again_counts_once(files: Files) -> None:
    """A cut connection leads to the same row again: same content, same count, same answer."""
    file_id = IDS.tagged("f").make(1)
    for _ in range(2):
        files.put_chunk(file_id, 0, b"x" * 10)
    assert used(files) == 10

    info = FileInfo(file_id, "n", "a/b", 10, hashlib.sha256(b"x" * 10).hexdigest(), ttl_ms=1000)
    first = files.commit(info, "", "-")
    assert files.commit(info, "", "-") == first
    files.put_chunk(file_id, 0, b"late row")
    assert read(files, first[0]) == b"x" * 10
    assert used(files) == 10


def test_a_gap_is_noticed(files: Files) -> None:
    """A chunk after lost ones, or a commit without all of them, makes no file."""
    file_id = IDS.tagged("f").make(2)
    with pytest.raises(AsyncNodesError) as refused:
        files.put_chunk(file_id, 1, b"x")
    assert refused.value.code == "upload_too_slow"

    files.put_chunk(file_id, 0, b"x" * CHUNK)
    with pytest.raises(AsyncNodesError) as refused:
        files.commit(FileInfo(file_id, "n", "a/b", 2 * CHUNK, "0" * 64, ttl_ms=1000), "", "-")
    assert refused.value.code == "upload_too_slow"
    assert files.find(file_id) is None


def test_a_key_makes_one_file(real: RealStore, files: Files) -> None:
    """The same again answers with the first file; another content or name is refused."""
    key = "0123456789abcdef" * 2
    first = put(files, b"one", idempotency=key)
    with files.receive() as upload:
        upload.write(b"one")
        again = upload.commit(About(idempotency=key))
    assert again.replayed
    assert again.info == first
    for data, name in ((b"two", "file"), (b"one", "other")):
        with pytest.raises(AsyncNodesError) as refused:
            put(files, data, name=name, idempotency=key)
        assert refused.value.code == "idempotency_mismatch"
    assert used(files) == 3

    files.delete(first.file_id)
    assert put(files, b"two", idempotency=key).size == 3
    assert put(Files(real.store, "other", LIMITS), b"three", idempotency=key).size == 5


def test_a_life_is_made_longer_and_never_shorter(real: RealStore, files: Files) -> None:
    """A task that takes a file has it kept: description, content and key alike."""
    key = "f" * 32
    info = put(files, b"data", ttl_ms=60_000, idempotency=key)
    (longer,) = files.known([info.file_id], seconds=3600)
    assert longer is not None
    assert 3_590_000 < longer.expires_ms - info.created_ms < 3_610_000
    for name in (KEYS.file(TENANT, info.file_id), KEYS.parts(TENANT, info.file_id)):
        assert real.link.call("PTTL", name) > 3_500_000
    assert real.link.call("PTTL", f"{KEYS.base}filekey:{TENANT}:{key}") > 3_500_000

    assert files.known([info.file_id, "f_nothing"], seconds=1) == [longer, None]
    assert Files(real.store, "other", LIMITS).find(info.file_id) is None


def test_what_has_expired_is_counted_no_more(real: RealStore, files: Files) -> None:
    """Redis drops it by itself; the next touch of the tenant's files puts the count right."""
    info = put(files, b"data", ttl_ms=1)
    while real.link.call("EXISTS", KEYS.file(TENANT, info.file_id)):
        pass
    assert real.link.call("ZCARD", f"{KEYS.base}files:{TENANT}") == 1

    assert files.page().files == ()
    assert used(files) == 0
    assert keys_left(real) == {f"{KEYS.base}filesize:{TENANT}"}


def test_an_empty_file_goes_like_any_other(real: RealStore, files: Files) -> None:
    """Deleted or expired, it takes nothing with it: the others are counted and listed as before."""
    kept = put(files, b"kept", ttl_ms=60_000)
    assert files.delete(put(files, b"", ttl_ms=60_000).file_id)
    expired = put(files, b"", ttl_ms=1)
    while real.link.call("EXISTS", KEYS.file(TENANT, expired.file_id)):
        pass

    page = files.page()

    assert (page.used, [info.file_id for info in page.files]) == (4, [kept.file_id])


def test_a_file_that_goes_away_is_not_cut_short(real: RealStore, files: Files) -> None:
    """A reader half-way through gets an error, never fewer bytes."""
    info = put(files, b"x" * (2 * CHUNK))
    assert len(files.chunk(info, 0)) == CHUNK
    assert files.delete(info.file_id)
    assert not files.delete(info.file_id)

    with pytest.raises(AsyncNodesError) as refused:
        files.chunk(info, 1)
    assert refused.value.code == "file_gone"


def test_files_are_listed_from_the_youngest(files: Files) -> None:
    """Pages follow each other without a gap, whatever is deleted in between."""
    made = [put(files, bytes([number])).file_id for number in range(5)]
    expected = sorted(made, reverse=True)
    first = files.page(most=2)
    assert [info.file_id for info in first.files] == expected[:2]
    assert first.next == expected[1]
    files.delete(expected[1])
    second = files.page(after=first.next, most=2)
    assert [info.file_id for info in second.files] == expected[2:4]
    last = files.page(after=second.next or "", most=2)
    assert [info.file_id for info in last.files] == expected[4:]
    assert last.next is None


def test_a_server_that_is_nearly_full_takes_no_files(real: RealStore, files: Files) -> None:
    """From 80 % of maxmemory on the room is for tasks; deleting files works even past it."""
    info = put(files, b"x" * CHUNK)
    files.check_room(CHUNK)
    memory = real.link.call("INFO", "memory").decode()
    used_memory = int(memory.partition("used_memory:")[2].partition("\r")[0])
    real.link.call("CONFIG", "SET", "maxmemory", used_memory + 50_000)
    with pytest.raises(AsyncNodesError) as refused:
        files.check_room(1)
    assert refused.value.status == 503

    real.link.call("CONFIG", "SET", "maxmemory", used_memory // 2)
    assert files.known([info.file_id], seconds=3600) != [None]
    assert files.delete(info.file_id)
    real.link.call("CONFIG", "SET", "maxmemory", 0)


def test_ids_of_files_are_not_those_of_tasks() -> None:
    """The MAC covers the tag: a task's id under another tag is none of ours."""
    ids = IDS.tagged("f")
    made = ids.make(1_700_000_000_000)
    assert ids.issued(made)
    assert not ids.issued("f" + IDS.make(1_700_000_000_000)[1:])
    assert not IDS.issued("t" + made[1:])
    assert not ids.issued(IDS.make(1))
