"""What the Redis connections must withstand, each as a program of its own.

A gevent-patched process cannot be made inside pytest, so `test_redis_connection*.py` run this file:

    python redis_connection_scenarios.py patched|plain SCENARIO SERVER_BINARY

A scenario starts the servers it needs, asserts, and exits with 1 and a traceback when it fails.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.argv[1] == "patched":
    from gevent import monkey

    monkey.patch_all()

import contextlib
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import gevent
from gevent.monkey import get_original
from gevent.server import StreamServer
from redis.exceptions import (
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

from async_nodes.storage.redis_connection import (
    BlockingConnection,
    NotSent,
    OutcomeUnknown,
    PipelinedConnection,
    StoreBusy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MIB = 1024 * 1024
EVERY_BYTE = bytes(range(256))


class Server:
    """A Redis server on a unix socket in a temporary directory, ended with the scenario."""

    def __init__(self, *options: str) -> None:
        self.directory = tempfile.mkdtemp(prefix="an-")
        self.path = f"{self.directory}/s"
        self.url = f"unix://{self.path}"
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.directory)

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = [sys.argv[3], "--port", "0", "--unixsocket", self.path, "--save", ""]
        self.process = subprocess.Popen(
            [*command, "--dir", self.directory, *self.options], stdout=subprocess.DEVNULL
        )
        control = BlockingConnection(self.url)
        control.call("PING", timeout=5)
        control.close()

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.process.kill()  # works on a stopped process too
        self.process.wait()

    def stop(self) -> None:
        """Hang it by SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def connected(server: Server, **options: Any) -> Iterator[PipelinedConnection]:
    connection = PipelinedConnection(server.url, **options)
    connection.call("PING", timeout=2)
    try:
        yield connection
    finally:
        connection.close()


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
    """Return (result or exception, seconds)."""
    start = time.monotonic()
    try:
        result = function(*args, **options)
    except Exception as error:  # noqa: BLE001 - what it is, the scenario judges
        result = error
    return result, time.monotonic() - start


def together(count: int, function: Callable[[int], Any]) -> list[Any]:
    greenlets = [gevent.spawn(function, number) for number in range(count)]
    gevent.joinall(greenlets, raise_error=True, timeout=30)
    assert all(greenlet.dead for greenlet in greenlets)
    return [greenlet.value for greenlet in greenlets]


# -- the shared connection ------------------------------------------------------------------------


def order() -> None:
    with Server() as server, connected(server) as redis:

        def talk(number: int) -> None:
            for turn in range(20):
                text = b"%d-%d" % (number, turn)
                assert redis.call("ECHO", text, timeout=10) == text
                pair = redis.call_many([("ECHO", text), ("ECHO", b"x" + text)], timeout=10)
                assert pair == [text, b"x" + text]

        together(1000, talk)
        stats = redis.stats
        assert stats.calls == 1 + 1000 * 40
        assert stats.sends < stats.calls / 20, stats
        assert stats.waiting == 0
        assert stats.connects == 1


def cut() -> None:
    with Server() as server, connected(server) as redis:
        stop_at = time.monotonic() + 1.0

        def count(number: int) -> Counter[type]:
            seen = Counter()
            while time.monotonic() < stop_at:
                result, _ = outcome(redis.call, "INCR", f"n{number}", timeout=2)
                assert isinstance(result, int | NotSent | OutcomeUnknown), result
                seen[type(result)] += 1
            return seen

        def cutter() -> None:
            control = BlockingConnection(server.url)
            for _ in range(5):
                get_original("time", "sleep")(0.15)
                control.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            control.close()

        get_original("_thread", "start_new_thread")(cutter, ())
        seen = together(100, count)
        for number, counts in enumerate(seen):
            ran = int(redis.call("GET", f"n{number}", timeout=2))
            assert counts[int] <= ran <= counts[int] + counts[OutcomeUnknown]
        assert redis.stats.connects >= 4, redis.stats
        assert redis.stats.waiting == 0


def hang() -> None:
    with Server() as server, connected(server, timeout=0.3, stall_timeout=0.6) as redis:
        server.stop()
        for result, seconds in together(50, lambda _: outcome(redis.call, "GET", "k")):
            assert isinstance(result, OutcomeUnknown)
            assert 0.25 < seconds < 1, seconds
        assert redis.connected
        result, _ = outcome(redis.call, "GET", "k", timeout=1)
        assert isinstance(result, OutcomeUnknown)
        assert "no answer" in result.detail
        assert not redis.connected
        for result, seconds in together(50, lambda _: outcome(redis.call, "GET", "k")):
            assert isinstance(result, NotSent)
            assert result.code == "store_unavailable"
            assert 0.25 < seconds < 1, seconds
        server.resume()
        assert redis.call("ECHO", "back", timeout=3) == b"back"


def late_replies() -> None:
    with Server() as server, connected(server, timeout=0.2) as redis:
        server.stop()
        assert all(
            isinstance(result, OutcomeUnknown)
            for result, _ in together(20, lambda number: outcome(redis.call, "ECHO", number))
        )
        assert redis.stats.waiting == 20
        server.resume()
        assert together(20, lambda n: redis.call("ECHO", f"new{n}")) == [
            b"new%d" % n for n in range(20)
        ]
        assert redis.stats.waiting == 0
        assert redis.stats.connects == 1
        assert redis.stats.timeouts == 20


def restart() -> None:
    with Server() as server, connected(server) as redis:
        server.kill()
        gevent.sleep(0.05)
        result, seconds = outcome(redis.call, "GET", "k", timeout=0.3)
        assert isinstance(result, NotSent)
        assert seconds < 1
        assert server.path in result.detail
        waiting = gevent.spawn(redis.call, "ECHO", "patient", timeout=5)
        gevent.sleep(1.5)  # let the back-off reach its longest
        server.start()
        start = time.monotonic()
        assert waiting.get() == b"patient"
        assert time.monotonic() - start < 2.5
        assert redis.stats.connects == 2


def not_yet_there() -> None:
    server = Server()
    redis = PipelinedConnection(server.url)
    waiting = gevent.spawn(redis.call, "ECHO", "early", timeout=5)
    gevent.sleep(0.2)
    with server:
        assert waiting.get() == b"early"


def big() -> None:
    with Server() as server, connected(server, timeout=10) as redis:
        value = random.randbytes(8 * MIB)
        redis.call("SET", EVERY_BYTE, value)

        def mixed(number: int) -> None:
            if number % 10 == 0:
                assert redis.call("GET", EVERY_BYTE) == value
            else:
                text = b"\r\n%d\x00" % number
                assert redis.call("ECHO", text) == text

        together(50, mixed)
        assert redis.call("ECHO", EVERY_BYTE) == EVERY_BYTE
        assert redis.call("ECHO", "") == b""
        assert redis.call("ECHO", "ü\u2028") == "ü\u2028".encode()
        replies = redis.call_many([("SET", f"k{n}", value[: n * 1000]) for n in range(300)])
        assert replies == [b"OK"] * 300
        assert redis.call("STRLEN", "k299") == 299_000


def killed_greenlets() -> None:
    with Server() as server, connected(server, timeout=5) as redis:
        stop_at = time.monotonic() + 1.0
        kinds = Counter()

        def talk(number: int) -> None:
            turn = 0
            while time.monotonic() < stop_at:
                turn += 1
                text = b"%d-%d" % (number, turn)
                with gevent.Timeout(random.choice([0.0005, 0.002, 1]), False):
                    assert redis.call("ECHO", text) == text
                    kinds["answered"] += 1
                    continue
                kinds["timeout"] += 1

        def killer() -> None:
            while time.monotonic() < stop_at:
                victims = [gevent.spawn(talk, -n) for n in range(20)]
                gevent.sleep(random.random() * 0.01)
                gevent.killall(victims)
                kinds["killed"] += len(victims)

        killing = gevent.spawn(killer)
        together(100, talk)
        killing.get()
        assert kinds["answered"] > 200, kinds
        assert kinds["timeout"] > 20, kinds
        assert kinds["killed"] > 40, kinds
        assert redis.call("ECHO", "after") == b"after"
        assert redis.stats.waiting == 0
        assert redis.stats.connects == 1


def killed_unsent() -> None:
    with Server() as server, connected(server) as redis:
        stopped = gevent.spawn(redis.call, "SET", "never", 1)

        def kill_in_the_same_turn() -> None:
            # `stopped` has queued its command by now; the loop has not sent it yet.
            stopped.throw(gevent.GreenletExit)

        gevent.spawn(kill_in_the_same_turn)
        stopped.join()
        assert redis.call("EXISTS", "never") == 0
        assert redis.stats.waiting == 0


def bounds() -> None:
    with Server() as server, connected(server, max_calls=100, timeout=1) as redis:
        server.stop()
        waiting = [gevent.spawn(outcome, redis.call, "GET", "k") for _ in range(100)]
        gevent.sleep(0.05)
        result, seconds = outcome(redis.call, "GET", "k")
        assert isinstance(result, StoreBusy)
        assert result.code == "store_busy"
        assert result.status == 503
        assert seconds < 0.2
        result, _ = outcome(redis.call_many, [("GET", "k")] * 2)
        assert isinstance(result, StoreBusy)
        server.resume()
        assert [greenlet.get()[0] for greenlet in waiting] == [None] * 100
        assert redis.call_many([("ECHO", n) for n in range(500)])[499] == b"499"

    with Server() as server, connected(server, max_bytes=MIB, timeout=2) as redis:
        server.stop()
        first = gevent.spawn(redis.call, "SET", "k", b"x" * (8 * MIB))
        gevent.sleep(0.05)
        result, seconds = outcome(redis.call, "SET", "l", b"y" * 1000)
        assert isinstance(result, StoreBusy)
        assert seconds < 0.2
        server.resume()
        assert first.get() == b"OK"
        assert redis.call("SET", "l", b"y" * (2 * MIB)) == b"OK"


def error_replies() -> None:
    with Server() as server, connected(server) as redis:
        result, _ = outcome(redis.call, "EVALSHA", "0" * 40, 0)
        assert type(result) is NoScriptError
        assert str(result).startswith("NOSCRIPT ")
        replies = redis.call_many([("SET", "k", 1), ("LPUSH", "k", 1), ("GET", "k")])
        assert replies[0] == b"OK"
        assert type(replies[1]) is ResponseError
        assert replies[1].status_code == "WRONGTYPE"
        assert replies[2] == b"1"
        redis.call("CONFIG", "SET", "maxmemory", 1)
        assert type(outcome(redis.call, "SET", "k", 2)[0]) is OutOfMemoryError
        redis.call("CONFIG", "SET", "maxmemory", 0)
        redis.call("REPLICAOF", "127.0.0.1", 1)
        assert type(outcome(redis.call, "SET", "k", 2)[0]) is ReadOnlyError
        redis.call("REPLICAOF", "NO", "ONE")
        assert redis.call("EVAL", "return {1,{'a',false},redis.error_reply('MY x')}", 0)[:2] == [
            1,
            [b"a", None],
        ]
        assert redis.call("GET", "nothing") is None
        assert redis.call_many([]) == []


@contextlib.contextmanager
def impostor(handle: Callable[[Any], Any]) -> Iterator[PipelinedConnection]:
    """Serve a unix socket with `handle(socket)` once the client's PING was answered."""

    def converse(client: Any, _address: object) -> None:
        while b"PING" not in client.recv(1000):
            pass
        client.sendall(b"+PONG\r\n")
        handle(client)

    directory = tempfile.mkdtemp(prefix="an-")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{directory}/s")
    listener.listen()
    server = StreamServer(listener, converse)
    server.start()
    redis = PipelinedConnection(f"unix://{directory}/s")
    try:
        yield redis
    finally:
        redis.close()
        server.stop()
        shutil.rmtree(directory)


def unsent_or_unknown() -> None:
    with impostor(lambda _: gevent.sleep(0.2)) as redis:
        calls = [gevent.spawn(outcome, redis.call, "SET", "k", b"x" * (8 * MIB), timeout=3)]
        calls += [gevent.spawn(outcome, redis.call, "SET", n, "y", timeout=3) for n in range(10)]
        results = [greenlet.get() for greenlet in calls]
        assert type(results[0][0]) is OutcomeUnknown, results
        assert results[0][0].code == "outcome_unknown"
        assert {type(result) for result, _ in results[1:]} == {NotSent}
        assert max(seconds for _, seconds in results) < 1


def half_answered() -> None:
    def answer_one(client: Any) -> None:
        client.recv(1000)
        client.sendall(b":1\r\n")

    with impostor(answer_one) as redis:
        calls = [gevent.spawn(outcome, redis.call, "INCR", n, timeout=3) for n in range(3)]
        results = [greenlet.get()[0] for greenlet in calls]
        assert results[0] == 1
        assert {type(result) for result in results[1:]} == {OutcomeUnknown}


def answered_before_a_failed_write() -> None:
    def answer_and_go(client: Any) -> None:
        client.recv(1000)
        client.sendall(b":1\r\n")
        client.shutdown(socket.SHUT_RDWR)
        # Written in this very turn of the loop, before the answer above has been read.
        calls.append(gevent.spawn(outcome, redis.call, "INCR", "b", timeout=3))

    with impostor(answer_and_go) as redis:
        calls = [gevent.spawn(outcome, redis.call, "INCR", "a", timeout=3)]
        assert calls[0].get()[0] == 1
        assert isinstance(calls[1].get()[0], NotSent)


def not_redis() -> None:
    def refuse(client: Any) -> None:
        client.recv(1000)
        client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with impostor(refuse) as redis:
        result, seconds = outcome(redis.call, "GET", "k")
        assert isinstance(result, OutcomeUnknown)
        assert "RESP" in result.detail
        assert seconds < 1


def posted() -> None:
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("async_nodes").addHandler(handler)
    with Server() as server, connected(server) as redis:
        redis.post("SET", "k", "v")
        assert redis.call("GET", "k") == b"v"
        redis.post("LPUSH", "k", "v")
        assert redis.call("GET", "k") == b"v"
        assert [record.action for record in records if record.levelno >= logging.WARNING] == [
            "redis_post_failed"
        ]
        assert redis.stats.waiting == 0


def handshake() -> None:
    with Server() as server:
        BlockingConnection(server.url).call("CONFIG", "SET", "requirepass", "open sesame")
        url = f"unix://:open%20sesame@{server.path}?db=3"
        for redis in (
            PipelinedConnection(url, client_name="me"),
            BlockingConnection(url, client_name="me"),
        ):
            info = redis.call("CLIENT", "INFO")
            assert b" name=me " in info
            assert b" db=3 " in info
            redis.close()
        for kind in (PipelinedConnection, BlockingConnection):
            redis = kind(f"unix://:swordfish@{server.path}")
            result, seconds = outcome(redis.call, "GET", "k", timeout=0.3)
            assert isinstance(result, NotSent)
            assert "password" in result.detail
            assert "swordfish" not in result.detail
            assert seconds < 1
            redis.close()


def stuck_hub() -> None:
    """The replies came in time; that this process slept over them is not the server's fault."""
    with Server() as server, connected(server, timeout=0.2, stall_timeout=0.3) as redis:
        waiting = [gevent.spawn(redis.call, "ECHO", n) for n in range(10)]
        gevent.sleep(0)
        gevent.sleep(0)
        busy(1.0)
        assert [greenlet.get() for greenlet in waiting] == [b"%d" % n for n in range(10)]
        assert redis.stats.connects == 1
        assert redis.stats.timeouts == 0


def busy(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def native_thread() -> None:
    with Server() as server:
        lease = BlockingConnection(server.url, timeout=0.5)
        renewals, failures = [], []

        def renew() -> None:
            try:
                while len(renewals) < 20:
                    assert lease.call("INCR", "lease") == len(renewals) + 1
                    renewals.append(time.monotonic())
                    get_original("time", "sleep")(0.05)
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                failures.append(error)

        get_original("_thread", "start_new_thread")(renew, ())
        start = time.monotonic()
        busy(1.5)
        assert not failures, failures
        assert len([at for at in renewals if at < start + 1.5]) >= 5, len(renewals)
        while len(renewals) < 20:
            gevent.sleep(0.01)
        assert lease.call("GET", "lease") == b"20"

        def contend() -> None:
            try:
                for turn in range(300):
                    assert lease.call("ECHO", turn, timeout=5) == b"%d" % turn
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                failures.append(error)
            ended.append(True)

        ended: list[bool] = []
        for _ in range(3):
            get_original("_thread", "start_new_thread")(contend, ())
        contend()  # the hub may use the same connection too, and is held up meanwhile
        while len(ended) < 4:
            gevent.sleep(0.01)
        assert not failures, failures


def native_reconnect() -> None:
    with Server() as server:
        lease = BlockingConnection(server.url, timeout=0.5)
        results = []

        def renew() -> None:
            for _ in range(30):
                results.append(outcome(lease.call, "PING"))
                get_original("time", "sleep")(0.05)
            results.append(None)

        get_original("_thread", "start_new_thread")(renew, ())
        busy(0.2)
        server.kill()
        busy(0.4)
        server.start()
        busy(0.5)
        while results[-1] is not None:
            gevent.sleep(0.01)
        assert results[0][0] == b"PONG"
        assert results[-2][0] == b"PONG"
        assert {type(r) for r, _ in results[:-1]} <= {bytes, NotSent, OutcomeUnknown}
        assert max(seconds for _, seconds in results[:-1]) < 1.5


def misuse() -> None:
    with Server() as server, connected(server) as redis:
        caught = []

        def attempt() -> None:
            caught.append(outcome(redis.call, "PING")[0])

        gevent.get_hub().loop.run_callback(attempt)
        gevent.sleep(0.01)
        get_original("_thread", "start_new_thread")(attempt, ())
        gevent.sleep(0.2)
        assert [type(error) for error in caught] == [RuntimeError, RuntimeError], caught
        child = os.fork()
        if not child:
            os._exit(0 if isinstance(outcome(redis.call, "PING")[0], RuntimeError) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert redis.call("ECHO", "parent") == b"parent"


def closing() -> None:
    with Server() as server, connected(server, timeout=5) as redis:
        server.stop()
        waiting = gevent.spawn(outcome, redis.call, "GET", "k")
        gevent.sleep(0.05)
        redis.close()
        redis.close()
        result, seconds = waiting.get()
        assert isinstance(result, OutcomeUnknown)
        assert seconds < 1
        assert isinstance(outcome(redis.call, "GET", "k")[0], NotSent)
        server.resume()


def idle() -> None:
    """An idle connection does not keep its program alive."""
    with Server() as server:
        start = time.monotonic()
        program = [sys.executable, __file__, "patched", "idle_program", sys.argv[3], server.url]
        subprocess.run(program, check=True, timeout=10)
        assert time.monotonic() - start < 5


def idle_program() -> None:
    PipelinedConnection(sys.argv[4]).call("PING")
    gevent.wait()  # until nothing is left that could happen


def tls() -> None:
    with tempfile.TemporaryDirectory(prefix="an-") as directory:
        tls_with(directory)


def tls_with(directory: str) -> None:
    key, certificate = f"{directory}/key", f"{directory}/certificate"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-keyout", key, "-out", certificate, "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--tls-port", str(port), "--bind", "127.0.0.1", "--tls-auth-clients", "no")
    files = ("--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file")
    with Server(*options, *files, certificate):
        url = f"rediss://localhost:{port}/2"
        trusted = f"{url}?ssl_ca_certs={certificate}"
        value = random.randbytes(4 * MIB)
        redis = PipelinedConnection(trusted, timeout=10)
        assert redis.call("SET", "k", value) == b"OK"
        together(100, lambda n: [redis.call("ECHO", n), redis.call("GET", "k") == value][n % 2])
        replies = together(200, lambda n: redis.call("ECHO", n))
        assert replies == [b"%d" % n for n in range(200)]
        assert redis.stats.connects == 1

        redis.close()
        native = []

        def talk() -> None:
            lease = BlockingConnection(trusted, timeout=5)
            native.append(outcome(lease.call, "ECHO", value[:100_000])[0])

        assert BlockingConnection(trusted, timeout=5).call("GET", "k") == value

        get_original("_thread", "start_new_thread")(talk, ())
        until = time.monotonic() + 10
        while not native and time.monotonic() < until:
            pass  # the hub gets no turn
        assert native == [value[:100_000]], [str(item)[:200] for item in native]
        for kind in (PipelinedConnection, BlockingConnection):
            result, _ = outcome(kind(url).call, "GET", "k")
            assert isinstance(result, NotSent)
            assert "its certificate is not accepted" in result.detail


# -- the blocking connection, in a process gevent has not touched -------------------------------


def blocking_basics() -> None:
    with Server() as server:
        redis = BlockingConnection(server.url)
        assert redis.call("SET", EVERY_BYTE, EVERY_BYTE) == b"OK"
        assert redis.call("GET", EVERY_BYTE) == EVERY_BYTE
        assert type(outcome(redis.call, "EVALSHA", "0" * 40, 0)[0]) is NoScriptError
        replies = redis.call_many([("ECHO", 1), ("NOSUCH",), ("ECHO", b"3")])
        assert replies[0] == b"1"
        assert isinstance(replies[1], ResponseError)
        assert replies[2] == b"3"
        assert redis.call_many([]) == []
        big = random.randbytes(8 * MIB)
        redis.call("SET", "big", big, timeout=5)
        assert redis.call("GET", "big", timeout=5) == big
        redis.close()
        assert isinstance(outcome(redis.call, "PING")[0], NotSent)


def blocking_threads() -> None:
    with Server() as server:
        redis = BlockingConnection(server.url, timeout=5)
        wrong = []

        def talk(number: int) -> None:
            for turn in range(200):
                text = b"%d-%d" % (number, turn)
                if redis.call("ECHO", text) != text:
                    wrong.append(text)

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert int(redis.call("INFO", "clients").split(b"connected_clients:")[1].split()[0]) == 1


def blocking_failures() -> None:
    with Server() as server:
        redis = BlockingConnection(server.url, timeout=0.3)
        control = BlockingConnection(server.url)
        assert redis.call("PING") == b"PONG"
        control.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert redis.call("ECHO", "again") == b"again"  # an idle cut costs nobody anything
        server.stop()
        result, seconds = outcome(redis.call, "GET", "k")
        assert isinstance(result, OutcomeUnknown)
        assert 0.25 < seconds < 1
        result, seconds = outcome(redis.call, "GET", "k")
        assert isinstance(result, NotSent), result
        assert 0.2 < seconds < 1
        server.resume()
        assert redis.call("ECHO", "late") == b"late"
        server.kill()
        result, seconds = outcome(redis.call, "GET", "k")
        assert isinstance(result, NotSent)
        assert seconds < 1
        server.start()
        assert redis.call("ECHO", "back") == b"back"


def blocking_interrupted() -> None:
    with Server() as server:
        redis = BlockingConnection(server.url, timeout=5)

        class SoftLimitError(Exception):
            pass

        def on_alarm(*_: object) -> None:
            raise SoftLimitError

        signal.signal(signal.SIGALRM, on_alarm)
        for turn in range(10):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            result, _ = outcome(redis.call, "BLPOP", "nothing", 1)
            assert isinstance(result, SoftLimitError)
            assert redis.call("ECHO", turn) == b"%d" % turn


def blocking_fork() -> None:
    with Server() as server:
        redis = BlockingConnection(server.url)
        parent = redis.call("CLIENT", "ID")
        children = []
        for _ in range(3):
            child = os.fork()
            if not child:
                own = redis.call("CLIENT", "ID")
                right = own != parent and redis.call("ECHO", own) == b"%d" % own
                os._exit(0 if right else 1)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        assert redis.call("CLIENT", "ID") == parent


def unpatched() -> None:
    result, _ = outcome(PipelinedConnection, "redis://127.0.0.1:1")
    assert result.code == "unpatched"
    assert "BlockingConnection" in result.detail


if __name__ == "__main__":
    assert Path(sys.argv[3]).exists()
    globals()[sys.argv[2]]()
