"""How pybreaker carries a breaker of ours: the state by name, listeners, and the trial's calls.

What opens and closes it is decided in `core.breaker` and stored by `storage.breakers`; see
docs/decisions/0008-what-pybreaker-does.md for what of pybreaker is used and what is not.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pybreaker


class Held(pybreaker.CircuitBreakerStorage):
    """Tell pybreaker the state that is known here, and keep it from changing that by itself.

    Args:
        state: returns the state's name.

    """

    def __init__(self, state: Callable[[], str]) -> None:
        super().__init__("async_nodes")
        self._read = state

    @property
    def state(self) -> str:
        """Return the state's name."""
        return self._read()

    @state.setter
    def state(self, state: str) -> None:
        """Leave it: pybreaker's own rules do not count."""

    @property
    def counter(self) -> int:
        """Return no failures, so that pybreaker never opens a circuit."""
        return 0

    @property
    def success_counter(self) -> int:
        """Return no successes, so that one success never closes a circuit."""
        return 0

    @property
    def opened_at(self) -> datetime:
        """Return the present, so that pybreaker's own clock never ends an opening."""
        return datetime.now(UTC)

    @opened_at.setter
    def opened_at(self, datetime: datetime) -> None:
        """Leave it."""


def circuit(
    name: str, state: Callable[[], str], *listeners: pybreaker.CircuitBreakerListener
) -> pybreaker.CircuitBreaker:
    """Return the circuit of a breaker; reading its `state` tells the listeners of a change.

    Args:
        name: the breaker's.
        state: returns the state's name.
        listeners: told of changes.

    """
    return pybreaker.CircuitBreaker(
        name=name,
        state_storage=Held(state),
        listeners=listeners,
        # To pybreaker no error is a failure: in half-open one would open the circuit at once, and
        # in any state it would raise an error of its own in place of the node's.
        exclude=[lambda _error: True],
        throw_new_error_on_trip=False,
    )
