"""What of pybreaker a breaker of ours relies on, and what of it is kept from happening."""

from __future__ import annotations

from typing import Any

import pybreaker
import pytest

from async_nodes.execution.breaker_circuit import circuit


class Ear(pybreaker.CircuitBreakerListener):
    """Keep the changes of state that are told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def state_change(self, cb: Any, old_state: Any, new_state: Any) -> None:
        """Keep one."""
        self.heard.append((old_state.name, new_state.name))


class Known:
    """The state that a process knows."""

    def __init__(self, state: str = "closed") -> None:
        self.state = state
        self.ear = Ear()
        self.circuit = circuit("node:a", lambda: self.state, self.ear)

    def fail(self) -> None:
        """Make a call that fails."""
        with pytest.raises(LookupError, match="the node's own"), self.circuit.calling():
            raise LookupError("the node's own")


def test_a_change_is_told_once() -> None:
    """When the state is looked at, from and to."""
    known = Known()
    for state in ("open", "open", "half-open", "closed"):
        known.state = state
        _ = known.circuit.state

    assert known.ear.heard == [("closed", "open"), ("open", "half-open"), ("half-open", "closed")]


def test_no_failure_opens_it() -> None:
    """Nor hides the node's own error: that is our decision."""
    known = Known()
    for _ in range(20):
        known.fail()

    assert (known.circuit.current_state, known.ear.heard) == ("closed", [])


def test_in_half_open_neither_a_failure_nor_a_success_decides() -> None:
    """Where pybreaker by itself opens after one failure and closes after one success."""
    known = Known("half-open")
    known.fail()
    with known.circuit.calling():
        pass

    assert (known.circuit.state.name, known.ear.heard) == ("half-open", [])


def test_an_open_one_stays_open_for_pybreakers_own_clock() -> None:
    """Half-open is a matter of the cluster."""
    known = Known("open")
    known.circuit.reset_timeout = 1e-3

    with pytest.raises(pybreaker.CircuitBreakerError), known.circuit.calling():
        pass


def test_calls_do_not_wait_for_each_other() -> None:
    """`calling` has let go of pybreaker's lock when the work begins; `call` has not."""
    known = Known()

    with known.circuit.calling():
        free_in_calling = not known.circuit._lock._is_owned()  # type: ignore[attr-defined]
    free_in_call = known.circuit.call(lambda: not known.circuit._lock._is_owned())  # type: ignore[attr-defined]

    assert (free_in_calling, free_in_call) == (True, False)
