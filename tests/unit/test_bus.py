"""The event bus: who is told what, and that nobody's fault reaches the work."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from async_nodes.core.errors import TaskCancelled
from async_nodes.execution.bus import EventBus

Told = list[tuple[Any, ...]]


@pytest.mark.parametrize(
    ("node", "kind", "expected"),
    [
        ("llm.chat", "EVENT_ERROR", True),
        ("llm.chat", None, True),
        (None, "EVENT_ERROR", True),
        (None, None, True),
        ("echo", "EVENT_ERROR", False),
        ("llm.chat", "EVENT_START", False),
        ("echo", None, False),
        (None, "EVENT_START", False),
    ],
)
def test_a_listener_hears_what_it_asked_for(
    node: str | None, kind: str | None, *, expected: bool
) -> None:
    """Node and type have to fit; None stands for every one."""
    bus, told = EventBus(), []
    bus.subscribe(node, kind, lambda *event: told.append(event))

    bus.publish("llm.chat", "EVENT_ERROR", {"task_id": "t"})

    assert told == ([("llm.chat", "EVENT_ERROR", {"task_id": "t"})] if expected else [])


def test_the_closest_are_told_first_and_each_in_turn() -> None:
    """Listeners of a node and type come before those of the node, the type and of all."""
    bus, told = EventBus(), []
    for name, node, kind in [
        ("all", None, None),
        ("type", None, "E"),
        ("node", "n", None),
        ("both 1", "n", "E"),
        ("both 2", "n", "E"),
    ]:
        bus.subscribe(node, kind, lambda *_, name=name: told.append(name))

    bus.publish("n", "E", None)

    assert told == ["both 1", "both 2", "node", "type", "all"]


def test_an_observer_s_error_is_logged_and_goes_no_further(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other listeners are told all the same, and the publisher does not notice."""
    bus, told = EventBus(), []

    def broken(*_event: object) -> None:
        raise RuntimeError("broken observer")

    bus.subscribe("n", "E", broken)
    bus.subscribe("n", "E", lambda *_: told.append(1))
    with caplog.at_level(logging.ERROR):
        bus.publish("n", "E", None)

    assert told == [1]
    (record,) = caplog.records
    assert record.action == "observer_failed"
    assert "broken observer" in caplog.text


def test_a_cancel_thrown_into_the_publisher_passes() -> None:
    """What unwinds a body is no observer's error and is not swallowed."""
    bus = EventBus()

    def interrupted(*_event: object) -> None:
        raise TaskCancelled

    bus.subscribe(None, None, interrupted)

    with pytest.raises(TaskCancelled):
        bus.publish("n", "E", None)


def test_a_subscription_ends_once_and_alone() -> None:
    """Ending one leaves an equal one of somebody else; ending it again does nothing."""
    bus, told = EventBus(), []

    def listener(*_event: object) -> None:
        told.append(1)

    first = bus.subscribe("n", "E", listener)
    bus.subscribe("n", "E", listener)
    first()
    first()
    bus.publish("n", "E", None)

    assert told == [1]
    assert len(bus._listeners) == 1


def test_a_listener_may_unsubscribe_while_it_is_told() -> None:
    """It is told this once, the others as usual."""
    bus, told = EventBus(), []

    def once(*_event: object) -> None:
        told.append("once")
        end()

    end = bus.subscribe("n", "E", once)
    bus.subscribe("n", "E", lambda *_: told.append("always"))
    bus.publish("n", "E", None)
    bus.publish("n", "E", None)

    assert told == ["once", "always", "always"]


def test_threads_may_come_and_go_while_others_publish() -> None:
    """Nothing is lost: every subscription of 8 threads hears its own event, none is left."""
    bus = EventBus()
    heard: Told = []

    def come_and_go(number: int) -> None:
        for turn in range(200):
            mine: Told = []
            end = bus.subscribe(f"n{number}", "E", lambda *event, mine=mine: mine.append(event))
            bus.publish(f"n{number}", "E", turn)
            end()
            heard.extend(mine)

    threads = [threading.Thread(target=come_and_go, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(heard) == 1600
    assert bus._listeners == {}
