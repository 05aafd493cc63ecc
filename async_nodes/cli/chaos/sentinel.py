"""What a failover under Sentinel costs, measured: accepted tasks that nobody knows afterwards.

For each fault and each way to guard against it: a primary, its replica, three Sentinels and a web
process of their own, submits as fast as a few clients send them, the fault, and then a look for
every task that was answered 202.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import click

from async_nodes.cli.address import free_port, url_of
from async_nodes.cli.console import Console
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from async_nodes.testing.sentinel_group import SentinelGroup

HOST: Final = "127.0.0.1"
CLIENTS: Final = 4
PAUSE: Final = 0.005
"""Seconds between an answer and the same client's next submit."""

BEFORE, AFTER = 1.5, 1.5
"""Seconds of submits before the fault, and after the primary is one again."""

CUT: Final = 3.0
"""Seconds for which a primary is cut off. It takes the Sentinels 8 more to tell it so."""

PATIENCE: Final = 40.0
_NOBODY: Final = "/v1/tasks/t_" + "0" * 26


@dataclass(frozen=True, slots=True)
class Guard:
    """A way to guard against loss.

    Attributes:
        name: of it.
        environ: settings of the web process.
        options: of the Redis servers.

    """

    name: str
    environ: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


_MIN_REPLICAS: Final = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
GUARDS: Final = (
    Guard("none"),
    Guard("min-replicas-to-write 1", options=_MIN_REPLICAS),
    Guard("WAIT 1", {"ASYNC_NODES_REDIS_WAIT_REPLICAS": "1"}),
    Guard("both", {"ASYNC_NODES_REDIS_WAIT_REPLICAS": "1"}, _MIN_REPLICAS),
)
FAULTS: Final = ("planned", "killed", "cut off")


@dataclass(slots=True)
class Cost:
    """What one failover came to.

    Attributes:
        fault, guard: what was done, and against what.
        accepted: tasks answered 202.
        lost: those of them that nobody knows afterwards.
        refused: answers 503 that say that nothing was accepted.
        unknown: answers 503 ``outcome_unknown``.
        outage_seconds: from the fault to the first task accepted and not lost.
        slowest_seconds: the longest that any answer took.
        submit_ms: the median submit before the fault.

    """

    fault: str
    guard: str
    accepted: int = 0
    lost: int = 0
    refused: int = 0
    unknown: int = 0
    outage_seconds: float = 0.0
    slowest_seconds: float = 0.0
    submit_ms: float = 0.0


class Submits:
    """Submit from a few clients, and remember every answer.

    Args:
        connect: gives a client for one thread.

    Attributes:
        accepted: when (monotonic) each task was accepted, by id.
        answers: when each answer came, how long it took, and its code ("" for a 202).

    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._submit, daemon=True) for _ in range(CLIENTS)]
        self.accepted: dict[str, float] = {}
        self.answers: list[tuple[float, float, str]] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(10)

    def _submit(self) -> None:
        body = {"node": "echo", "inputs": {"text": "here"}}
        with self._connect() as client:
            while not self._ending.wait(PAUSE):
                began, code, task_id = time.monotonic(), "", ""
                try:
                    task_id = client.post("/v1/tasks", body).document["task_id"]
                except AsyncNodesError as error:
                    code = error.code
                now = time.monotonic()
                if not code:
                    self.accepted[task_id] = now
                self.answers.append((now, now - began, code))

    def accepted_since(self, moment: float) -> bool:
        """Tell whether a task was accepted after a moment."""
        return any(at > moment for at in list(self.accepted.values()))


def measure(fault: str, guard: Guard, binary: str) -> Cost:
    """Return what one failover costs.

    Args:
        fault: one of `FAULTS`.
        guard: one of `GUARDS`.
        binary: the server program.

    """
    from async_nodes.embedded.lifeline import popen
    from async_nodes.testing.sentinel_group import SentinelGroup

    with tempfile.TemporaryDirectory(prefix="an-sentinel-") as folder:
        group = SentinelGroup(binary, Path(folder), options=guard.options, spawn=popen)
        try:
            group.start()
            with _web(group, guard, Path(folder)) as connect, Submits(connect) as submits:
                time.sleep(BEFORE)
                moment = time.monotonic()
                _break(fault, group, submits)
                time.sleep(AFTER)
            with _web(group, guard, Path(folder)) as connect:
                known = _known(connect, list(submits.accepted))
        finally:
            group.stop()
    return cost_of(fault, guard, submits, moment, known)


def _break(fault: str, group: SentinelGroup, submits: Submits) -> None:
    """Do it, and wait until the roles are settled and tasks are accepted."""
    old = group.primary()
    if fault == "planned":
        group.fail_over()
    elif fault == "killed":
        group.kill(old)
        group.until(lambda: group.primary() is not old, "no failover", PATIENCE)
    else:
        group.cut_off()
        group.until(lambda: group.primary() is not old, "no failover", PATIENCE)
        time.sleep(CUT)
        group.heal(old)
    if fault != "killed":
        group.until(group.is_whole, "the old primary does not follow", PATIENCE)
    else:
        group.restart(old)  # what guards against loss takes nothing while there is one server
    settled = time.monotonic()
    group.until(lambda: submits.accepted_since(settled), "nothing is accepted", PATIENCE)


@contextlib.contextmanager
def _web(group: SentinelGroup, guard: Guard, folder: Path) -> Iterator[Callable[[], Client]]:
    """Run a web process; give what connects to it."""
    from async_nodes.embedded.lifeline import popen

    port = free_port(HOST)
    environ = {
        **os.environ,
        **guard.environ,
        "ASYNC_NODES_REDIS_URL": group.url,
        "ASYNC_NODES_API_KEY": "",
        "ASYNC_NODES_API_KEY_FILE": "",
    }
    argv = [sys.executable, "-P", "-m", "async_nodes.cli", "serve", "--port", str(port)]
    with (folder / "web.log").open("ab") as log:
        web = popen(argv, env=environ, stdout=log, stderr=subprocess.STDOUT)
    try:
        with Client(url_of(HOST, port)) as client:
            group.until(lambda: _serves(client), "the web process does not serve", PATIENCE)
        yield lambda: Client(url_of(HOST, port))
    finally:
        web.terminate()
        web.wait(10)


def _serves(client: Client) -> bool:
    try:
        client.get(_NOBODY)
    except AsyncNodesError as error:
        return error.code == "task_not_found"
    return False


def _known(connect: Callable[[], Client], task_ids: Sequence[str]) -> set[str]:
    """Return the ids of the tasks that have a record."""
    known: set[str] = set()
    with connect() as client:
        for task_id in task_ids:
            with contextlib.suppress(AsyncNodesError):
                known.add(client.get(f"/v1/tasks/{task_id}").document["task_id"])
    return known


def cost_of(fault: str, guard: Guard, submits: Submits, moment: float, known: set[str]) -> Cost:
    """Return what the answers come to, once it is known which tasks have a record."""
    codes = [code for _, _, code in submits.answers if code]
    later = [at for task_id, at in submits.accepted.items() if at > moment and task_id in known]
    # What was under way at the fault may still be answered: the outage is the longest gap.
    marks = [moment, *sorted(later)]
    gaps = [after - before for before, after in pairwise(marks)]
    usual = sorted(took for at, took, code in submits.answers if at < moment and not code)
    return Cost(
        fault=fault,
        guard=guard.name,
        accepted=len(submits.accepted),
        lost=len(submits.accepted) - len(known),
        refused=sum(code != "outcome_unknown" for code in codes),
        unknown=codes.count("outcome_unknown"),
        outage_seconds=round(max(gaps, default=0.0), 2),
        slowest_seconds=round(max(took for _, took, _ in submits.answers), 2),
        submit_ms=round(usual[len(usual) // 2] * 1000, 2) if usual else 0.0,
    )


@click.command(
    "sentinel",
    help=tr(
        "Fail a Redis under Sentinel over, and count the accepted tasks that are lost.",
        "在 Sentinel 下触发故障切换,统计已接受而丢失的任务。",
    ),
)
@click.option("--fault", "faults", type=click.Choice(FAULTS), multiple=True)
@click.option(
    "--guard", "guards", type=click.Choice([guard.name for guard in GUARDS]), multiple=True
)
@click.option(
    "--json",
    "report",
    type=click.Path(dir_okay=False, path_type=Path),
    help=tr("Write the report to a file.", "将报告写入文件。"),
)
def command(*, faults: Sequence[str], guards: Sequence[str], report: Path | None) -> int:
    """Measure; the exit status is 0 when nothing was lost where nothing may be."""
    from async_nodes.embedded.binary import find_binary

    binary = str(find_binary().path)
    console = Console()
    console.line(_HEAD)
    found: list[Cost] = []
    for fault in faults or FAULTS:
        for guard in GUARDS:
            if not guards or guard.name in guards:
                found.append(measure(fault, guard, binary))
                console.line(_line(found[-1]))
    if report is not None:
        rows: list[dict[str, Any]] = [asdict(cost) for cost in found]
        report.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    broken = [cost for cost in found if cost.lost and (cost.fault, cost.guard) in PROMISED]
    return 1 if broken else 0


PROMISED: Final = frozenset(
    [("planned", guard.name) for guard in GUARDS]
    + [(fault, guard.name) for fault in FAULTS for guard in GUARDS if guard.environ]
)
"""Faults and guards under which no accepted task may be lost."""

_HEAD: Final = (
    "fault     guard                     accepted   lost   503  unknown  outage  slowest  submit"
)


def _line(cost: Cost) -> str:
    return (
        f"{cost.fault:<9} {cost.guard:<25} {cost.accepted:8,} {cost.lost:6,} {cost.refused:5,} "
        f"{cost.unknown:8,} {cost.outage_seconds:6.1f}s {cost.slowest_seconds:7.2f}s "
        f"{cost.submit_ms:5.1f}ms"
    )
