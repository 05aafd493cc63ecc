"""A primary, its replica and three Sentinels on loopback, to see what a failover does.

Real processes of one program (``redis-server`` or ``valkey-server``), each in a folder of its own.
Nothing of async_nodes is needed but the address that `SentinelGroup.url` gives it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST: Final = "127.0.0.1"
NAME: Final = "mymaster"
PASSWORD: Final = "outside"  # noqa: S105 - of servers on loopback that live for a test
START_SECONDS: Final = 20.0
ASK_SECONDS: Final = 2.0

_INSIDERS: Final = ("replica", "sentinel")
"""Users by which the replica and the Sentinels come in, so that they can be kept out alone."""

Spawn = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]


@dataclass(frozen=True, slots=True)
class Tls:
    """Files with which servers and Sentinels speak TLS, and clients to them."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(slots=True)
class Member:
    """One process of the group.

    Attributes:
        port: where it listens.
        argv: its command line.
        pid: of the process, None when it does not run.

    """

    port: int
    argv: list[str]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self.process is not None and self.process.poll() is None


class SentinelGroup:
    """Run two servers, of which one replicates the other, and Sentinels that watch them.

    Args:
        binary: the server program; it is the Sentinels' too.
        folder: for data, configuration and logs.
        down_after: seconds of silence after which a Sentinel takes a server for dead.
        password: of the clients, for servers and Sentinels. Without one nobody could be kept out.
        tls: speak TLS and nothing else.
        options: further words for the command line of the servers.
        spawn: starts a process.

    """

    def __init__(
        self,
        binary: str,
        folder: Path,
        *,
        down_after: float = 1.0,
        password: str = PASSWORD,
        tls: Tls | None = None,
        options: Sequence[str] = (),
        spawn: Spawn = subprocess.Popen,
    ) -> None:
        self._binary = binary
        self._folder = folder
        self._down_after = down_after
        self._password = password
        self._tls = tls
        self.options = list(options)
        self._spawn = spawn
        ports = free_ports(5)
        self.servers = [Member(port, self._server(port)) for port in ports[:2]]
        self.sentinels = [Member(port, self._sentinel(port, ports[0])) for port in ports[2:]]

    @property
    def url(self) -> str:
        """Return the address for `ASYNC_NODES_REDIS_URL`."""
        hosts = ";".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        query = f"master_name={NAME}&sentinel_password={self._password}"
        if self._tls:
            query += f"&ssl=true&ssl_ca_certs={self._tls.authority}"
        return f"sentinel://:{self._password}@{hosts}/0?{query}"

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until the Sentinels agree."""
        first, second = self.servers
        self._start(first, [])
        self._start(second, ["--replicaof", HOST, str(first.port)])
        self.until(lambda: self._is_linked(second), "the replica does not follow")
        for sentinel in self.sentinels:
            self._start(sentinel, [])
        self.until(self._is_watched, "the Sentinels do not know each other")

    def stop(self) -> None:
        """End every process."""
        for member in [*self.sentinels, *self.servers]:
            self.kill(member)

    def kill(self, member: Member) -> None:
        """End one process as a crash would."""
        if member.process is not None:
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(signal.SIGCONT)
            member.process.kill()
            member.process.wait()

    def restart(self, member: Member) -> None:
        """Start a server that died, as a replica of whoever is the primary now."""
        primary = self.primary()
        self._start(member, ["--replicaof", HOST, str(primary.port)])

    def _start(self, member: Member, more: Sequence[str]) -> None:
        member.process = self._spawn([*member.argv, *more])
        until = time.monotonic() + START_SECONDS
        while not self._answers(member):
            if not member.is_running or time.monotonic() > until:
                log = self._folder / str(member.port) / "log"
                text = log.read_text("utf-8", "replace")[-2000:] if log.exists() else ""
                message = f"the server on port {member.port} does not start: {text}"
                raise RuntimeError(message)
            time.sleep(0.02)

    # -- who is what -------------------------------------------------------------------------

    def primary(self) -> Member:
        """Return the server that the Sentinels name."""
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.RedisError), self.client(sentinel) as asked:
                _, port = asked.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
                return next(one for one in self.servers if one.port == int(port))
        message = "no Sentinel answers"
        raise RuntimeError(message)

    def other(self, member: Member) -> Member:
        """Return the other server."""
        return next(one for one in self.servers if one is not member)

    @contextlib.contextmanager
    def client(self, member: Member) -> Iterator[Any]:
        """Give a client of one process."""
        options: dict[str, Any] = {}
        if self._tls:
            options = {"ssl": True, "ssl_ca_certs": str(self._tls.authority)}
        client = redis.Redis(
            HOST,
            member.port,
            password=self._password,
            socket_timeout=ASK_SECONDS,
            retry=Retry(NoBackoff(), 0),
            **options,
        )
        try:
            yield client
        finally:
            client.close()

    def until(self, true: Callable[[], bool], why: str, seconds: float = START_SECONDS) -> None:
        """Wait for a condition.

        Raises:
            RuntimeError: it did not come.

        """
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                raise RuntimeError(why)
            time.sleep(0.05)

    # -- what happens to it ------------------------------------------------------------------

    def fail_over(self) -> Member:
        """Change the roles as planned, so that nothing is lost; return the new primary.

        Writes are held until the replica has them all; then the Sentinels are told. What they say
        to the old primary is held as well, so that it has to be told by us.
        """
        old = self.primary()
        new = self.other(old)
        with self.client(old) as client:
            client.execute_command("CLIENT", "PAUSE", 10_000, "WRITE")
            self.until(lambda: self._has_all(old, new), "the replica does not catch up")
            self._tell_a_sentinel()
            self.until(lambda: self.primary() is new, "the Sentinels do not change the roles")
            client.execute_command("REPLICAOF", HOST, new.port)
            for kind in ("normal", "pubsub"):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            client.execute_command("CLIENT", "UNPAUSE")
        return new

    def _tell_a_sentinel(self) -> None:
        refusal: Exception = RuntimeError("no Sentinel answers")
        for sentinel in self.sentinels:
            try:
                with self.client(sentinel) as client:
                    client.execute_command("SENTINEL", "FAILOVER", NAME)
            except redis.RedisError as error:
                refusal = error
            else:
                return
        raise refusal

    def _has_all(self, old: Member, new: Member) -> bool:
        with self.client(old) as first, self.client(new) as second:
            here = first.info("replication")["master_repl_offset"]
            there = second.info("replication").get("slave_repl_offset", -1)
        return bool(there >= here)

    def cut_off(self) -> Member:
        """Cut the primary off from its replica and the Sentinels, but not from its clients.

        As a divided network does; here they are not let in any more. Returns the primary.
        """
        old = self.primary()
        self._let_in(old, "off")
        return old

    def heal(self, member: Member) -> None:
        """End what `cut_off` began: the Sentinels tell a primary of old what it is now."""
        self._let_in(member, "on")

    def _let_in(self, member: Member, word: str) -> None:
        with self.client(member) as client:
            for user in _INSIDERS:
                client.execute_command("ACL", "SETUSER", user, word)
                client.execute_command("CLIENT", "KILL", "USER", user)

    # -- looking -----------------------------------------------------------------------------

    def _answers(self, member: Member) -> bool:
        try:
            with self.client(member) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _role(self, member: Member) -> str:
        with contextlib.suppress(redis.RedisError), self.client(member) as client:
            return str(client.info("replication")["role"])
        return ""

    def is_whole(self) -> bool:
        """Tell whether the primary has its replica again."""
        return self._is_linked(self.other(self.primary()))

    def _is_linked(self, replica: Member) -> bool:
        with contextlib.suppress(redis.RedisError), self.client(replica) as client:
            facts: Mapping[str, Any] = client.info("replication")
            return (facts["role"], facts.get("master_link_status")) == ("slave", "up")
        return False

    def _is_watched(self) -> bool:
        for sentinel in self.sentinels:
            with contextlib.suppress(redis.RedisError), self.client(sentinel) as client:
                words = client.execute_command("SENTINEL", "MASTER", NAME)
                facts = (
                    words
                    if isinstance(words, dict)
                    else dict(zip(words[::2], words[1::2], strict=True))
                )
                known = {_text(name): _text(value) for name, value in facts.items()}
                if known["num-other-sentinels"] != "2" or known["num-slaves"] != "1":
                    return False
                continue
            return False
        return True

    # -- command lines -----------------------------------------------------------------------

    def _server(self, port: int) -> list[str]:
        words = [
            self._binary, *self._listen(port), "--dir", str(self._home(port)),
            "--logfile", "log", "--save", "", "--appendonly", "yes",
            "--maxmemory-policy", "noeviction", "--repl-ping-replica-period", "1",
            "--repl-diskless-sync-delay", "0", "--repl-timeout", "5",
        ]  # fmt: skip
        for user in _INSIDERS:
            words += ["--user", user, "on", f">{user}", "~*", "&*", "+@all"]
        words += ["--masteruser", "replica", "--masterauth", "replica"]
        return [*words, "--requirepass", self._password, *self.options]

    def _sentinel(self, port: int, primary: int) -> list[str]:
        lines = [
            f"sentinel monitor {NAME} {HOST} {primary} 2",
            f"sentinel down-after-milliseconds {NAME} {int(self._down_after * 1000)}",
            f"sentinel failover-timeout {NAME} 6000",
            f"sentinel auth-user {NAME} sentinel",
            f"sentinel auth-pass {NAME} sentinel",
            f"sentinel sentinel-pass {self._password}",
            f"requirepass {self._password}",
        ]
        file = self._home(port) / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        home = str(self._home(port))
        return [
            self._binary, str(file), "--sentinel", *self._listen(port),
            "--dir", home, "--logfile", f"{home}/log",
        ]  # fmt: skip

    def _listen(self, port: int) -> list[str]:
        if self._tls is None:
            return ["--port", str(port), "--bind", HOST]
        return [
            "--port", "0", "--tls-port", str(port), "--bind", HOST,
            "--tls-cert-file", str(self._tls.certificate),
            "--tls-key-file", str(self._tls.key),
            "--tls-ca-cert-file", str(self._tls.authority),
            "--tls-replication", "yes", "--tls-auth-clients", "optional",
        ]  # fmt: skip

    def _home(self, port: int) -> Path:
        home = self._folder / str(port)
        home.mkdir(parents=True, exist_ok=True)
        return home


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on now."""
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else str(word)
