"""Whether a submit is let in: drains, from memory, asked for once a second."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.controls import Admission, Control, Mode, control_of
from async_nodes.storage.redis_errors import StoreUnavailable

DRAIN = Control(Mode.DRAIN, 1, "moving house")
PAUSE = Control(Mode.PAUSE, 1, None)


@dataclass
class Store:
    """Answer what is in force, and count the questions."""

    known: dict[str, Control] = field(default_factory=dict)
    asked: int = 0
    is_down: bool = False
    now: float = 100.0

    def read(self) -> dict[str, Control]:
        """Return what is in force."""
        self.asked += 1
        if self.is_down:
            raise StoreUnavailable("away")
        return self.known

    def admission(self) -> Admission:
        """Return an admission that asks here."""
        return Admission(self.read, clock=lambda: self.now)


def is_refused(admission: Admission, list_name: str = "io.default", node: str = "echo") -> bool:
    """Tell whether a submit would be refused."""
    try:
        admission.check(list_name, node)
    except AsyncNodesError as error:
        return error.code == "draining"
    return False


@pytest.mark.parametrize("scope", ["queue:io.default", "node:echo"])
def test_a_drain_refuses_its_own(scope: str) -> None:
    """By the list or by the node, and nobody else."""
    admission = Store({scope: DRAIN, "queue:cpu.low": DRAIN}).admission()

    with pytest.raises(AsyncNodesError, match="takes no new tasks: moving house") as caught:
        admission.check("io.default", "echo")
    assert caught.value.status == 503
    assert caught.value.retry_after
    assert caught.value.extra["scope"] == scope
    assert not is_refused(admission, "io.high", "llm.chat")


def test_a_pause_lets_in() -> None:
    """What is paused takes new tasks; they are held."""
    assert not is_refused(Store({"queue:io.default": PAUSE}).admission())


def test_the_store_is_asked_once_a_second() -> None:
    """However many submits there are; a change is seen within the second."""
    store = Store()
    admission = store.admission()
    for _ in range(100):
        assert not is_refused(admission)
    assert store.asked == 1

    store.known["node:echo"] = DRAIN
    store.now += 0.9
    assert not is_refused(admission)
    store.now += 0.2
    assert is_refused(admission)
    assert store.asked == 2


def test_a_change_in_this_process_is_seen_at_once() -> None:
    """Whoever has just said drain is not let in a moment later."""
    store = Store()
    admission = store.admission()
    assert not is_refused(admission)
    store.known["node:echo"] = DRAIN
    admission.forget()

    assert is_refused(admission)


def test_a_store_that_is_away_changes_nothing() -> None:
    """What was known holds on; the submit itself reports the outage."""
    store = Store({"node:echo": DRAIN})
    admission = store.admission()
    assert is_refused(admission)
    store.is_down = True
    store.now += 5

    assert is_refused(admission)
    assert is_refused(admission)
    assert store.asked == 2


def test_what_is_written_is_read() -> None:
    """Also by a release that writes no reason."""
    assert control_of(b'{"mode":"pause","since":5}') == Control(Mode.PAUSE, 5, None)
    assert control_of(b'{"mode":"drain","since":6,"reason":"x"}') == Control(Mode.DRAIN, 6, "x")
