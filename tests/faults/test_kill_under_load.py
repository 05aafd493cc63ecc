"""Every process is killed under load: what was accepted ends once, in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.acceptance.stack import RECOVERY, Stack
from tests.faults.load import OWN_TIME, Load, check_all_ended, measured, starts_after

NewStack = Callable[..., Stack]


def kill(stack: Stack, victim: str) -> None:
    """Kill a process without warning."""
    if victim == "cpu child":
        os.kill(stack["cpu0"].children()[0], signal.SIGKILL)
    elif victim == "redis":
        stack.server.restart()
    else:
        stack.kill(victim)


@pytest.mark.parametrize("victim", ["io0", "cpu0", "cpu child", "web", "redis"])
def test_a_killed_process_costs_no_task(new_stack: NewStack, victim: str) -> None:
    """All accepted tasks end, each with one terminal event, within lease + 2 s + their own time."""
    stack = new_stack(supervise=True)
    load = Load(stack)
    load.start()
    killed = []
    for share in (0.3, 0.6):
        load.until(share)
        killed.append(time.time())
        kill(stack, victim)
        time.sleep(1.5 if victim != "cpu child" else 0)
    load.join()
    records = check_all_ended(stack, load.accepted, heard=victim != "redis")

    queued, started = (
        [
            min(at - k for k in killed if k < at)
            for at in starts_after(records, "lost", moment=moment)
        ]
        for moment in ("queued_at", "started_at")
    )
    again = f"queued again after {max(queued, default=0):.2f} s"
    measured(f"{victim}: {len(started)} attempts lost, {again},")
    measured(f"started after {max(started, default=0):.2f} s; {len(load.refused)} requests refused")
    assert all(seconds <= RECOVERY for seconds in queued)
    assert all(seconds <= RECOVERY + OWN_TIME for seconds in started)
    assert victim != "web" or not started
    assert victim != "cpu child" or len(started) <= 2
