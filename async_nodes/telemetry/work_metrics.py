"""What a worker counts. `celery_task_runtime` and `celery_active_tasks` keep known names.

A task costs one look-up of its node and a few additions of plain numbers; nothing takes a lock, and
what the library wants is made when somebody reads the metrics.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.ports import NULL
from async_nodes.core.states import EventType
from async_nodes.telemetry.outcomes import OUTCOMES
from async_nodes.telemetry.registry import REGISTRY, Read, counts, histograms, level
from async_nodes.telemetry.tallies import Count, Durations
from async_nodes.telemetry.tracing import is_sampled

if TYPE_CHECKING:
    from async_nodes.core.ports import Claim, Ending

__all__ = ["REGISTRY", "NodeTally", "active", "of_node", "schedules"]

_runtime: Final = histograms("celery_task_runtime")
_waited: Final = histograms("async_nodes_task_queue_wait_seconds")
_end_to_end: Final = histograms("async_nodes_task_end_to_end_seconds")
_first_chunk: Final = histograms("async_nodes_task_first_chunk_seconds")
_attempts: Final = counts("async_nodes_attempts_total")
_retries: Final = counts("async_nodes_task_retries_total")
_tokens: Final = counts("async_nodes_tokens_total")
_token_rate: Final = histograms("async_nodes_tokens_per_second")
_usage: Final = counts("async_nodes_usage_total")
active: Final = level("celery_active_tasks")

_NOT_THE_END: Final = frozenset({"retried", "released", "fence_lost"})
_DIRECTIONS: Final[Mapping[str, str]] = {
    "prompt_tokens": "in",
    "input_tokens": "in",
    "completion_tokens": "out",
    "output_tokens": "out",
}
MOST_UNITS: Final = 100
"""Names of usage that are told apart; a body may make them up."""

_units: Final[set[str]] = set()
_COMPLETE: Final = EventType.COMPLETE


class NodeTally:
    """Add up what the attempts of one node did.

    Args:
        node: its name.

    """

    __slots__ = (
        "_end_to_end",
        "_first_chunk",
        "_node",
        "_outcomes",
        "_succeeded",
        "runtime",
        "waited",
    )

    def __init__(self, node: str) -> None:
        self._node = node
        self.runtime = _runtime(node)
        self.waited = _waited(node)
        self._end_to_end = _end_to_end(node)
        self._first_chunk: Durations | None = None
        self._succeeded = _attempts(node, "succeeded")
        self._outcomes: dict[str, Count] = {}

    def ended(self, ending: Ending, claim: Claim, seconds: float, traceparent: str) -> None:
        """Count an attempt whose end the store has taken.

        Args:
            ending: how it ended.
            claim: the attempt.
            seconds: since the attempt began.
            traceparent: the task's trace (W3C); one that is sampled is kept as an exemplar.

        """
        if ending.usage is not NULL:
            self._used(ending.usage, seconds)
        if ending.event is _COMPLETE:  # nearly all of them
            self._succeeded.total += 1
        else:
            outcome = OUTCOMES.get(ending.event, "failed")
            self.count(outcome)
            if outcome in _NOT_THE_END:
                return
        whole = (claim.started_ms - claim.created_ms) / 1000 + seconds
        self._end_to_end.observe(whole)
        if traceparent and is_sampled(traceparent):
            trace_id = traceparent.split("-")[1]
            self._end_to_end.remember(whole, trace_id)
            self.runtime.remember(seconds, trace_id)

    def count(self, outcome: str) -> None:
        """Count an attempt by what became of it."""
        found = self._outcomes.get(outcome)
        if found is None:
            found = self._outcomes[outcome] = _attempts(self._node, outcome)
        found.total += 1
        if outcome == "retried":
            _retries(self._node).inc()

    def first_chunk(self, seconds: float) -> None:
        """Observe how long after its start an attempt had its first chunk, below 0 for none."""
        if seconds < 0:
            return
        if self._first_chunk is None:
            self._first_chunk = _first_chunk(self._node)
        self._first_chunk.observe(seconds)

    def _used(self, usage: bytes, seconds: float) -> None:
        found: dict[str, Any] = json.loads(usage) or {}
        tokens_out = 0
        for unit, number in found.items():
            if unit not in _units and len(_units) < MOST_UNITS:
                _units.add(unit)
            _usage(self._node, unit if unit in _units else "other").inc(number)
            direction = _DIRECTIONS.get(unit)
            if direction is not None:
                _tokens(self._node, direction).inc(number)
                tokens_out += number if direction == "out" else 0
        if tokens_out and seconds > 0:
            _token_rate(self._node).observe(tokens_out / seconds)


_nodes: Final[dict[str, NodeTally]] = {}


def of_node(name: str) -> NodeTally:
    """Return what is added up of a node."""
    return _nodes.get(name) or _nodes.setdefault(name, NodeTally(name))


def active_is(read: Callable[[], int]) -> None:
    """Let something else tell how many bodies run: a parent knows it of its children."""
    active.read = read


# -- the keeper's --------------------------------------------------------------------------------

schedules: Final[Counter[str]] = Counter()
"""What this process did with schedules that were due, by outcome; the keeper's thread writes it."""

lease_losses: Final = counts("async_nodes_lease_losses_total")()
rescues: Final = counts("async_nodes_task_rescues_total")()
sent_again: Final = counts("async_nodes_messages_sent_again_total")()
child_losses: Final = counts("async_nodes_child_losses_total")()
stalls: Final = counts("async_nodes_event_loop_stalls_total")()

slots: Final = level("async_nodes_worker_slots")
slots_used: Final = level("async_nodes_worker_slots_used")

REGISTRY.register(
    Read(
        ["async_nodes_schedules_total"],
        lambda: [
            (
                "async_nodes_schedules_total",
                [((outcome,), n) for outcome, n in sorted(dict(schedules).items())],
            )
        ],
    )
)
