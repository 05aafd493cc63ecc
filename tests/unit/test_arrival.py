"""A large body on its way in: bounds on time, digests, names for downloads."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.api.files import Places, disposition
from async_nodes.access.api.multipart import Form
from async_nodes.access.lane import arrival
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.files import base_name, media_type_of


class Failing(io.BytesIO):
    """A body that breaks after its first piece."""

    def read(self, size: int | None = -1) -> bytes:
        """Return what there is, then fail as a socket does."""
        if piece := super().read(size):
            return piece
        raise OSError("unexpected end of file")


def environ(stream: Any) -> dict[str, Any]:
    return {"wsgi.input": stream, "wsgi.input_terminated": True, "REQUEST_METHOD": "POST"}


def test_a_body_that_ends_early_is_named() -> None:
    """The client had promised more; what came is yielded first."""
    pieces = arrival.pieces(environ(Failing(b"abc")))

    assert next(pieces) == b"abc"
    with pytest.raises(AsyncNodesError) as refused:
        next(pieces)
    assert refused.value.code == "bad_request"


def test_a_body_that_does_not_come_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that dribbles never lets its socket time out; the piece has a bound of its own."""
    monkeypatch.setattr(arrival, "PIECE_SECONDS", 0.05)
    monkeypatch.setattr(arrival, "is_module_patched", lambda _: True)

    class Slow(io.BytesIO):
        def read(self, _size: int | None = -1) -> bytes:
            for _ in range(1000):
                gevent.sleep(0.01)
            return b""

    with pytest.raises(AsyncNodesError) as refused:
        next(arrival.pieces(environ(Slow())))
    assert refused.value.code == "upload_too_slow"


def test_a_body_without_a_length_is_empty_where_the_server_does_not_end_it() -> None:
    """Under other servers reading on would wait for ever."""
    assert list(arrival.pieces({"wsgi.input": io.BytesIO(b"x"), "REQUEST_METHOD": "POST"})) == []


BOUNDARY = b"b-0_ound"


def cut(raw: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Yield bytes in pieces of these sizes, and the rest."""
    for size in sizes:
        piece, raw = raw[:size], raw[size:]
        if piece:
            yield piece
    if raw:
        yield raw


@given(
    content=st.lists(
        st.sampled_from([b"\r\n", b"\n", b"\r", b"--", b"--" + BOUNDARY, b"x", b"\r\n--b-0_"])
    ).map(b"".join),
    sizes=st.lists(st.integers(min_value=1, max_value=20)),
)
def test_a_form_gives_its_file_whatever_the_pieces(content: bytes, sizes: list[int]) -> None:
    """However the network cuts it, whatever it looks like: the bytes are those that were sent."""
    if re.search(rb"(?:\A|\r\n)--" + BOUNDARY, content):
        content = content.replace(BOUNDARY, b"")  # a boundary is chosen so as not to occur
    raw = (
        b"--" + BOUNDARY + b'\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n'
        + content + b"\r\n--" + BOUNDARY + b"--\r\n"
    )  # fmt: skip
    form, received = Form(f"multipart/form-data; boundary={BOUNDARY.decode()}", ()), bytearray()

    form.read(cut(raw, sizes), received.extend)

    assert bytes(received) == content
    assert form.name == "a"


@given(st.binary(max_size=200), st.lists(st.integers(min_value=1, max_value=20)))
def test_no_bytes_break_the_reader_of_forms(noise: bytes, sizes: list[int]) -> None:
    """Whatever comes is either a form or one of two named errors."""
    raw = b"--" + BOUNDARY + b"\r\n" + noise
    form = Form(f"multipart/form-data; boundary={BOUNDARY.decode()}", ())
    with pytest.raises(AsyncNodesError) as refused:
        form.read(cut(raw, sizes), lambda _: None)
    assert refused.value.code in {"bad_request", "invalid_request"}


@given(st.text(max_size=100))
def test_a_name_is_safe_and_comes_back_whole(text: str) -> None:
    """No name breaks out of its header; clients that know RFC 8187 get exactly it."""
    try:
        name = base_name(text)
    except ValueError:
        return
    header = disposition(name)

    assert header.isascii()
    assert header.isprintable()
    assert "/" not in name
    assert "\\" not in name
    plain = header.split('"')[1]
    assert header.startswith('attachment; filename="')
    if plain != name:
        assert unquote(header.partition("filename*=UTF-8''")[2]) == name


@pytest.mark.parametrize("text", ["", " ", "..", "a/..", "a/", "a\nb", "x" * 256, "\u202e.txt"])
def test_what_is_no_name(text: str) -> None:
    """Neither folders nor dots, nothing that steers a terminal."""
    with pytest.raises(ValueError, match="a file's name"):
        base_name(text)


@pytest.mark.parametrize(
    "text", ["text/plain", "a/b; charset=utf-8", 'a/b; x="y z"', "image/svg+xml"]
)
def test_media_types(text: str) -> None:
    """Types with parameters are taken as they are."""
    assert media_type_of(f" {text} ") == text


@pytest.mark.parametrize(
    "text", ["text", "text/", "a/b\nX: y", "a/b; x", "\u00e4/b", "a/" + "b" * 300]
)
def test_what_is_no_media_type(text: str) -> None:
    """Nothing that would break the header in which it is sent again."""
    with pytest.raises(ValueError, match="media type"):
        media_type_of(text)


def test_only_so_many_files_arrive_at_once() -> None:
    """The next one is told to come again, and a place is given back however its upload ends."""
    places = Places(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"), places:  # noqa: PT012 - two are nested
            with pytest.raises(AsyncNodesError) as refused, places:
                raise AssertionError("there was a place")
            assert refused.value.code == "store_busy"
            assert refused.value.retry_after == 1.0
            raise ValueError("broken")
