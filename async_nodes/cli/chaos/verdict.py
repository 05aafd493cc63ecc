"""What must hold of every task after a run, and what the run has shown. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from async_nodes.cli.chaos.plan import COUNTED

TERMINAL = frozenset({"Succeeded", "Failed", "Cancelled"})


@dataclass(slots=True)
class Verdict:
    """Tell how a run went.

    Attributes:
        accepted: tasks that a 202 was given for.
        lost: accepted tasks without a record, or without an end.
        failed: ids of tasks that ended otherwise than Succeeded: nothing they do can fail.
        doubled: ids of tasks that succeeded more than once, or started more often than they say.
        repeats: attempts that were lost with their process and run again.
        recovery: seconds between a kill and the next start of each task it cost an attempt,
            ascending.

    """

    accepted: int = 0
    lost: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    repeats: int = 0
    recovery: list[float] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Tell whether everything held that must hold."""
        return not (self.lost or self.failed or self.doubled)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for a report."""
        return {
            "passed": self.passed,
            "accepted": self.accepted,
            "lost": self.lost,
            "failed": self.failed,
            "doubled": self.doubled,
            "repeats": self.repeats,
            "recovery_seconds": {
                "median": _quantile(self.recovery, 0.5),
                "p95": _quantile(self.recovery, 0.95),
                "most": _quantile(self.recovery, 1.0),
            },
        }


def judge(
    records: Mapping[str, Mapping[str, Any] | None],
    starts: Iterable[str],
    kills: Iterable[float],
) -> Verdict:
    """Return the verdict over the records of all accepted tasks.

    Args:
        records: by task id; None where there is none.
        starts: the lines that `COUNTED` has written, ``<task_id> …`` each.
        kills: when processes were killed, epoch seconds.

    """
    started = Counter(line.partition(" ")[0] for line in starts)
    moments = sorted(kills)
    verdict = Verdict(accepted=len(records))
    for task_id, record in records.items():
        if record is None or record["state"] not in TERMINAL:
            verdict.lost.append(task_id)
            continue
        if record["state"] != "Succeeded":
            verdict.failed.append(task_id)
        outcomes = [attempt["outcome"] for attempt in record["attempts"]]
        silent = record["node"] == COUNTED and started[task_id] > record["attempt"]
        if outcomes.count("succeeded") > 1 or silent:
            verdict.doubled.append(task_id)
        verdict.repeats += outcomes.count("lost")
        verdict.recovery += _recoveries(record["attempts"], moments)
    verdict.recovery.sort()
    return verdict


def _recoveries(attempts: list[Mapping[str, Any]], kills: list[float]) -> list[float]:
    found = []
    for lost, following in pairwise(attempts):
        if lost["outcome"] != "lost":
            continue
        start, again = _epoch(lost["started_at"]), _epoch(following["started_at"])
        cause = next((kill for kill in kills if start - 0.1 <= kill <= again), None)
        if cause is not None:
            found.append(round(again - cause, 3))
    return found


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _quantile(ascending: list[float], share: float) -> float | None:
    if not ascending:
        return None
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)]
