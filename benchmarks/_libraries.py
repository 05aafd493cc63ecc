"""The libraries that can be compared with: how each is started, and what it does not do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks._environments import Version, python_of
from benchmarks._sides import BASELINE

PACKAGE: Final = "benchmarks.baselines"
THREADS: Final = 8
"""Default of dramatiq and huey: their threads share one interpreter lock."""

Worker = Callable[[Path, int | None], list[str]]
"""Gives the command of a worker from its Python and its slots; None for those it is tuned to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Know a library.

    Attributes:
        package: its folder in ``benchmarks/baselines``.
        worker: the command of its worker.
        lacks: what a client of async_nodes has and a client of this has not, in a few words.
        python: the oldest that it takes.
        environment: for both of its processes.
        one_by_one: a worker does one task at a time, whatever slots it is given.
        own: it is in this project's own environment.

    """

    package: str
    worker: Worker
    lacks: str
    python: Version = (3, 11)
    environment: Mapping[str, str] = field(default_factory=dict)
    one_by_one: bool = False
    own: bool = False

    def installed(self) -> Path:
        """Return the Python that has it.

        Raises:
            NotInstalledError: it cannot be installed here.

        """
        import sys

        return Path(sys.executable) if self.own else python_of(self.package, least=self.python)

    def web(self, python: Path, port: int) -> list[str]:
        """Return the command of its web process."""
        return [str(python), "-m", f"{PACKAGE}.{self.package}.web", str(port)]


def _celery(python: Path, slots: int | None) -> list[str]:
    tasks = f"{PACKAGE}.{BASELINE}.tasks"
    argv = [str(python), "-m", "celery", "-A", tasks, "worker", "-P", "gevent", "-l", "WARNING"]
    argv += ["-c", str(slots or 300)]
    return [*argv, "--without-gossip", "--without-mingle", "--without-heartbeat"]


def _dramatiq(python: Path, slots: int | None) -> list[str]:
    argv = [str(python), "-m", "dramatiq", f"{PACKAGE}.dramatiq.tasks", "--skip-logging"]
    return [*argv, "--processes", "1", "--threads", str(slots or THREADS)]


def _huey(python: Path, slots: int | None) -> list[str]:
    argv = [str(python), "-m", "huey.bin.huey_consumer", f"{PACKAGE}.huey.tasks.huey"]
    return [*argv, "-k", "thread", "-w", str(slots or THREADS), "-n", "-q"]


def _taskiq(python: Path, slots: int | None) -> list[str]:
    argv = [str(python), "-m", "taskiq", "worker", f"{PACKAGE}.taskiq.tasks:broker"]
    argv += ["--workers", "1", "--max-async-tasks", str(slots or 300)]
    return [*argv, "--no-parse", "--log-level", "WARNING"]


def _rq(python: Path, _slots: int | None) -> list[str]:
    # The redis:// address is in the environment that every process gets; see `_stack`.
    program = "import os, sys; from rq.cli import main; sys.argv[0] = 'rq'; "
    program += "sys.argv += ['--url', os.environ['BASELINE_REDIS_URL'] + '/0']; main()"
    argv = [str(python), "-c", program, "worker", "baseline", "--quiet"]
    return [*argv, "--worker-class", "rq.SimpleWorker", "--maintenance-interval", "15"]


def _arq(python: Path, _slots: int | None) -> list[str]:
    return [str(python), "-m", f"{PACKAGE}.arq.worker"]


def _saq(python: Path, _slots: int | None) -> list[str]:
    return [str(python), "-m", "saq", f"{PACKAGE}.saq.tasks.settings", "--quiet"]


def _ardiq(python: Path, _slots: int | None) -> list[str]:
    return [str(python), "-m", "ardiq", "run", f"{PACKAGE}.ardiq.tasks:app", "--quiet"]


LIBRARIES: Final[Mapping[str, Library]] = {
    BASELINE: Library(
        package=BASELINE,
        own=True,
        worker=_celery,
        lacks="acknowledges on receipt; no state but the result; no record of attempts",
    ),
    "dramatiq": Library(
        package="dramatiq",
        worker=_dramatiq,
        lacks="no states: a result is there or not; recovery by chance, on other traffic",
    ),
    "huey": Library(
        package="huey",
        worker=_huey,
        lacks="no acknowledgement; no states: a result is there or not",
    ),
    "taskiq": Library(
        package="taskiq",
        worker=_taskiq,
        lacks="lists: no acknowledgement; no states: a result is there or not",
    ),
    "taskiq-streams": Library(
        package="taskiq",
        worker=_taskiq,
        environment={"BASELINE_ACKNOWLEDGES": "1"},
        lacks="no states: a result is there or not",
    ),
    "arq": Library(
        package="arq",
        worker=_arq,
        lacks="polls for work every 50 ms; a crash is noticed by the job's time-out alone",
    ),
    "rq": Library(
        package="rq",
        worker=_rq,
        one_by_one=True,
        lacks="one job at a time in a worker",
    ),
    "saq": Library(
        package="saq",
        worker=_saq,
        lacks="a crash is noticed by the job's time-out alone; no history",
    ),
    "ardiq": Library(
        package="ardiq",
        python=(3, 12),
        worker=_ardiq,
        lacks="no history of attempts; metadata until the end only",
    ),
}
"""By the name of the side."""
