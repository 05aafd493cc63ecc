"""What is submitted and when something is killed, decided beforehand from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SHORTEST_PAUSE, LONGEST_PAUSE = 2.0, 5.0
"""Seconds between two kills."""

MIX: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("echo", {"text": "hello"}),
    ("test.count", {"seconds": 0.6}),
    ("test.emit", {"n": 8, "text": "x", "gap": 0.05}),
    ("test.async_sleep", {"seconds": 0.4}),
    ("test.count", {"seconds": 0.1}),
    ("text.chunk", {"text": "one two three " * 40, "size": 100, "overlap": 10}),
    ("test.fail", {"kind": "retryable", "times": 1, "retry_after": 0.2}),
    ("test.spin", {"seconds": 0.05}),
)
COUNTED: Final = "test.count"
"""The node that leaves one line for every start: what started more often than it says is seen."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill one process, so many seconds after the beginning."""

    at: float
    target: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold one run of the kill loop.

    Attributes:
        tasks: how many.
        seconds: over which they are submitted and processes are killed.
        seed: gives the same kills and the same order of tasks again.
        targets: names of the processes that may be killed.

    """

    tasks: int
    seconds: float
    seed: int
    targets: Sequence[str]

    def kills(self) -> list[Kill]:
        """Return the kills in their order: a random process every 2 to 5 seconds."""
        draw = random.Random(self.seed)  # noqa: S311 - repeatable on purpose
        found: list[Kill] = []
        at = draw.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)
        while at < self.seconds:
            found.append(Kill(round(at, 3), draw.choice(list(self.targets))))
            at += draw.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)
        return found

    def requests(self, path: str) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield when each task is submitted and its request.

        Args:
            path: the file that `COUNTED` writes to.

        """
        draw = random.Random(self.seed + 1)  # noqa: S311 - repeatable on purpose
        for number in range(self.tasks):
            node, inputs = draw.choice(MIX)
            if node == COUNTED:
                inputs = {**inputs, "path": path}
            yield number * self.seconds / self.tasks, {"node": node, "inputs": dict(inputs)}
