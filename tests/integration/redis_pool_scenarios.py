"""What the pooled connections and the waiting for replicas must do, each as a program of its own.

Started like `redis_connection_scenarios.py`, whose server and helpers it uses.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()

import time
from pathlib import Path
from typing import Any

import gevent

from async_nodes.storage.paced_reads import PacedReads
from async_nodes.storage.pooled import WAIT, PooledConnection
from async_nodes.storage.redis_connection import (
    BlockingConnection,
    NotSent,
    OutcomeUnknown,
    StoreBusy,
)
from async_nodes.storage.replicated import ReplicatedLink
from tests.integration.redis_connection_scenarios import Server, outcome, together


def order() -> None:
    with Server() as server:
        pool = PooledConnection(server.url, size=2, wait=30, timeout=30, client_name="pool")

        def some(number: int) -> list[Any]:
            return [pool.call("ECHO", f"{number}-{turn}") for turn in range(20)]

        replies = together(60, some)
        assert replies == [[f"{n}-{t}".encode() for t in range(20)] for n in range(60)]
        assert pool.call_many([("SET", "k", 1), ("INCR", "k"), ("LPOP", "k")])[:2] == [b"OK", 2]
        names = pool.call("CLIENT", "LIST").decode().count("name=pool")
        assert (names, pool.stats.connects) == (2, 2)
        pool.close()
        assert isinstance(outcome(pool.call, "PING")[0], NotSent)


def bounded() -> None:
    with Server() as server:
        pool = PooledConnection(server.url, size=2)
        held = [gevent.spawn(pool.call, "BLPOP", "none", 2, timeout=5) for _ in range(2)]
        gevent.sleep(0.1)
        refused = together(20, lambda _: outcome(pool.call, "PING"))
        for result, took in refused:
            assert isinstance(result, StoreBusy), result
            assert WAIT * 0.9 < took < WAIT + 1.0
        assert pool.stats.refused == 20
        gevent.joinall(held)
        assert pool.call("PING") == b"PONG"
        assert pool.stats.connects == 2


def late() -> None:
    with Server("--enable-debug-command", "yes") as server:
        pool = PooledConnection(server.url, size=1)
        pool.call("PING")
        result, _ = outcome(pool.call, "DEBUG", "SLEEP", 1, timeout=0.2)
        assert isinstance(result, OutcomeUnknown), result
        result, _ = outcome(pool.call, "PING")
        assert isinstance(result, StoreBusy), result
        until = time.monotonic() + 10
        while not isinstance(result, bytes) and time.monotonic() < until:
            result, _ = outcome(pool.call, "ECHO", "mine")
        assert result == b"mine"
        assert pool.stats.connects == 1


def killed() -> None:
    with Server() as server:
        pool = PooledConnection(server.url, size=3, wait=30, timeout=30)
        for _ in range(30):
            some = [gevent.spawn(pool.call, "BLPOP", "none", 1, timeout=5) for _ in range(3)]
            gevent.sleep(0.005)
            gevent.killall(some, block=False)
            replies = together(5, lambda n: pool.call("ECHO", n))
            assert replies == [b"%d" % n for n in range(5)]


def restart() -> None:
    with Server() as server:
        pool = PooledConnection(server.url, size=2)
        assert pool.call("PING") == b"PONG"
        server.kill()
        result, took = outcome(pool.call, "PING")
        assert isinstance(result, (NotSent, OutcomeUnknown)), result
        assert took < 2
        server.start()
        assert pool.call("PING", timeout=5) == b"PONG"


def paced() -> None:
    with Server() as server:
        control = BlockingConnection(server.url)
        for number in range(200):
            control.call("SET", f"k{number}", number)
        control.call("CONFIG", "RESETSTAT")
        pool = PooledConnection(server.url, size=2, timeout=30)
        reads = PacedReads(pool, 2)
        replies = together(200, lambda n: reads.get(f"k{n}"))
        assert replies == [b"%d" % n for n in range(200)]
        stats = control.call("INFO", "commandstats").decode()
        calls = int(stats.partition("cmdstat_mget:calls=")[2].partition(",")[0])
        assert calls <= 8, calls
        server.stop()
        answers = [gevent.spawn(outcome, reads.get, "k1") for _ in range(3)]
        gevent.sleep(0.05)
        answers += [gevent.spawn(outcome, reads.get, f"k{n}") for n in range(3)]
        gevent.sleep(0.05)
        late = [gevent.spawn(outcome, reads.get, f"k{n}") for n in range(10)]
        for said, took in [greenlet.get() for greenlet in late]:
            assert isinstance(said, StoreBusy), said
            assert took < WAIT + 1.0
        server.resume()
        gevent.joinall(answers)
        assert reads.get("k7") == b"7"


def replicas() -> None:
    with Server() as primary, Server() as replica:
        port = free_port()
        control = BlockingConnection(primary.url)
        control.call("CONFIG", "SET", "port", port)
        follower = BlockingConnection(replica.url)
        follower.call("REPLICAOF", "127.0.0.1", port)
        until = time.monotonic() + 20
        while b"master_link_status:up" not in follower.call("INFO", "replication"):
            assert time.monotonic() < until
            gevent.sleep(0.05)
        alone = PooledConnection(primary.url, size=1, timeout=5)
        link = ReplicatedLink(alone, replicas=1, seconds=0.3, beside=control, mark="mark")
        assert link.call_many([("SET", "a", 1), ("INCR", "a")], timeout=5) == [b"OK", 2]
        assert follower.call("GET", "a") == b"2"
        replica.stop()
        result, took = outcome(lambda: link.call_many([("SET", "a", 3)], timeout=5))
        assert isinstance(result, OutcomeUnknown), result
        assert "of 1 replicas wanted, 0 have it" in result.detail
        assert took < 3
        # A connection that has written nothing yet does not take that for an answer.
        control.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        result, _ = outcome(lambda: link.call_many([("GET", "a")], timeout=5))
        assert isinstance(result, OutcomeUnknown), result
        replica.resume()
        assert link.call_many([("GET", "a")], timeout=5) == [b"3"]
        control.call("CONFIG", "SET", "min-replicas-to-write", 2)
        (refused,) = link.call_many([("SET", "a", 4)], timeout=5)
        assert "NOREPLICAS" in str(refused)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    assert Path(sys.argv[3]).exists()
    globals()[sys.argv[2]]()
