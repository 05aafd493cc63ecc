"""Files in the node kit: as inputs, in bodies, as outputs, and in the built-in nodes."""

from __future__ import annotations

import asyncio
import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes import AsyncNodesError, File, NodeContext, TerminalError, node
from async_nodes.core.files import CHUNK, FileInfo
from async_nodes.core.strict_json import dumps
from async_nodes.dispatch.file_inputs import keep_files, life_of
from async_nodes.dispatch.request import parse
from async_nodes.nodes.files import NodeFiles
from async_nodes.nodes.inputs import inputs_of
from async_nodes.nodes.registry import registry
from async_nodes.testing import MemoryFiles, run_node

ID = "f_00000000000000000000000001"
OTHER = "f_00000000000000000000000002"
NOW_MS = 1_700_000_000_000


class Own:
    """A class of the node's own."""


@dataclass
class Letter:
    """A value with a file in it."""

    to: str
    enclosed: list[File]


@node("test.files.one")
def one(file: File) -> dict[str, Any]:
    """Tell of a file."""
    return {"file": file, "text": file.text(), "pieces": [len(piece) for piece in file]}


@node("test.files.many")
def many(
    letter: Letter | None = None,
    named: dict[str, File] | None = None,
    cover: File | None = None,
    **more: File,
) -> list[str]:
    """Take files wherever they may stand."""
    found = [*(letter.enclosed if letter else ()), *(named or {}).values(), *more.values()]
    return [file.name for file in ([cover] if cover else []) + found]


@node("test.files.async", timeout=7)
async def from_async(ctx: NodeContext, file: File) -> File:
    """Copy a file from a coroutine."""
    pieces = [piece async for piece in file]
    return await asyncio.to_thread(ctx.files.write, "copy.bin", pieces)


@pytest.fixture
def files() -> MemoryFiles:
    """Return an empty place for files."""
    return MemoryFiles()


def opened(files: MemoryFiles, data: bytes) -> File:
    """Return a file as a body gets it."""
    return NodeFiles(files).open(files.add("a.bin", data))


# -- inputs ----------------------------------------------------------------------------------------


def test_a_file_is_an_id_or_a_reference(files: MemoryFiles) -> None:
    """What an upload answers can be passed on as it is, and what a node has returned too."""
    file_id = files.add("a.txt", "hello", media_type="text/plain")
    described = {**files.known([file_id], seconds=0)[0].to_json(), "links": {}}  # type: ignore[union-attr]
    for value in (file_id, {"file_id": file_id}, described):
        outcome = run_node("test.files.one", {"file": value}, files=files)
        assert outcome.output["text"] == "hello"
        assert outcome.output["pieces"] == [5]
    again = run_node("test.files.one", {"file": outcome.output["file"].reference()}, files=files)
    assert again.output["text"] == "hello"


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (1, "Expected the id of a file"),
        (None, "Expected the id of a file"),
        ("x", "'x' is not the id of a file"),
        ("t_00000000000000000000000001", "is not the id of a file"),
        ({}, "Expected the id of a file"),
        ({"file_id": ID, "nmae": 1}, "a file has no member 'nmae'"),
    ],
)
def test_what_is_no_file(value: Any, detail: str) -> None:
    """The fault names its place, like that of any other input."""
    with pytest.raises(AsyncNodesError, match=detail) as refused:
        registry()["test.files.one"].validate({"file": value})

    assert refused.value.code == "invalid_inputs"
    assert refused.value.pointer == "/inputs/file"


def test_files_may_stand_anywhere(files: MemoryFiles) -> None:
    """In lists, objects, optional inputs and open ones; all are looked up together."""
    ids = [files.add(f"{name}.txt", name) for name in "abcd"]
    inputs = {
        "letter": {"to": "ann", "enclosed": [ids[0], {"file_id": ids[1]}]},
        "cover": ids[2],
        "other": ids[3],
    }

    assert run_node("test.files.many", inputs, files=files).output == [
        "c.txt", "a.txt", "b.txt", "d.txt",
    ]  # fmt: skip
    assert run_node("test.files.many", {}).output == []


def test_the_schema_says_what_a_file_is() -> None:
    """Clients see that an id is wanted, and nodes without files are as they were."""
    schema = registry()["test.files.one"].schema["properties"]["file"]
    assert [choice["type"] for choice in schema["anyOf"]] == ["string", "object"]
    assert registry()["test.files.many"].schema["additionalProperties"]["anyOf"]
    assert registry()["test.files.one"].inputs.takes_files
    assert not registry()["echo"].inputs.takes_files


def test_a_type_that_json_cannot_give_is_still_refused() -> None:
    """Only files are known besides what msgspec knows."""

    def body(x: Own) -> None:
        """Take one."""

    with pytest.raises(AsyncNodesError, match="cannot come from JSON") as refused:
        inputs_of(body)
    assert refused.value.code == "invalid_node"


def test_too_many_files_are_refused() -> None:
    """One task may take a hundred."""
    inputs = {"letter": {"to": "", "enclosed": [ID] * 101}}
    with pytest.raises(AsyncNodesError, match="100 files") as refused:
        registry()["test.files.many"].validate(inputs, [])

    assert refused.value.pointer == "/inputs/letter/enclosed/100"


# -- at submit -------------------------------------------------------------------------------------


class Kept:
    """Files of which only some are there; notes how long they are to be kept."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids
        self.asked: list[tuple[list[str], float]] = []

    def known(self, ids: list[str], *, seconds: float) -> list[FileInfo | None]:
        """Return those that are there."""
        self.asked.append((list(ids), seconds))
        return [FileInfo(it, "a", "b/c", 0, "") if it in self.ids else None for it in ids]


def submitted(
    files: Kept, inputs: dict[str, Any], name: str = "test.files.many", **more: Any
) -> None:
    """Check the files of a request."""
    request = parse(dumps({"node": name, "inputs": inputs, **more}), registry(), now_ms=NOW_MS)
    keep_files(request, files, now_ms=NOW_MS, default_timeout_ms=300_000)  # type: ignore[arg-type]


def test_each_missing_file_is_named_with_its_place() -> None:
    """All of them at once, whatever else is there."""
    with pytest.raises(AsyncNodesError) as refused:
        submitted(
            Kept(ID), {"cover": OTHER, "named": {"x": ID, "y": OTHER}, "letter": None, "z": OTHER}
        )

    assert refused.value.code == "invalid_inputs"
    faults = {fault["pointer"] for fault in refused.value.extra["errors"]}
    assert faults == {"/inputs/cover", "/inputs/named", "/inputs/z"}
    assert OTHER in refused.value.detail


def test_files_are_looked_up_once_and_only_if_there_are_some() -> None:
    """The same file twice is one question; none is no question."""
    files = Kept(ID)
    submitted(files, {})
    assert files.asked == []
    submitted(files, {"cover": ID, "z": {"file_id": ID}})
    assert [ids for ids, _ in files.asked] == [[ID]]


def test_a_file_outlives_its_task() -> None:
    """Delay, queue, every attempt and the kept record; a deadline bounds the first three."""

    def life(**more: Any) -> float:
        name = more.pop("node", "test.files.one")
        raw = dumps({"node": name, "inputs": {"file": ID}, **more})
        request = parse(raw, registry(), now_ms=NOW_MS)
        return life_of(request, now_ms=NOW_MS, default_timeout_ms=300_000)

    day = 86_400
    assert life() == day + 3 * 300 + day
    assert life(ttl=60, delay=5) == 5 + day + 900 + 60
    assert life(timeout_ms=1000, retry_policy={"max_attempts": 1}) == day + 1 + day
    assert life(node="test.files.async") == day + 3 * 7 + day
    assert life(deadline="2023-11-14T23:13:20Z") == 3600 + day


# -- in a body -------------------------------------------------------------------------------------


@given(
    size=st.integers(0, 3),
    extra=st.integers(0, 5),
    moves=st.lists(st.tuples(st.integers(0, 3 * CHUNK), st.integers(0, CHUNK + 1)), max_size=5),
)
def test_a_reader_is_like_any_other(size: int, extra: int, moves: list[tuple[int, int]]) -> None:
    """Whatever is read from wherever, it is what a plain stream would give."""
    data = bytes(range(251)) * ((size * CHUNK) // 251) + b"x" * extra
    plain = io.BytesIO(data)
    with opened(MemoryFiles(), data).open() as reader:
        for place, count in moves:
            assert reader.seek(place) == plain.seek(place)
            assert reader.read(count) == plain.read(count)
        assert reader.seek(0, io.SEEK_END) == len(data)
        assert reader.read() == b""
        reader.seek(0)
        assert reader.read() == data


def test_libraries_can_read_from_it(files: MemoryFiles) -> None:
    """What wants a file gets one: text by lines, a table, an archive."""
    with io.TextIOWrapper(opened(files, b"a,b\n1,2\n").open(), "utf-8") as text:
        assert list(csv.DictReader(text)) == [{"a": "1", "b": "2"}]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x.txt", "content")
    with zipfile.ZipFile(opened(files, packed.getvalue()).open()) as archive:
        assert archive.read("x.txt") == b"content"


def test_a_reader_holds_one_chunk(files: MemoryFiles) -> None:
    """Every chunk is asked for once by whoever reads from start to end, in steps of any size."""
    asked = []
    chunk = files.chunk
    files.chunk = lambda info, number: asked.append(number) or chunk(info, number)  # type: ignore[func-returns-value,method-assign]
    with opened(files, b"x" * (2 * CHUNK + 5)).open() as reader:
        while reader.read(1000):
            pass

    assert asked == [0, 1, 2]


def test_a_file_that_goes_away_ends_the_task(files: MemoryFiles) -> None:
    """Trying again would not bring it back, before the body and in the midst of it."""
    file = opened(files, b"x" * (2 * CHUNK))
    reader = file.open()
    reader.read(10)
    files.delete(file.file_id)
    with pytest.raises(TerminalError) as ended:
        reader.read()
    assert ended.value.code == "file_gone"
    with pytest.raises(TerminalError) as ended:
        run_node("test.files.one", {"file": file.file_id}, files=files)
    assert ended.value.code == "file_gone"
    assert not ended.value.retryable


def test_text_is_read_as_people_mean_it(files: MemoryFiles) -> None:
    """A byte order mark is no character of the text; what is no text says so."""
    assert opened(files, b"\xef\xbb\xbfhello").text() == "hello"
    assert opened(files, "茶".encode("gb18030")).text("gb18030") == "茶"
    with pytest.raises(UnicodeDecodeError):
        opened(files, b"\xff").text()


def pieces() -> Iterator[bytes | str]:
    """Yield pieces of both kinds, an empty one among them."""
    yield "茶"
    yield b""
    yield b"!"


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"x", b"x"),
        ("茶", "茶".encode()),
        (bytearray(b"y"), b"y"),
        ([b"a", "b"], b"ab"),
        (pieces(), "茶!".encode()),
        (io.BytesIO(b"z" * 300_000), b"z" * 300_000),
        (io.StringIO("text"), b"text"),
        (b"", b""),
    ],
)
def test_a_file_is_written_from_whatever_gives_bytes(
    files: MemoryFiles, data: Any, content: bytes
) -> None:
    """Bytes, text, pieces and streams; the reference tells of all of it."""
    file = NodeFiles(files).write("a.json", data)

    assert files.content(file) == content
    assert (file.size, file.media_type) == (len(content), "application/json")


def test_a_file_in_the_output_is_a_reference(files: MemoryFiles) -> None:
    """The record shows its id, name, type, size and digest, wherever it stands."""
    file = NodeFiles(files).write("a.txt", "x")
    shown = dumps({"files": [file]}).decode()

    assert f'"file_id":"{file.file_id}"' in shown
    assert '"name":"a.txt","media_type":"text/plain","size":1' in shown


@pytest.mark.parametrize("wrong", [{"name": ".."}, {"media_type": "x"}, {"ttl": 0}, {"ttl": 1e9}])
def test_what_cannot_be_written(files: MemoryFiles, wrong: dict[str, Any]) -> None:
    """A mistake of the node is told at once and not tried again."""
    with pytest.raises(TerminalError) as ended:
        NodeFiles(files).write(**{"name": "a", "data": b"", **wrong})

    assert ended.value.code == "invalid_inputs"


def test_a_context_without_a_store_says_so() -> None:
    """A context that a program makes by hand has no files."""
    with pytest.raises(TerminalError, match="no store"):
        NodeContext(task_id="t", node="n").files.write("a", b"")


def test_a_coroutine_reads_and_writes(files: MemoryFiles) -> None:
    """In pieces, with every wait in a thread."""
    data = b"x" * (CHUNK + 1)
    outcome = run_node("test.files.async", {"file": files.add("a", data)}, files=files)

    assert outcome.files.content(outcome.output) == data


# -- built in --------------------------------------------------------------------------------------


def test_file_text_gives_a_part(files: MemoryFiles) -> None:
    """In characters, whatever the encoding; a byte order mark goes before what was said."""
    text = "茶".join(map(str, range(50_000)))
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "gb18030"):
        file_id = files.add("a.txt", text.encode(encoding))
        inputs = {"file": file_id, "start": 100_001, "length": 1000}
        if encoding == "gb18030":
            inputs["encoding"] = encoding
        part = run_node("file.text", inputs, files=files).output
        assert part == {"text": text[100_001:101_001], "start": 100_001, "more": True}
    end = run_node("file.text", {"file": file_id, "encoding": "gb18030", "start": len(text) - 2},
                   files=files).output  # fmt: skip
    assert end == {"text": text[-2:], "start": len(text) - 2, "more": False}
    assert run_node("file.text", {"file": files.add("e", b"")}, files=files).output["text"] == ""


@pytest.mark.parametrize(
    ("data", "encoding", "why"),
    [(b"\xff\xfe\xff", "utf-8", "utf-16"), (b"\x80", "utf-8", "utf-8"), (b"x", "nope", "nope")],
)
def test_file_text_refuses_what_is_none(
    files: MemoryFiles, data: bytes, encoding: str, why: str
) -> None:
    """The error names the encoding, and the task is not tried again."""
    with pytest.raises(TerminalError, match=why):
        run_node("file.text", {"file": files.add("a", data), "encoding": encoding}, files=files)
