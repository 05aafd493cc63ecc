"""Files over HTTP: up in pieces, down in parts, refused in time."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.web import Answer, Web, _web_log, _web_process, ask, wait_until, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "web"]

MIB = 1 << 20
CHUNK = 256 << 10
BOUNDARY = "----form"


def put(web: Web, data: bytes = b"hello", query: str = "", **headers: str) -> dict[str, Any]:
    """Upload a file and return what is told of it."""
    answer = web.ask("POST", f"/v1/files{query}", data, **headers)
    assert answer.status == 201, answer
    found: dict[str, Any] = answer.json
    return found


def form(*parts: tuple[str, bytes], end: bool = True) -> bytes:
    """Return a form of parts: what follows ``form-data`` in their head, and their content."""
    made = b""
    for head, content in parts:
        made += f"--{BOUNDARY}\r\nContent-Disposition: form-data{head}\r\n\r\n".encode()
        made += content + b"\r\n"
    return made + (f"--{BOUNDARY}--\r\n".encode() if end else b"")


def send(web: Web, raw: bytes, query: str = "", **headers: str) -> Answer:
    """Upload a form."""
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return web.ask("POST", f"/v1/files{query}", raw, content_type=kind, **headers)


def pattern(size: int) -> bytes:
    """Return bytes of which no two chunks are alike."""
    block = b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))
    return block[:size]


def rss(pid: int) -> int:
    """Return the bytes of memory that a process has in use."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+)", text)
    assert found is not None
    return int(found[1]) << 10


# -- up --------------------------------------------------------------------------------------------


def test_a_file_goes_up_and_comes_down(web: Web) -> None:
    """The description says what was sent; the content is the same, byte for byte."""
    data = pattern(600_001)
    answer = web.ask("POST", "/v1/files?name=a.bin&ttl=600", data, content_type="image/png")
    info = answer.json
    assert answer.status == 201
    assert answer.headers["location"] == f"/v1/files/{info['file_id']}"
    assert re.fullmatch(r"f_[0-9A-HJKMNP-TV-Z]{26}", info["file_id"])
    expected = {"name": "a.bin", "media_type": "image/png", "size": len(data), "ttl": 600}
    assert info.items() >= expected.items()
    assert info["sha256"] == hashlib.sha256(data).hexdigest()

    shown = web.get(f"/v1/files/{info['file_id']}")
    assert shown.json == info
    content = web.get(info["links"]["content"])
    assert content.status == 200
    assert content.body == data


def test_a_body_without_a_length_is_taken(web: Web) -> None:
    """Chunked transfer: the size is known at the end."""
    data = pattern(700_000)
    connection = web.connect()
    pieces = (data[start : start + 50_000] for start in range(0, len(data), 50_000))
    connection.request("POST", "/v1/files", pieces, {"Content-Type": "a/b"}, encode_chunked=True)
    response = connection.getresponse()
    info = json.loads(response.read())
    connection.close()

    assert response.status == 201
    assert info["size"] == len(data)
    assert web.get(info["links"]["content"]).body == data


@pytest.mark.parametrize(
    ("query", "headers", "name", "media_type"),
    [
        ("", {}, "file", "application/octet-stream"),
        ("?name=b.csv", {}, "b.csv", "text/csv"),
        ("?name=b.csv", {"content_type": "text/plain"}, "b.csv", "text/plain"),
        (
            "?name=%E8%8C%B6.txt",
            {"content_type": "application/x-www-form-urlencoded"},
            "茶.txt",
            "text/plain",
        ),
        (
            "",
            {"content_disposition": 'attachment; filename="C:\\\\x\\\\y.pdf"'},
            "y.pdf",
            "application/pdf",
        ),
        (
            "",
            {"content_disposition": "attachment; filename*=UTF-8''%E8%8C%B6.json"},
            "茶.json",
            "application/json",
        ),
    ],
)  # fmt: skip
def test_names_and_types(
    web: Web, query: str, headers: dict[str, str], name: str, media_type: str
) -> None:
    """The query goes before the head; a type that nobody chose is guessed from the name."""
    info = put(web, b"x", query, **headers)

    assert (info["name"], info["media_type"]) == (name, media_type)


@pytest.mark.parametrize(
    ("query", "headers", "pointer"),
    [
        ("?name=..", {}, "/name"),
        ("?name=a%0Ab", {}, "/name"),
        ("?name=" + "x" * 256, {}, "/name"),
        ("?ttl=0", {}, "/ttl"),
        ("?ttl=2592001", {}, "/ttl"),
        ("?ttl=1.5", {}, "/ttl"),
        ("", {"content_type": "nonsense"}, "/content_type"),
        ("", {"content_type": "text/html\u00e4"}, "/content_type"),
    ],
)
def test_what_a_file_cannot_be_called(
    web: Web, query: str, headers: dict[str, str], pointer: str
) -> None:
    """Each is refused with its place before anything is kept."""
    answer = web.ask("POST", f"/v1/files{query}", b"x", **headers)

    assert answer.code == "invalid_request"
    assert answer.json["pointer"] == pointer
    assert web.get("/v1/files").json["used_bytes"] == 0


def test_a_parameter_with_a_typo_is_refused(web: Web) -> None:
    """The answer names the one that was meant."""
    answer = web.ask("POST", "/v1/files?nmae=x", b"x")

    assert answer.code == "bad_request"
    assert "did you mean 'name'" in answer.json["detail"]


def test_a_form_brings_a_file(web: Web) -> None:
    """Fields may stand on either side of the file; its bytes may look like a boundary."""
    data = b"\r\n--" + BOUNDARY[:-1].encode() + b"x\r\n" + pattern(400_000) + b"\r\n--\r\n\n"
    raw = form(
        ('; name="ttl"', b"600"),
        ('; name="file"; filename="a.csv"\r\nContent-Type: text/csv', data),
        ('; name="name"', "茶.csv".encode()),
    )
    answer = send(web, raw)

    assert answer.status == 201, answer
    info = answer.json
    assert (info["name"], info["media_type"], info["ttl"]) == ("茶.csv", "text/csv", 600)
    assert web.get(info["links"]["content"]).body == data
    assert send(web, raw, "?name=other").json["name"] == "other"


FILE = ('; name="file"; filename="a"', b"x")


@pytest.mark.parametrize(
    ("raw", "code", "detail"),
    [
        (form(), "invalid_request", "'file' is missing"),
        (form(('; name="name"', b"x")), "invalid_request", "'file' is missing"),
        (form(FILE, FILE), "invalid_request", "second file"),
        (form(FILE, ('; name="nme"', b"x")), "invalid_request", "did you mean 'name'"),
        (form(FILE, ('; name="ttl"', b"soon")), "invalid_request", "ttl must be"),
        (form(FILE, ('; name="ttl"', b"1"), ('; name="ttl"', b"2")), "invalid_request", "twice"),
        (form(FILE, ('; name="name"', b"\xff")), "invalid_request", "UTF-8"),
        (form(FILE, ('; name="name"', b"x" * 2000)), "invalid_request", "1024"),
        (form(FILE, end=False), "bad_request", "the form"),
        (form(*[('; name="name"', b"x")] * 9), "invalid_request", "twice"),
        (b"nonsense", "bad_request", "the form"),
        (b"", "bad_request", "the form"),
        (form(('; filename="a"' + "x" * 2_000_000, b"")), "bad_request", "longer than"),
    ],
)  # fmt: skip
def test_forms_that_are_none(web: Web, raw: bytes, code: str, detail: str) -> None:
    """Whatever is wrong has a name, and leaves nothing behind."""
    answer = send(web, raw)

    assert answer.code == code, answer
    assert detail in answer.json["detail"]
    assert web.get("/v1/files").json["used_bytes"] == 0


def test_a_form_needs_a_boundary(web: Web) -> None:
    """Without one no part can be told from the next."""
    answer = web.ask("POST", "/v1/files", form(FILE), content_type="multipart/form-data")

    assert answer.code == "bad_request"


def digest(algorithm: str, data: bytes) -> str:
    """Return a digest as the header spells it."""
    name = algorithm.replace("-", "")
    text = base64.b64encode(hashlib.new(name, data).digest()).decode()
    return f"{algorithm}=:{text}:"


def test_a_digest_is_checked(web: Web) -> None:
    """Content-Digest, Repr-Digest and the older Digest; other algorithms are passed over."""
    data = pattern(300_000)
    good = [
        {"content_digest": digest("sha-256", data)},
        {"content_digest": f"md5=:AAAA:, {digest('sha-512', data)}"},
        {"repr_digest": digest("sha-256", data)},
        {"digest": digest("sha-256", data).replace(":", "").replace("sha", "SHA")},
        {"content_digest": "md5=:AAAA:"},
    ]
    for headers in good:
        assert put(web, data, **headers)["size"] == len(data)
    used = web.get("/v1/files").json["used_bytes"]
    for headers in good[:4]:
        assert web.ask("POST", "/v1/files", data + b"x", **headers).code == "digest_mismatch"
    assert web.ask("POST", "/v1/files", data, content_digest="sha-256=:AAAA:").code == "bad_request"
    assert web.get("/v1/files").json["used_bytes"] == used

    raw = form(FILE)
    assert send(web, raw, content_digest=digest("sha-256", raw)).status == 201
    assert send(web, raw, content_digest=digest("sha-256", b"x")).code == "digest_mismatch"


def test_a_key_makes_one_file(web: Web) -> None:
    """Sent again it answers with the first; another file under it is refused."""
    first = web.ask("POST", "/v1/files", b"one", idempotency_key="k1")
    again = web.ask("POST", "/v1/files", b"one", idempotency_key="k1")
    assert again.status == first.status == 201
    assert again.json["file_id"] == first.json["file_id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers

    other = web.ask("POST", "/v1/files", b"two", idempotency_key="k1")
    assert other.code == "idempotency_mismatch"
    assert len(web.get("/v1/files").json["files"]) == 1


def test_a_compressed_body_is_refused(web: Web) -> None:
    """What would be stored is not what the client means."""
    assert web.ask("POST", "/v1/files", b"x", content_encoding="gzip").code == "bad_request"


# -- limits ----------------------------------------------------------------------------------------


@pytest.fixture
def narrow(one_server: RedisServer, tmp_path: Path) -> Iterator[Web]:
    """Return a web process with narrow limits."""
    limits = {"ASYNC_NODES_FILE_MAX_BYTES": str(MIB), "ASYNC_NODES_FILES_MAX_BYTES": str(2 * MIB)}
    started = Web(one_server.url, tmp_path / "log", **limits)
    started.start()
    wait_until(lambda: started.get("/readyz").json["checks"]["store"]["ok"])
    yield started
    assert started.stop() == 0, started.log


def test_a_file_may_not_be_too_large(narrow: Web) -> None:
    """Told beforehand it is refused before it is sent; otherwise as soon as it is too much."""
    assert put(narrow, b"x" * MIB)["size"] == MIB
    assert narrow.ask("POST", "/v1/files", b"x" * (MIB + 1)).code == "file_too_large"
    raw = form(('; name="file"; filename="a"', b"x" * (MIB + 1)))
    assert send(narrow, raw).code == "file_too_large"

    connection = narrow.connect()
    pieces = [b"x" * 100_000] * 12
    connection.request("POST", "/v1/files", iter(pieces), {}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    assert narrow.get("/v1/files").json["used_bytes"] == MIB


def test_a_body_that_would_be_too_large_is_not_asked_for(narrow: Web) -> None:
    """A client that waits for 100 Continue gets the refusal in its place."""
    with socket.create_connection(("127.0.0.1", narrow.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_would_find_no_room_is_not_asked_for(narrow: Web) -> None:
    """Nor is it read by a piece: what is there already is known before."""
    first = put(narrow, b"x" * MIB)
    put(narrow, b"y" * (MIB // 2))
    with socket.create_connection(("127.0.0.1", narrow.port), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % (MIB // 2 + 1)
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 507 ")
    put(narrow, b"z" * (MIB // 2))
    narrow.ask("DELETE", f"/v1/files/{first['file_id']}")
    put(narrow, b"x" * MIB)


def test_a_tenant_has_a_share(narrow: Web) -> None:
    """Beyond it further files are refused with what to do; deleted ones make room."""
    first = put(narrow, b"x" * MIB)
    put(narrow, b"y" * MIB)
    answer = narrow.ask("POST", "/v1/files", b"z")
    assert answer.status == 507
    assert answer.code == "file_storage_full"
    listed = narrow.get("/v1/files").json
    assert (listed["used_bytes"], listed["max_bytes"]) == (2 * MIB, 2 * MIB)

    assert narrow.ask("DELETE", f"/v1/files/{first['file_id']}").status == 204
    assert put(narrow, b"z")["size"] == 1


def test_other_routes_keep_their_limit(web: Web) -> None:
    """Only files may be larger than a task."""
    assert web.ask("POST", "/v1/tasks", b" " * (MIB + 1), content_type="application/json").code == (
        "body_too_large"
    )
    assert put(web, b"x" * (3 * MIB))["size"] == 3 * MIB


def test_a_large_file_takes_no_memory(web: Web) -> None:
    """64 MiB up and down: the web process never has more than some pieces of it."""
    assert web.process is not None
    put(web, b"x" * MIB)
    before = rss(web.process.pid)
    piece = pattern(CHUNK)
    highest, digest = 0, hashlib.sha256()

    def pieces() -> Iterator[bytes]:
        nonlocal highest
        for number in range(256):
            digest.update(piece)
            if number % 16 == 0:
                highest = max(highest, rss(web.process.pid))  # type: ignore[union-attr]
            yield piece

    connection = web.connect(timeout=60)
    head = {"Content-Length": str(64 * MIB), "Content-Type": "a/b"}
    connection.request("POST", "/v1/files", pieces(), head)
    answer = json.loads(connection.getresponse().read())
    assert answer["size"] == 64 * MIB
    assert answer["sha256"] == digest.hexdigest()

    connection.request("GET", answer["links"]["content"])
    response, received = connection.getresponse(), hashlib.sha256()
    while data := response.read(MIB):
        received.update(data)
        highest = max(highest, rss(web.process.pid))
    connection.close()
    assert received.hexdigest() == digest.hexdigest()
    assert highest - before < 16 * MIB


# -- what breaks -----------------------------------------------------------------------------------


def head(length: int, *more: str) -> bytes:
    """Return the head of an upload."""
    lines = ["POST /v1/files HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_a_client_that_leaves_half_way_leaves_nothing(web: Web) -> None:
    """What had arrived is dropped at once, and nothing is counted any more."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=10) as connection:
        connection.sendall(head(10 * MIB) + b"x" * (3 * MIB))
        wait_until(lambda: web.get("/v1/files").json["used_bytes"] >= 2 * MIB)
    wait_until(lambda: web.get("/v1/files").json["used_bytes"] == 0)

    assert web.get("/v1/files").json["files"] == []
    assert "Traceback" not in web.log


def test_a_store_that_is_away_is_told(redis_server: RedisServer, tmp_path: Path) -> None:
    """An upload that loses its store half-way is 503; the same again succeeds once it is back."""
    web = Web(redis_server.url, tmp_path / "log")
    web.start()
    wait_until(lambda: web.get("/readyz").json["checks"]["store"]["ok"])
    connection = web.connect()

    def pieces() -> Iterator[bytes]:
        yield b"x" * MIB
        wait_until(lambda: web.get("/v1/files").json["used_bytes"] >= MIB // 2)
        redis_server.kill()
        yield b"x" * MIB

    connection.request("POST", "/v1/files", pieces(), {"Content-Length": str(2 * MIB)})
    response = connection.getresponse()
    problem = json.loads(response.read())
    connection.close()
    assert response.status == 503, problem
    assert problem["code"] == "store_unavailable"

    redis_server.start()
    wait_until(lambda: web.get("/readyz").json["checks"]["store"]["ok"])
    info = put(web, b"x" * (2 * MIB))
    assert web.get(info["links"]["content"]).body == b"x" * (2 * MIB)
    assert web.stop() == 0, web.log


def test_a_file_that_is_deleted_while_it_is_read_is_not_cut_in_silence(web: Web) -> None:
    """The length that was promised does not arrive: no client takes a part for the whole."""
    info = put(web, b"x" * (24 * MIB))
    connection = web.connect()
    connection.request("GET", info["links"]["content"])
    response = connection.getresponse()
    response.read(CHUNK)
    assert web.ask("DELETE", f"/v1/files/{info['file_id']}").status == 204

    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    connection.close()
    assert web.get(info["links"]["content"]).code == "file_gone"


# -- down ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        (f"bytes={CHUNK - 1}-{CHUNK}", CHUNK - 1, CHUNK),
        (f"bytes={CHUNK}-", CHUNK, 599_999),
        ("bytes=-5", 599_995, 599_999),
        ("bytes=599999-999999999", 599_999, 599_999),
    ],
)
def test_a_part_is_sent(web: Web, asked: str, first: int, last: int) -> None:
    """206 with exactly the bytes that were asked for."""
    data = pattern(600_000)
    info = put(web, data)
    answer = web.get(info["links"]["content"], range=asked)

    assert answer.status == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/600000"
    assert answer.body == data[first : last + 1]


def test_ranges_that_cannot_be(web: Web) -> None:
    """416 tells the size; what is malformed is ignored; a stale If-Range gets the whole."""
    info = put(web, b"0123456789")
    content = info["links"]["content"]
    refused = web.get(content, range="bytes=10-")
    assert refused.code == "range_not_satisfiable"
    assert refused.json["size"] == 10
    for asked in ("bytes=5-2", "lines=1-2", "bytes=1-2,4-5"):
        assert web.get(content, range=asked).status == 200
    etag = f'"{info["sha256"]}"'
    assert web.get(content, range="bytes=1-2", if_range=etag).status == 206
    assert web.get(content, range="bytes=1-2", if_range='"other"').body == b"0123456789"


def test_a_client_keeps_what_it_has(web: Web) -> None:
    """ETag, If-None-Match and HEAD; an empty file is a file."""
    info = put(web, b"0123456789")
    content = info["links"]["content"]
    etag = web.get(content).headers["etag"]
    assert etag == f'"{info["sha256"]}"'
    same = web.get(content, if_none_match=etag)
    assert (same.status, same.body) == (304, b"")
    head = web.ask("HEAD", content)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "10")
    assert web.ask("HEAD", f"/v1/files/{info['file_id']}").status == 200

    empty = put(web, b"")
    assert empty["size"] == 0
    answer = web.get(empty["links"]["content"])
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


def test_a_file_is_never_a_page_of_ours(web: Web) -> None:
    """Even HTML and SVG come as an attachment, in a sandbox, under their own name."""
    info = put(
        web, b"<script>alert(1)</script>", "?name=%E8%8C%B6%22.html", content_type="text/html"
    )
    headers = web.get(info["links"]["content"]).headers

    assert headers["content-type"] == "text/html"
    assert headers["content-disposition"] == (
        "attachment; filename=\"__.html\"; filename*=UTF-8''%E8%8C%B6%22.html"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("kind", ["text/plain", f"multipart/form-data; boundary={BOUNDARY}", "a/b"])
def test_a_page_cannot_send_files(web: Web, kind: str) -> None:
    """A page may send forms and texts without asking first; its Origin gives it away."""
    raw = form(FILE)
    for headers in (
        {"origin": "https://example.org"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec_fetch_site": "cross-site"},
        {"host": "example.org"},
    ):
        answer = web.ask("POST", "/v1/files", raw, content_type=kind, **headers)
        assert answer.code == "forbidden_origin", headers
    assert web.get("/v1/files").json["files"] == []

    own = f"http://127.0.0.1:{web.port}"
    assert web.ask("POST", "/v1/files", raw, content_type=kind, origin=own).status == 201


# -- find, list, delete ----------------------------------------------------------------------------


def test_what_is_no_file(web: Web) -> None:
    """404 for what never was, 410 for what was, on every route."""
    task = web.task()
    info = put(web)
    assert web.ask("DELETE", f"/v1/files/{info['file_id']}").status == 204
    unknown = ("f_00000000000000000000000000", "f_x", task, "f" + task[1:])
    for file_id, code in (
        (info["file_id"], "file_gone"),
        *((it, "file_not_found") for it in unknown),
    ):
        assert web.get(f"/v1/files/{file_id}").code == code
        assert web.get(f"/v1/files/{file_id}/content").code == code
        assert web.ask("DELETE", f"/v1/files/{file_id}").code == code


def test_files_are_listed_page_by_page(web: Web) -> None:
    """The youngest first, each once."""
    made = []
    for number in range(5):
        made.append(put(web, bytes([number]))["file_id"])
        time.sleep(0.002)  # ids of one millisecond have no order
    first = web.get("/v1/files?limit=2").json
    second = web.get(f"/v1/files?limit=2&cursor={first['next']}").json
    third = web.get(f"/v1/files?limit=2&cursor={second['next']}").json
    pages = [[info["file_id"] for info in page["files"]] for page in (first, second, third)]

    assert [*pages[0], *pages[1], *pages[2]] == made[::-1]
    assert third["next"] is None
    assert web.get("/v1/files?cursor=x").code == "bad_request"
    assert web.get("/v1/files?limit=0").code == "bad_request"


def test_a_connection_goes_on_after_an_upload(web: Web) -> None:
    """What was refused before it was read is read away, within bounds."""
    connection = web.connect()
    refused = ask(connection, "POST", "/v1/files?ttl=x", b"x" * 100_000)
    assert refused.code == "invalid_request"
    assert ask(connection, "POST", "/v1/files", b"x" * 100_000).status == 201
    assert ask(connection, "GET", "/healthz").status == 200
    connection.close()


def test_a_refused_client_that_dribbles_is_let_go(web: Web) -> None:
    """Byte after byte it keeps every read waiting; the connection ends all the same."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=0.1) as connection:
        connection.sendall(b"POST /v1/files?ttl=x HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        connection.sendall(b"Content-Length: 1000000\r\n\r\n")
        until, received = time.monotonic() + 20, b""
        while time.monotonic() < until:
            try:
                connection.sendall(b"x")
                piece = connection.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                break
            if not piece:
                break
            received += piece

    assert received.startswith(b"HTTP/1.1 422 ")
    assert time.monotonic() < until
