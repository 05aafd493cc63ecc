"""The web process over TLS for tests, started by its own command, and clients that look closely."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.web import ROOT

OPENSSL = "openssl"


class Certificate:
    """A self-signed certificate and its key, made when the test runs.

    Args:
        folder: where the two files are.
        name: of the files.
        days: it is valid from now, negative for one that was.

    """

    def __init__(self, folder: Path, name: str = "server", *, days: int = 30) -> None:
        self.path = folder / f"{name}.pem"
        self.key = folder / f"{name}.key"
        request = folder / f"{name}.csr"
        names = folder / f"{name}.ext"
        names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key)
        run("req", "-new", "-key", self.key, "-subj", "/CN=localhost", "-out", request)
        signed = ("-req", "-in", request, "-signkey", self.key, "-out", self.path)
        run("x509", *signed, "-days", days, "-extfile", names, "-set_serial", time.time_ns())

    @property
    def environ(self) -> dict[str, str]:
        """Return the settings that name it."""
        return {"ASYNC_NODES_TLS_CERT": str(self.path), "ASYNC_NODES_TLS_KEY": str(self.key)}

    @property
    def serial(self) -> bytes:
        """Return the certificate itself, to tell it from others."""
        return ssl.PEM_cert_to_DER_cert(self.path.read_text())

    def replace_by(self, other: Certificate) -> None:
        """Take the place of the files, as a renewal does."""
        self.path.write_text(other.path.read_text())
        self.key.write_text(other.key.read_text())


def run(*words: object) -> str:
    """Return what an openssl command prints."""
    command = [OPENSSL, *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class TlsServer:
    """``async-nodes serve``, with one process or more.

    Args:
        url: where Redis is.
        log: where its output goes.
        words: further options.
        environ: further settings.

    """

    def __init__(self, url: str, log: Path, *words: str, **environ: str) -> None:
        self.path = log
        base = {k: v for k, v in os.environ.items() if not k.startswith(("ASYNC_NODES", "CELERY"))}
        settings = {"ASYNC_NODES_REDIS_URL": url, "ASYNC_NODES_SHUTDOWN_SECONDS": "5"}
        self.environ = {**base, **settings, **environ}
        self.port = _free_port()
        self.argv = [sys.executable, "-P", "-m", "async_nodes.cli", "serve"]
        self.argv += ["--port", str(self.port), *words]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, ready: int = 1) -> None:
        """Start it, and wait until so many processes have the store."""
        with self.path.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv, env=self.environ, stdout=log, stderr=log, cwd=ROOT
            )
        self.until(lambda: self.log.count("action=store_open") >= ready)

    def until(self, test: Any, seconds: float = 30.0) -> None:
        """Wait until a test holds."""
        until = time.monotonic() + seconds
        while not test():
            assert self.process is not None
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, self.log
            time.sleep(0.02)

    def send(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and return its status."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(20)

    @property
    def log(self) -> str:
        """Return what it has said."""
        return self.path.read_text("utf-8")

    def plain(self) -> socket.socket:
        """Return a connection on which nothing was said yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=15)

    @contextlib.contextmanager
    def connect(
        self, context: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> Iterator[ssl.SSLSocket]:
        """Give a connection after its handshake; an end that is not said is an error."""
        with self.plain() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wrapped = context.wrap_socket(
                sock, server_hostname="localhost", session=session, suppress_ragged_eofs=False
            )
            with wrapped:
                yield wrapped


def client(
    certificate: Certificate | None = None, version: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """Return a client's context: for one certificate or any, for one version or those of today."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2", "http/1.1"])
    if certificate is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(certificate.path)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if version is not None:
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
    return context


def get(sock: Any, path: str = "/healthz", *, last: bool = False) -> tuple[int, Any]:
    """Return status and document of one request."""
    end = "Connection: close\r\n" if last else ""
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{end}\r\n".encode())
    return answer(sock)


def answer(sock: Any) -> tuple[int, Any]:
    """Return status and document of the answer that comes next."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += sock.recv(65536)
    return int(head.split()[1]), json.loads(body)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
