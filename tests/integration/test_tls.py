"""TLS of the web process: versions, tickets, renewal, storms, and clients that mean no good."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from async_nodes.access.serving.certificate import valid_until
from tests.integration.tls_server import Certificate, TlsServer, answer, client, get, run
from tests.integration.web import ROOT
from tests.servers import RedisServer

pytestmark = pytest.mark.needs("openssl")

V10, V11 = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
Start = Callable[..., TlsServer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def certificate(folder: Path) -> Certificate:
    return Certificate(folder)


@pytest.fixture
def start(tmp_path: Path, one_server: RedisServer) -> Iterator[Start]:
    """Return a function that starts a server of the test's own."""
    made: list[TlsServer] = []

    def begin(*words: str, ready: int = 1, **environ: str) -> TlsServer:
        server = TlsServer(one_server.url, tmp_path / f"log-{len(made)}", *words, **environ)
        made.append(server)
        server.start(ready=ready)
        return server

    yield begin
    for server in made:
        server.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def _kept() -> Iterator[dict[str, TlsServer]]:
    kept: dict[str, TlsServer] = {}
    yield kept
    for server in kept.values():
        assert server.stop() == 0, server.log


@pytest.fixture
def served(
    _kept: dict[str, TlsServer], folder: Path, certificate: Certificate, one_server: RedisServer
) -> TlsServer:
    """Return a single web process that the tests of this module share."""
    if one_server.url not in _kept:
        server = TlsServer(one_server.url, folder / "log", **certificate.environ)
        server.start()
        _kept[one_server.url] = server
    return _kept[one_server.url]


# -- what is agreed on -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V12, V13])
def test_todays_versions_are_spoken(
    served: TlsServer, certificate: Certificate, version: ssl.TLSVersion
) -> None:
    """A verifying client gets HTTP/1.1, and its end is said before the connection ends."""
    with served.connect(client(certificate, version)) as sock:
        assert sock.version() == version.name.replace("_", ".")
        assert sock.selected_alpn_protocol() == "http/1.1"
        assert get(sock)[1]["status"] == "ok"
        assert get(sock, last=True)[0] == 200
        assert sock.recv(1) == b""


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1")
@pytest.mark.parametrize("version", [V10, V11])
def test_older_versions_are_refused(served: TlsServer, version: ssl.TLSVersion) -> None:
    """The server itself says no: the client would agree to them."""
    refused = pytest.raises(ssl.SSLError, match=r"(?i)protocol.version|unsupported protocol")
    with refused, served.connect(client(version=version)):
        pass


@pytest.mark.parametrize("ciphers", ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "kRSA"])
def test_old_ciphers_are_refused(served: TlsServer, ciphers: str) -> None:
    """Without forward secrecy or authenticated encryption there is no connection."""
    context = client(version=V12)
    context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"), served.connect(context):
        pass


def test_the_lane_works_and_addresses_are_known(served: TlsServer) -> None:
    """A submit and reads over one connection, among them bodies of more than one record."""
    with served.connect(client()) as sock:
        text = "x" * 100_000
        body = json.dumps({"node": "echo", "inputs": {"text": text}}).encode()
        head = (
            "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        sock.sendall(head.encode() + body)
        status, accepted = answer(sock)
        assert status == 202
        for _ in range(3):
            status, record = get(sock, f"/v1/tasks/{accepted['task_id']}")
            assert (status, record["inputs"]["text"]) == (200, text)


# -- tickets ---------------------------------------------------------------------------------------


def came_back(
    server: TlsServer, version: ssl.TLSVersion, processes: int
) -> dict[tuple[int | None, int | None], bool]:
    """Return whether tickets were taken, by who gave them and who got them."""
    context = client(version=version)
    found: dict[tuple[int | None, int | None], bool] = {}
    until = time.monotonic() + 20
    while len(found) < processes**2 and time.monotonic() < until:
        with server.connect(context) as sock:
            first = get(sock)[1]["process"]
            session = sock.session  # with 1.3 it comes after the handshake
        with server.connect(context, session) as sock:
            found[first, get(sock)[1]["process"]] = bool(sock.session_reused)
    return found


@pytest.mark.parametrize("version", [V12, V13])
def test_a_ticket_is_good_in_every_process(
    start: Start, certificate: Certificate, version: ssl.TLSVersion
) -> None:
    """Of two processes each takes the other's, also after both were replaced."""
    server = start("--processes", "2", ready=2, **certificate.environ)
    everywhere = {(first, second): True for first in (0, 1) for second in (0, 1)}
    assert came_back(server, version, 2) == everywhere
    with server.connect(client(version=version)) as sock:
        get(sock)
        before, context = sock.session, sock.context
    server.send(signal.SIGHUP)
    server.until(lambda: "action=web_rolled" in server.log)
    with server.connect(context, before) as sock:
        assert get(sock)[0] == 200
        assert sock.session_reused
    assert came_back(server, version, 2) == everywhere


def test_a_single_process_takes_its_own_tickets(served: TlsServer) -> None:
    """And counts them."""
    for version in (V12, V13):
        assert came_back(served, version, 1) == {(None, None): True}
    with served.connect(client()) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: sock.recv(65536), b"")).decode()
    for outcome in ("full", "resumed"):
        assert f'async_nodes_tls_handshakes_total{{outcome="{outcome}"}}' in text


# -- clients that mean no good ---------------------------------------------------------------------


def test_plain_http_is_told_so(served: TlsServer) -> None:
    """A problem document for a request, a closed connection for anything else."""
    with served.plain() as sock:
        status, problem = get(sock)
        assert (status, problem["code"]) == (400, "bad_request")
        assert "https://" in problem["detail"]
        assert sock.recv(1) == b""
    for noise in (b"\x80garbage\r\n\r\n", b"\x16\x03\x01 what follows is none", b"\x16"):
        with served.plain() as sock:
            sock.sendall(noise)
            with suppress(OSError):  # the server may be the quicker to close
                sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                assert not sock.makefile("rb").read().startswith(b"HTTP")
    with served.connect(client()) as sock:
        assert get(sock)[0] == 200
    assert "Traceback" not in served.log


def test_a_handshake_that_does_not_end_is_cut(served: TlsServer) -> None:
    """Whoever says nothing, or half of it, is gone after ten seconds and costs nobody anything."""
    context, said, began = client(), hello(), time.monotonic()
    slow = [served.plain() for _ in range(300)]
    for number, sock in enumerate(slow):
        sock.sendall((b"", said[:100], said)[number % 3])
    times = []
    for _ in range(20):
        started = time.perf_counter()
        with served.connect(context) as sock:
            assert get(sock)[0] == 200
        times.append(time.perf_counter() - started)
    assert statistics.median(times) < 0.5
    for sock in slow:
        sock.settimeout(15)
        assert rest(sock) is not None
        sock.close()
    assert 9 < time.monotonic() - began < 14


LIMITED = """
from gevent import monkey; monkey.patch_all()
import sys
from async_nodes.access.serving import tls_handshake
from async_nodes.cli.main import main
tls_handshake.MAX_HANDSHAKES = 5
sys.exit(main(sys.argv[1:]))
"""


def test_of_too_many_handshakes_the_oldest_are_given_up(
    one_server: RedisServer, certificate: Certificate, tmp_path: Path
) -> None:
    """Who began one and does not go on makes room, and honest clients get through at once."""
    server = TlsServer(one_server.url, tmp_path / "log", **certificate.environ)
    server.argv = [sys.executable, "-c", LIMITED, *server.argv[4:]]
    server.start()
    try:
        begun = [half_shaken(server) for _ in range(8)]
        for number, sock in enumerate(begun):
            sock.settimeout(5.0 if number < 3 else 0.3)
            if number < 3:
                assert rest(sock) is not None, number
            else:
                assert rest(sock) is None, number
        for _ in range(3):
            with server.connect(client()) as sock:
                assert get(sock)[0] == 200
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 3
        for sock in begun:
            sock.close()
    finally:
        server.stop(signal.SIGKILL)


def half_shaken(server: TlsServer) -> socket.socket:
    """Return a connection on which the server has answered and waits for the client."""
    sock = server.plain()
    sock.sendall(hello())
    assert sock.recv(1, socket.MSG_PEEK)
    return sock


def hello() -> bytes:
    """Return what a client says first."""
    said, unheard = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client().wrap_bio(unheard, said, server_hostname="localhost").do_handshake()
    return said.read()


def rest(sock: socket.socket) -> bytes | None:
    """Return what comes until the end of a connection, None where that does not come."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionResetError:
        return data
    except TimeoutError:
        return None
    return data


def test_a_storm_leaves_room_for_others(served: TlsServer) -> None:
    """While handshakes take all the time there is, a poll is answered soon."""
    context, ending, shaken = client(version=V13), threading.Event(), []

    def storm() -> None:
        while not ending.is_set():
            with served.connect(context):
                shaken.append(1)

    def polls(sock: Any, seconds: float) -> list[float]:
        times, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            started = time.perf_counter()
            assert get(sock)[0] == 200
            times.append(time.perf_counter() - started)
            time.sleep(0.005)
        return sorted(times)

    with served.connect(client()) as sock:
        threads = [threading.Thread(target=storm) for _ in range(16)]
        for thread in threads:
            thread.start()
        times = polls(sock, 3.0)
        ending.set()
        for thread in threads:
            thread.join(10)
    assert len(shaken) > 100
    assert times[int(len(times) * 0.9)] < 0.25, times[-10:]


def test_it_ends_promptly(start: Start, certificate: Certificate) -> None:
    """Streams are told to come back, idle and silent connections are closed, and that is said."""
    server = start(**certificate.environ)
    context = client()
    with server.connect(context) as idle, server.connect(context) as stream, server.plain() as mute:
        body = b'{"node":"echo"}'
        idle.sendall(
            b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 15\r\n\r\n" + body
        )
        task_id = answer(idle)[1]["task_id"]
        stream.sendall(
            f"GET /v1/tasks/{task_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        while b"retry: 2000" not in stream.recv(65536):
            pass  # the head comes before
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 3
        assert b"".join(iter(lambda: stream.recv(65536), b"")).endswith(
            b"retry: 1000\n\n\r\n0\r\n\r\n"
        )
        assert idle.recv(1) == b""
        assert mute.recv(1) == b""
    assert "Traceback" not in server.log


# -- certificates ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP])
@pytest.mark.parametrize("processes", [None, 2])
def test_a_renewed_certificate_is_read_again(
    start: Start, tmp_path: Path, number: signal.Signals, processes: int | None
) -> None:
    """New connections get it, old ones go on, tickets stay good, nothing is started again."""
    used = Certificate(tmp_path, "used")
    words = ["--processes", str(processes)] if processes else []
    server = start(*words, ready=processes or 1, **used.environ)
    replaced = processes is not None and number == signal.SIGHUP
    context = client(version=V12)  # with 1.3 a resumed connection shows the old certificate, too
    with server.connect(context) as old:
        pid = get(old)[1]["pid"]
        session = old.session
        used.replace_by(Certificate(tmp_path, "renewed"))
        server.send(number)
        told = "action=web_rolled" if replaced else "action=tls_reloaded"
        server.until(lambda: server.log.count(told) == (1 if replaced else processes or 1))
        if not replaced:
            assert get(old)[1]["pid"] == pid
    for _ in range(6):
        with server.connect(client(used)) as sock:
            assert sock.getpeercert(binary_form=True) == used.serial
            assert get(sock)[0] == 200
    with server.connect(context, session) as sock:
        assert sock.session_reused


def test_a_certificate_that_cannot_be_used_changes_nothing(start: Start, tmp_path: Path) -> None:
    """The one in force stays, and the log says why."""
    used, other = Certificate(tmp_path, "used"), Certificate(tmp_path, "other")
    server = start(**used.environ)
    good, serial = used.key.read_text(), used.serial
    for content in (other.key.read_text(), "nothing", ""):
        before = server.log.count("action=tls_not_reloaded")
        used.key.write_text(content)
        server.send(signal.SIGUSR1)
        server.until(lambda n=before: server.log.count("action=tls_not_reloaded") > n)
        with server.connect(client()) as sock:
            assert sock.getpeercert(binary_form=True) == serial
            assert get(sock)[0] == 200
    used.key.write_text(good)
    assert "is not the key of the certificate" in server.log


def test_wrong_files_end_the_start(tmp_path: Path, one_server: RedisServer) -> None:
    """With the file's name and what is wrong with it; nothing asks the terminal."""
    good, other = Certificate(tmp_path, "good"), Certificate(tmp_path, "other")
    locked = tmp_path / "locked.key"
    run("ec", "-in", good.key, "-aes128", "-passout", "pass:x", "-out", locked)
    cases = [
        (good.path, other.key, "is not the key of the certificate"),
        (tmp_path / "none.pem", good.key, "none.pem: No such file"),
        (good.path, tmp_path / "none.key", "none.key: No such file"),
        (good.path, locked, "the key is encrypted"),
        (good.key, good.key, "there is no certificate in it"),
    ]
    for cert, key, words in cases:
        for several in ((), ("--processes", "2")):
            server = TlsServer(
                one_server.url,
                tmp_path / "log",
                "--tls-cert",
                str(cert),
                "--tls-key",
                str(key),
                *several,
            )
            command = [*server.argv]
            done = subprocess.run(
                command, env=server.environ, capture_output=True, text=True, timeout=30, cwd=ROOT,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert done.returncode == 1
            assert words in done.stderr, done.stderr
            assert "Traceback" not in done.stderr


def test_an_end_that_is_near_is_told(start: Start, tmp_path: Path) -> None:
    """In the log, once; an expired one as well, and it is served: clients decide."""
    for days, words in ((5, "The certificate expires on"), (-1, "The certificate has expired on")):
        used = Certificate(tmp_path, f"days{days}", days=days)
        server = start("--processes", "2", ready=2, **used.environ)
        assert server.log.count(words) == 1
        with server.connect(client()) as sock:
            assert get(sock)[0] == 200


@pytest.mark.parametrize("days", [-1, 1, 400, 12_000])
def test_the_end_is_read_as_openssl_reads_it(tmp_path: Path, days: int) -> None:
    """Before and after 2050, where the notation changes."""
    made = Certificate(tmp_path, days=days)
    shown = run("x509", "-in", made.path, "-noout", "-enddate").strip().removeprefix("notAfter=")
    expected = datetime.strptime(shown, "%b %d %H:%M:%S %Y %Z").replace(tzinfo=UTC)
    found = valid_until(made.path.read_text())
    assert found == expected
    assert abs(found - datetime.now(UTC) - timedelta(days=days)) < timedelta(days=2)


def test_the_command_line_trusts_the_certificate_of_the_settings(
    served: TlsServer, certificate: Certificate, tmp_path: Path
) -> None:
    """It speaks https to the server of the settings, and to no other that says it were it."""
    environ = {**served.environ, "ASYNC_NODES_PORT": str(served.port)}
    checks = doctor(environ)
    assert checks["web"]["detail"].startswith("https://127.0.0.1:")
    assert checks["tls"]["outcome"] == "ok"
    assert "days" in checks["tls"]["detail"]
    stranger = Certificate(tmp_path, "stranger", days=3)
    checks = doctor({**environ, **stranger.environ})
    assert checks["web"]["outcome"] == "fail"
    assert "certificate verify failed" in checks["web"]["detail"].lower()
    assert checks["tls"]["outcome"] == "warn"
    assert certificate.path.exists()


def doctor(environ: dict[str, str]) -> dict[str, Any]:
    """Return the checks of the doctor by name."""
    command = [sys.executable, "-P", "-m", "async_nodes.cli", "doctor", "--json"]
    done = subprocess.run(
        command,
        env={**os.environ, **environ},
        capture_output=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}
