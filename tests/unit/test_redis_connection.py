"""The parts of the Redis connections that need no server."""

from __future__ import annotations

import socket
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import (
    AskError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)

from async_nodes.core.errors import CATALOGUE, AsyncNodesError
from async_nodes.storage.pipeline_link import Call, Link, LinkBrokenError, take_socket
from async_nodes.storage.redis_address import unconnected
from async_nodes.storage.redis_connection import (
    BlockingConnection,
    NotSent,
    OutcomeUnknown,
    StoreBusy,
    StoreUnavailable,
)
from async_nodes.storage.redis_errors import reply_error
from async_nodes.storage.resp import INCOMPLETE, new_reader, pack
from async_nodes.storage.shared_commands import pack_shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FakeLoop:
    """Stand in for gevent's loop; `started` holds the events that are watched."""

    def __init__(self) -> None:
        self.started: set[int] = set()

    def io(self, _fd: int, events: int, **_: object) -> SimpleNamespace:
        """Return a watcher."""
        return SimpleNamespace(
            start=lambda _callback: self.started.add(events),
            stop=lambda: self.started.discard(events),
            close=lambda: None,
        )


Wire: TypeAlias = tuple[Link, socket.socket, FakeLoop]


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Give a link, the server's end of its socket, and the loop."""
    ours, theirs = socket.socketpair()
    connection = UnixDomainSocketConnection(path="/nowhere")
    connection._sock = ours
    theirs.settimeout(1)
    loop = FakeLoop()
    link = Link(connection, loop)
    link.start(lambda: None, lambda: None)
    yield link, theirs, loop
    link.close()
    theirs.close()


def call(*args: Any) -> Call:
    return Call(pack(args), 1, 0.0, None)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("NOSCRIPT No matching script.", NoScriptError),
        ("READONLY You can't write against a read only replica.", ReadOnlyError),
        ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemoryError),
        ("NOPERM no permissions", NoPermissionError),
        ("MASTERDOWN Link with MASTER is down", MasterDownError),
        ("WRONGTYPE Operation against a key", ResponseError),
        ("ERR unknown command", ResponseError),
        ("free text", ResponseError),
        ("", ResponseError),
    ],
)
def test_error_replies_are_classed_by_their_first_word(
    message: str, kind: type[ResponseError]
) -> None:
    """The class follows the prefix, the message keeps it, and each is a ResponseError."""
    error = reply_error(message)
    assert type(error) is kind
    assert isinstance(error, ResponseError)
    assert str(error) == message


@pytest.mark.parametrize(
    ("message", "kind"), [("MOVED 7 h:1", MovedError), ("ASK 7 h:1", AskError)]
)
def test_redirections_can_be_read(message: str, kind: type[ResponseError]) -> None:
    """Cluster redirections are parsed by redis-py's classes."""
    error = reply_error(message)
    assert type(error) is kind
    assert (error.slot_id, error.host, error.port) == (7, "h", 1)


def test_codes_are_in_the_catalogue() -> None:
    """Each failure is a StoreUnavailable with a retryable 503 of the catalogue."""
    for kind in (StoreUnavailable, NotSent, StoreBusy, OutcomeUnknown):
        error = kind("why")
        assert isinstance(error, StoreUnavailable)
        assert error.kind is CATALOGUE[error.code]
        assert (error.status, error.retryable, error.retry_after) == (503, True, 1.0)
        assert str(error) == "why"
    assert NotSent("").code == "store_unavailable"
    assert StoreBusy("").code == "store_busy"
    assert OutcomeUnknown("").code == "outcome_unknown"


@pytest.mark.parametrize("value", [None, {}, [], bytearray(b"x"), object()])
def test_arguments_that_cannot_be_sent_are_named(value: Any) -> None:
    """The TypeError says which argument has which type."""
    with pytest.raises(TypeError, match=f"item 2 of 'SET' is a {type(value).__name__}"):
        pack(["SET", "k", value])


def test_a_command_needs_a_name() -> None:
    """Nothing at all is a ValueError, not an empty request that has no reply."""
    with pytest.raises(ValueError, match="needs a name"):
        pack([])


def test_text_without_utf8_is_refused() -> None:
    """A lone surrogate is a ValueError."""
    with pytest.raises(ValueError, match="surrogates"):
        pack(["SET", "k", "\ud800"])


@pytest.mark.parametrize(
    "command",
    [
        ("BLPOP", "q", 0),
        ("blpop", "q", 0),
        (b"BRPOP", "q", 0),
        ("SUBSCRIBE", "c"),
        ("MULTI",),
        ("EXEC",),
        ("SELECT", 1),
        ("XREAD", "BLOCK", 0, "STREAMS", "s", "$"),
        ("XREADGROUP", "GROUP", "g", "c", b"block", 0, "STREAMS", "s", ">"),
        ("CLIENT", "REPLY", "OFF"),
        ("MONITOR",),
    ],
)
def test_commands_that_need_their_own_connection_are_refused(command: tuple[Any, ...]) -> None:
    """A command that blocks or changes the connection would hurt every other caller."""
    with pytest.raises(ValueError, match="connection of its own"):
        pack_shared(command)


@pytest.mark.parametrize(
    "command", [("XREAD", "STREAMS", "s", "0"), ("CLIENT", "INFO"), ("LPOP", "q"), ("GET", "BLPOP")]
)
def test_harmless_commands_are_shared(command: tuple[Any, ...]) -> None:
    """What only looks similar passes."""
    assert pack_shared(command) == pack(command)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1",
        "redis+socket:///tmp/s",
        "redis://h?no_such_option=1",
        "redis://h?socket_timeout=soon",
        "redis://h:port",
        "",
    ],
)
def test_a_wrong_url_is_an_invalid_setting(url: str) -> None:
    """The URL is refused where it is given, not at the first call."""
    with pytest.raises(AsyncNodesError) as caught:
        BlockingConnection(url)
    assert caught.value.code == "invalid_setting"


def test_a_wrong_url_does_not_show_its_password() -> None:
    """The message names the option only."""
    with pytest.raises(AsyncNodesError) as caught:
        BlockingConnection("redis://:swordfish@h?no_such_option=1")
    assert "no_such_option" in caught.value.detail
    assert "swordfish" not in caught.value.detail


def test_the_url_cannot_change_what_the_package_relies_on() -> None:
    """Protocol, decoding and time-outs are ours; address and credentials are the URL's."""
    connection = unconnected(
        "redis://u:p%40@h:7/3?protocol=3&decode_responses=1&socket_timeout=60", connect_timeout=1
    )
    assert connection.protocol == 2
    assert connection.socket_timeout == connection.socket_connect_timeout == 1
    assert not connection.encoder.decode_responses
    address = (connection.host, connection.port, connection.db)
    assert address == ("h", 7, 3)
    assert (connection.username, connection.password) == ("u", "p@")


def test_the_private_socket_of_redis_py_is_where_we_take_it() -> None:
    """A connected redis-py connection keeps its socket in `_sock`; an upgrade must not move it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        connection = unconnected(
            f"redis://127.0.0.1:{listener.getsockname()[1]}", connect_timeout=1
        )
        assert connection._sock is None
        connection.connect()
        accepted, _ = listener.accept()
        with accepted:
            sock = take_socket(connection)
            sock.sendall(b"ours")
            assert accepted.recv(10) == b"ours"
            assert connection._parser is not None
            connection.disconnect()
            assert sock.fileno() == -1


def test_a_moved_private_socket_is_reported() -> None:
    """Where `_sock` is gone, the sentence says what happened."""
    with pytest.raises(RuntimeError, match="_sock"):
        take_socket(SimpleNamespace())


def test_the_tls_options_of_redis_py_have_the_names_we_read() -> None:
    """The native stream builds its context from these attributes."""
    connection = unconnected("rediss://h?ssl_cert_reqs=none", connect_timeout=1)
    assert isinstance(connection, SSLConnection)
    for name in (
        *("check_hostname", "cert_reqs", "certfile", "keyfile", "certificate_password"),
        *("ca_certs", "ca_path", "ca_data", "ssl_min_version", "ssl_ciphers"),
        *("ssl_include_verify_flags", "ssl_exclude_verify_flags"),
        *("ssl_validate_ocsp", "ssl_validate_ocsp_stapled"),
    ):
        assert hasattr(connection, name), name
    assert isinstance(unconnected("redis://h", connect_timeout=1), Connection)


def test_replies_may_come_in_any_pieces() -> None:
    """The reader answers INCOMPLETE until a reply is whole."""
    reader = new_reader()
    data = b"$5\r\na\r\nb\x00\r\n*2\r\n:1\r\n$-1\r\n-NOSCRIPT x\r\n"
    replies = []
    for number in range(len(data)):
        reader.feed(data[number : number + 1])
        while (reply := reader.gets()) is not INCOMPLETE:
            replies.append(reply)
    assert replies[:2] == [b"a\r\nb\x00", [1, None]]
    assert type(replies[2]) is NoScriptError


def test_queued_calls_leave_in_one_send(wire: Wire) -> None:
    """Ten calls of one turn are one system call, in order."""
    link, theirs, _ = wire
    calls = [call("ECHO", n) for n in range(10)]
    queue = deque(calls)
    assert link.write(queue) == sum(len(pack(["ECHO", n])) for n in range(10))
    assert link.sends == 1
    assert not queue
    assert theirs.recv(10_000) == b"".join(pack(["ECHO", n]) for n in range(10))
    theirs.sendall(b"".join(b":%d\r\n" % n for n in range(10)))
    finished = []
    assert link.read(finished)
    assert finished == calls
    assert [item.replies for item in finished] == [[n] for n in range(10)]


def test_a_full_socket_keeps_what_was_not_sent(wire: Wire) -> None:
    """The rest waits for the socket; calls it holds back certainly were not sent."""
    link, theirs, loop = wire
    big, behind = call("SET", "k", b"x" * 4_000_000), call("GET", "k")
    queue = deque([big, behind])
    link.write(queue)
    assert 2 in loop.started
    assert link.unsent_bytes > 1_000_000
    assert link.may_have_been_sent(big)
    assert not link.may_have_been_sent(behind)
    received = bytearray()
    theirs.settimeout(0.05)
    while True:
        try:
            received += theirs.recv(1_000_000)
        except TimeoutError:
            if not link.unsent_bytes and not queue:
                break
        link.write(queue)
    assert link.may_have_been_sent(behind)
    assert 2 not in loop.started
    assert bytes(received) == pack(["SET", "k", b"x" * 4_000_000]) + pack(["GET", "k"])


def test_a_batch_ends_with_its_last_reply(wire: Wire) -> None:
    """A call of three commands is finished by the third reply, not before."""
    link, theirs, _ = wire
    batch = Call(pack(["A"]) + pack(["B"]) + pack(["C"]), 3, 0.0, None)
    link.write(deque([batch]))
    finished = []
    theirs.sendall(b":1\r\n-ERR no\r\n")
    link.read(finished)
    assert finished == []
    theirs.sendall(b":3\r\n")
    link.read(finished)
    assert finished == [batch]
    assert [str(reply) for reply in batch.replies] == ["1", "ERR no", "3"]


@pytest.mark.parametrize("rubbish", [b"HTTP/1.1 200 OK\r\n", b":1\r\n:2\r\n"])
def test_rubbish_breaks_the_link_after_what_was_right(wire: Wire, rubbish: bytes) -> None:
    """Bytes that are no RESP, and replies nobody asked for, end the link with a reason."""
    link, theirs, _ = wire
    first = call("GET", "k")
    link.write(deque([first]))
    finished = []
    theirs.sendall(rubbish)
    with pytest.raises(LinkBrokenError):
        link.read(finished)
    assert finished == ([first] if rubbish.startswith(b":") else [])


def test_a_closed_peer_breaks_the_link(wire: Wire) -> None:
    """End of file is no reply."""
    link, theirs, _ = wire
    theirs.close()
    with pytest.raises(LinkBrokenError, match="closed"):
        link.read([])


def test_silence_counts_from_the_last_sign_of_life(wire: Wire) -> None:
    """Nothing is due on an idle link; an unanswered call ages from its write."""
    link, theirs, _ = wire
    assert link.silent_for(1e12) == 0.0
    waiting = call("GET", "k")
    link.write(deque([waiting]))
    assert link.silent_for(waiting.written_at + 5) == pytest.approx(5, abs=0.1)
    theirs.sendall(b"$8000000\r\nthe first bytes of a large reply")
    link.read([])
    assert link.silent_for(waiting.written_at + 5) < 5


def test_a_blocking_call_to_nobody_ends_in_time(tmp_path: Path) -> None:
    """A missing socket is NotSent within the call's own time-out, naming the path."""
    connection = BlockingConnection(f"unix://{tmp_path}/none", timeout=0.2)
    with pytest.raises(NotSent, match="cannot be reached"):
        connection.call("PING")
