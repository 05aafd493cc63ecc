"""Clients of a TLS port: some that shake hands and leave, and one that polls. Run as a module.

``storm PORT SECONDS CLIENTS full|resumed`` prints how many handshakes came to their end and how
many of them were resumed. `poll` is for the benchmark's own process.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time

POLL_SECONDS = 0.005
ANSWER_SECONDS = 10.0


def context() -> ssl.SSLContext:
    """Return a context that costs the client little: it checks nothing."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def connect(
    port: int, made: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> ssl.SSLSocket:
    """Return a connection after its handshake."""
    sock = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made.wrap_socket(sock, session=session)


def exchange(sock: ssl.SSLSocket, request: bytes) -> bytes:
    """Return the answer to one request."""
    sock.sendall(request)
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0 or len(data) < end + 4 + _length(data):
        piece = sock.recv(65536)
        if not piece:
            raise ConnectionError(data)
        data += piece
    return data


def _length(data: bytes) -> int:
    return int(data.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


def poll(port: int, request: bytes, seconds: float) -> list[float]:
    """Send a request every few milliseconds over one connection; return how long each took."""
    made, times = context(), []
    with connect(port, made) as sock:
        until = time.perf_counter() + seconds
        while (started := time.perf_counter()) < until:
            exchange(sock, request)
            times.append(time.perf_counter() - started)
            time.sleep(POLL_SECONDS)
    return times


def storm(port: int, seconds: float, clients: int, *, resume: bool) -> tuple[int, int]:
    """Let so many clients connect and leave, again and again; return handshakes and resumed."""
    totals = [0, 0]
    lock, until = threading.Lock(), time.monotonic() + seconds
    request = b"GET /v1/tasks/t_00000000000000000000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n"

    def client() -> None:
        made, session, done, resumed = context(), None, 0, 0
        if resume:
            with connect(port, made) as sock:
                exchange(sock, request)  # the ticket comes after the handshake
                session = sock.session
        while time.monotonic() < until:
            try:
                with connect(port, made, session) as sock:
                    done += 1
                    resumed += bool(sock.session_reused)
            except OSError:
                continue
        with lock:
            totals[0] += done
            totals[1] += resumed

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return totals[0], totals[1]


if __name__ == "__main__":
    _, _, port_, seconds_, clients_, kind = sys.argv
    print(*storm(int(port_), float(seconds_), int(clients_), resume=kind == "resumed"))
