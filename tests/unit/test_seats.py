from __future__ import annotations

import tempfile

import pytest

from async_nodes.access.serving.listener import bind, bind_many, shown
from async_nodes.access.serving.seats import Seats
from async_nodes.core.errors import AsyncNodesError


def test_all_see_who_is_there() -> None:
    """What one process writes another one reads; at first nobody is there."""
    with tempfile.TemporaryFile() as file:
        file.truncate(3)
        mine, other = Seats(file.fileno(), 3), Seats(file.fileno(), 3)
        assert [other.is_empty(number) for number in range(3)] == [True] * 3
        mine.take(1)
        assert [other.is_empty(number) for number in range(3)] == [True, False, True]
        other.empty(1)
        assert mine.is_empty(1)


def test_listeners_share_a_port_with_one_another_only() -> None:
    """Whoever else wants it is refused, before and after."""
    first, *others = bound = bind_many("127.0.0.1", 0, 3)
    port = first.getsockname()[1]
    try:
        assert {listener.getsockname() for listener in others} <= {first.getsockname()}
        assert shown(first.getsockname()) == f"127.0.0.1:{port}"
        for again in (bind, lambda host, port: bind_many(host, port, 2)):
            with pytest.raises(AsyncNodesError, match="is in use"):
                again("127.0.0.1", port)
    finally:
        for listener in bound:
            listener.close()
