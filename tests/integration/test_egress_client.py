# ruff: noqa: D102 - the servers of a test need no manual
from __future__ import annotations

import gzip
import http.server
import inspect
import json
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from urllib3.connection import HTTPConnection, HTTPSConnection

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.egress import Client, Guard, Timeouts, wire
from async_nodes.testing import run_node

if TYPE_CHECKING:
    from pathlib import Path

SOON = 1.0


class Handler(http.server.BaseHTTPRequestHandler):
    """Answer by the path; what was received is kept on the server."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length).decode()
        self.server.seen.append((self.command, self.path, dict(self.headers.items()), body))
        self.server.routes[self.path.partition("?")[0]](self)

    do_POST = do_PUT = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    """Serve routes on 127.0.0.1 and keep what was asked."""

    daemon_threads = True

    def __init__(self, routes: dict[str, Callable[[Handler], None]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.routes = routes
        self.seen: list[tuple[str, str, dict[str, str], str]] = []
        self.gone = threading.Event()

    def handle_error(self, *_: object) -> None:
        """Stay quiet: the tests cut connections on purpose."""

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def url(self, path: str) -> str:
        return f"http://{self.netloc}{path}"


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(**routes: Callable[[Handler], None]) -> Server:
        server = Server({f"/{name}": route for name, route in routes.items()})
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def client(*servers: Server, **options: Any) -> Client:
    return Client(Guard(frozenset(server.netloc for server in servers)), **options)


def hold(handler: Handler) -> None:
    """Send the headers and one piece, then wait until the client is gone."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nfirst")
    handler.connection.settimeout(10)
    if handler.connection.recv(1) == b"":
        handler.server.gone.set()
    handler.close_connection = True


def test_a_request_carries_what_was_given(serve: Callable[..., Server]) -> None:
    """Method, query, headers and JSON arrive; the answer's parts come back."""
    server = serve(x=lambda h: h.answer(201, '{"ok": "é"}'.encode(), X_Two="2"))

    response = client(server).request(
        "post", server.url("/x?q=1"), headers={"X-One": "1"}, json={"a": "ü"}
    )

    method, path, headers, body = server.seen[0]
    assert (method, path, headers["X-One"]) == ("POST", "/x?q=1", "1")
    assert headers["Content-Type"] == "application/json"
    assert headers["Host"] == server.netloc
    assert json.loads(body) == {"a": "ü"}
    assert (response.status, response.headers["x-two"]) == (201, "2")
    assert response.json() == {"ok": "é"}


def test_an_address_that_is_not_allowed_is_never_connected_to() -> None:
    """A refusal happens before a socket is opened."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"

        with pytest.raises(TerminalError) as caught:
            Client(Guard()).request("GET", url)
        with pytest.raises(TimeoutError):
            listener.accept()

    assert caught.value.code == "egress_refused"


def test_the_checked_address_is_the_one_connected_to(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is resolved once, so a second DNS answer cannot lead elsewhere."""
    server = serve(x=lambda h: h.answer(200))
    port = server.server_address[1]
    calls: list[str] = []

    def getaddrinfo(host: str, *_: object, **__: object) -> list[object]:
        calls.append(host)
        address = "127.0.0.1" if len(calls) == 1 else "192.0.2.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    allowed = Client(Guard(frozenset({f"rebind.test:{port}"})))

    assert allowed.request("GET", f"http://rebind.test:{port}/x").status == 200
    assert calls == ["rebind.test"]
    assert server.seen[0][2]["Host"] == f"rebind.test:{port}"


def test_the_next_address_is_tried(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dead address of several does not fail the request."""
    server = serve(x=lambda h: h.answer(200))
    port = server.server_address[1]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", p)) for p in (dead, port)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)

    assert (
        Client(Guard(frozenset({"two.test:80"}))).request("GET", "http://two.test/x").status == 200
    )


def test_proxy_variables_are_ignored(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment cannot lead a request elsewhere."""
    server = serve(x=lambda h: h.answer(200))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    assert client(server).request("GET", server.url("/x")).status == 200


def test_a_redirect_to_a_refused_address_is_refused(serve: Callable[..., Server]) -> None:
    """Every hop is checked like the first URL."""
    other = serve(y=lambda h: h.answer(200))
    server = serve(x=lambda h: h.answer(302, Location=other.url("/y")))

    with pytest.raises(TerminalError) as caught:
        client(server).request("GET", server.url("/x"))

    assert caught.value.code == "egress_refused"
    assert other.seen == []


def test_secrets_do_not_follow_a_redirect_to_another_origin(
    serve: Callable[..., Server],
) -> None:
    """Only harmless headers cross; within one origin all of them stay."""
    other = serve(z=lambda h: h.answer(200))
    server = serve(
        x=lambda h: h.answer(307, Location="/y"),
        y=lambda h: h.answer(307, Location=other.url("/z")),
    )
    secrets = {"Authorization": "Bearer s", "Cookie": "c=1", "X-Api-Key": "k", "Accept": "a/b"}

    response = client(server, other).request("POST", server.url("/x"), headers=secrets, json=[1])

    assert response.url == other.url("/z")
    assert {"Authorization", "Cookie", "X-Api-Key"} <= server.seen[1][2].keys()
    crossed = other.seen[0]
    assert not {"Authorization", "Cookie", "X-Api-Key"} & crossed[2].keys()
    assert (crossed[0], crossed[2]["Accept"], crossed[3]) == ("POST", "a/b", "[1]")


@pytest.mark.parametrize(
    ("status", "method", "after"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (302, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
        (303, "HEAD", "HEAD"),
    ],
)
def test_a_redirect_changes_the_method_as_browsers_do(
    serve: Callable[..., Server], status: int, method: str, after: str
) -> None:
    """301 and 302 turn POST into GET, 303 everything but HEAD, 307 and 308 nothing."""
    server = serve(
        x=lambda h: h.answer(status, Location="/y"),
        y=lambda h: h.answer(200),
    )

    client(server).request(method, server.url("/x"), body="b" if method != "HEAD" else None)

    assert [seen[0] for seen in server.seen] == [method, after]


def test_redirects_end_after_three(serve: Callable[..., Server]) -> None:
    """A loop is an error, not a wait."""
    server = serve(x=lambda h: h.answer(302, Location="/x"))

    with pytest.raises(TerminalError, match="more than 3 redirects"):
        client(server).request("GET", server.url("/x"))

    assert len(server.seen) == 4


def test_a_body_over_the_limit_is_refused(serve: Callable[..., Server]) -> None:
    """The limit counts decoded bytes, so a compressed bomb is stopped too."""
    bomb = gzip.compress(b"0" * 3_000_000)
    server = serve(
        plain=lambda h: h.answer(200, b"x" * 2_000),
        bomb=lambda h: h.answer(200, bomb, Content_Encoding="gzip"),
        fits=lambda h: h.answer(200, gzip.compress(b"hello"), Content_Encoding="gzip"),
    )
    small = client(server, max_bytes=1_000)

    for path in ("/plain", "/bomb"):
        with pytest.raises(TerminalError) as caught:
            small.request("GET", server.url(path))
        assert caught.value.code == "egress_too_large"
    assert small.request("GET", server.url("/fits")).read() == b"hello"


def test_a_body_that_ends_early_is_an_error(serve: Callable[..., Server]) -> None:
    """Half an answer is never taken for a whole one."""

    def short(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        handler.close_connection = True

    def chunked(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
        handler.close_connection = True

    server = serve(short=short, chunked=chunked)

    for path in ("/short", "/chunked"):
        with pytest.raises(RetryableError) as caught:
            client(server).request("GET", server.url(path))
        assert caught.value.code == "egress_failed"


def test_silence_ends_after_the_read_time_out(serve: Callable[..., Server]) -> None:
    """A server that stops sending is given up, and told so."""
    server = serve(x=hold)
    began = time.monotonic()

    with pytest.raises(RetryableError, match="did not answer in time"):
        client(server).request("GET", server.url("/x"), timeout=Timeouts(read=0.2))

    assert time.monotonic() - began < SOON
    assert server.gone.wait(SOON)


@pytest.mark.parametrize("where", ["headers", "body"])
def test_a_dribbling_server_ends_after_the_total_time_out(
    serve: Callable[..., Server], where: str
) -> None:
    """Many small gaps cannot stretch a request beyond its whole time."""

    def dribble(handler: Handler) -> None:
        ending = b"\r\n\r\n" if where == "body" else b"\r\nX-A: "
        handler.wfile.write(b"HTTP/1.1 200 OK" + ending)
        for _ in range(100):
            handler.wfile.write(b"x")
            time.sleep(0.02)

    server = serve(x=dribble)
    began = time.monotonic()

    with pytest.raises(RetryableError, match="did not answer in time"):
        client(server).request("GET", server.url("/x"), timeout=0.3)

    assert 0.25 < time.monotonic() - began < SOON


def test_a_refused_connection_may_be_tried_again() -> None:
    """Nobody listening is a failure of the network."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        netloc = f"127.0.0.1:{closed.getsockname()[1]}"

    with pytest.raises(RetryableError) as caught:
        Client(Guard(frozenset({netloc}))).request("GET", f"http://{netloc}/")

    assert caught.value.code == "egress_failed"


def test_close_from_another_thread_ends_a_wait_at_once(serve: Callable[..., Server]) -> None:
    """Who cancels need not wait for the reader, and the server sees the end."""
    server = serve(x=hold)
    cut = client(server)
    response = cut.request("GET", server.url("/x"), stream=True)
    pieces = response.iter_bytes()
    assert next(pieces) == b"first"
    began: list[float] = []

    def close() -> None:
        began.append(time.monotonic())
        cut.close()

    threading.Timer(0.1, close).start()
    with pytest.raises(RetryableError, match="the client was closed"):
        next(pieces)

    assert time.monotonic() - began[0] < 0.2
    assert server.gone.wait(0.2)
    with pytest.raises(RetryableError, match="the client was closed"):
        cut.request("GET", server.url("/x"))


def test_close_ends_a_wait_for_the_headers(serve: Callable[..., Server]) -> None:
    """A request that has no answer yet is ended as well."""
    released = threading.Event()
    server = serve(x=lambda _: released.wait(10))
    cut = client(server)
    threading.Timer(0.1, cut.close).start()
    began = time.monotonic()

    with pytest.raises(RetryableError, match="the client was closed"):
        cut.request("GET", server.url("/x"))

    assert time.monotonic() - began < SOON
    released.set()


def test_leaving_a_stream_closes_its_socket(serve: Callable[..., Server]) -> None:
    """A response left half-way does not keep its server busy."""
    server = serve(x=hold)

    with client(server).request("GET", server.url("/x"), stream=True) as response:
        assert next(response.iter_bytes()) == b"first"

    assert server.gone.wait(0.2)


def test_no_socket_stays_open_after_its_request(serve: Callable[..., Server]) -> None:
    """The client forgets a connection when the answer was read, failed or refused."""
    server = serve(
        x=lambda h: h.answer(200, b"ok"),
        loop=lambda h: h.answer(302, Location="/loop"),
    )
    own = client(server, max_bytes=1)

    for path in ("/x", "/loop"):
        with pytest.raises(TerminalError):
            own.request("GET", server.url(path))

    assert own._wires == set()


@pytest.mark.needs("openssl")
def test_https_checks_the_certificate_against_the_name(
    tmp_path: Path, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SNI and certificate are about the URL's host, the connection about the checked address."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=model.test", "-addext", "subjectAltName=DNS:model.test"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make.split(), *names, *files], check=True, capture_output=True)
    server = serve(x=lambda h: h.answer(200, b"ok"))
    served: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.sni_callback = lambda _, name, __: served.append(name)  # type: ignore[assignment, misc, return-value]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    port = server.server_address[1]
    answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    allowed = Client(Guard(frozenset({f"model.test:{port}", f"wrong.test:{port}"})))

    with pytest.raises(TerminalError, match="certificate") as caught:
        allowed.request("GET", f"https://model.test:{port}/x")
    assert caught.value.code == "egress_failed"
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(wire, "_tls", lambda: trusting)

    assert allowed.request("GET", f"https://model.test:{port}/x").read() == b"ok"
    assert served[-1] == "model.test"
    with pytest.raises(TerminalError, match="certificate"):
        allowed.request("GET", f"https://wrong.test:{port}/x")


def test_the_hook_into_urllib3_still_exists() -> None:
    """An upgrade that renames the one private method used must fail here, loudly."""
    for kind in (HTTPConnection, HTTPSConnection):
        source = inspect.getsource(kind.connect)
        assert list(inspect.signature(kind._new_conn).parameters) == ["self"]
        assert "self._new_conn()" in source


def test_http_request_gives_json_text_or_bytes(serve: Callable[..., Server]) -> None:
    """The body comes in the shape its type promises, or as text when it does not keep it."""
    server = serve(
        json=lambda h: h.answer(200, b'{"a": 1}', Content_Type="application/problem+json"),
        broken=lambda h: h.answer(404, b"{NaN", Content_Type="application/json"),
        latin=lambda h: h.answer(200, b"\xe9", Content_Type="text/plain; charset=latin-1"),
        binary=lambda h: h.answer(200, b"\xff\xfe\x00", Content_Type="image/png"),
    )
    outputs = {
        path: run_node("http.request", {"url": server.url(path)}, allow=frozenset({server.netloc}))
        for path in ("/json", "/broken", "/latin", "/binary")
    }

    assert outputs["/json"].output["json"] == {"a": 1}
    assert outputs["/broken"].output["body"] == "{NaN"
    assert outputs["/broken"].output["status"] == 404
    assert outputs["/latin"].output["body"] == "é"
    assert outputs["/binary"].output["body_base64"] == "//4A"
    assert outputs["/json"].output["headers"]["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [(429, {"Retry-After": "7"}, 7.0), (503, {"Retry-After": "2"}, 2.0), (500, {}, None)],
)
def test_http_request_tries_again_what_may_heal(
    serve: Callable[..., Server], status: int, headers: dict[str, str], wait: float | None
) -> None:
    """429 and 5xx are failures with the server's own waiting time and words."""
    server = serve(x=lambda h: h.answer(status, b"busy", **headers))

    with pytest.raises(RetryableError, match=f"{status}: busy") as caught:
        run_node("http.request", {"url": server.url("/x")}, allow=frozenset({server.netloc}))

    assert caught.value.retry_after == wait


def test_http_request_writes_with_one_key_for_all_attempts(
    serve: Callable[..., Server],
) -> None:
    """A server can tell a repeated attempt from a second request; a caller's key wins."""
    server = serve(x=lambda h: h.answer(200))
    allow = frozenset({server.netloc})
    inputs: dict[str, Any] = {"url": server.url("/x"), "method": "post", "body": "b"}

    run_node("http.request", inputs, allow=allow)
    run_node("http.request", inputs, allow=allow, attempt=2)
    run_node("http.request", {**inputs, "headers": {"idempotency-key": "mine"}}, allow=allow)
    run_node("http.request", {"url": server.url("/x")}, allow=allow)

    keys = [
        seen[2].get("Idempotency-Key") or seen[2].get("idempotency-key") for seen in server.seen
    ]
    assert keys[0] is not None
    assert keys == [keys[0], keys[0], "mine", None]


def test_http_request_takes_one_body(serve: Callable[..., Server]) -> None:
    """Both bodies at once are an error of the inputs."""
    server = serve(x=lambda h: h.answer(200))

    with pytest.raises(AsyncNodesError) as caught:
        run_node("http.request", {"url": server.url("/x"), "json": 1, "body": "x"})

    assert caught.value.code == "invalid_inputs"


def test_the_client_is_cooperative_under_gevent() -> None:
    """In a patched process waits do not block others, and a close ends one at once."""
    script = """
        from gevent import monkey; monkey.patch_all()
        import gevent, socket, time
        from async_nodes.egress import Client, Guard
        from async_nodes.core.errors import RetryableError

        listener = socket.create_server(("127.0.0.1", 0))
        netloc = f"127.0.0.1:{listener.getsockname()[1]}"
        peers = []
        def accept():
            while True:
                peer, _ = listener.accept()
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\nfirst")
                peers.append(peer)
        gevent.spawn(accept)

        def read(client):
            with client.request("GET", f"http://{netloc}/", stream=True, timeout=30) as response:
                for _ in response.iter_bytes():
                    pass

        closed, killed = Client(Guard(frozenset({netloc}))), Client(Guard(frozenset({netloc})))
        first, second = gevent.spawn(read, closed), gevent.spawn(read, killed)
        while len(peers) < 2:
            gevent.sleep(0.01)
        gevent.sleep(0.05)
        began = time.monotonic()
        closed.close()
        second.kill(block=False)
        for peer in peers:
            assert peer.recv(1) == b"", "the server must see the end"
        assert time.monotonic() - began < 0.2, time.monotonic() - began
        gevent.joinall([first, second], timeout=2)
        assert isinstance(first.exception, RetryableError), first.exception
        assert second.dead and not closed._wires and not killed._wires
        print("ok")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.stdout.strip() == "ok", done.stderr
