"""The scope: snapshots that do not change, one variable that does not leak."""

from __future__ import annotations

import asyncio
import contextvars
import json
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.context import EMPTY, ScopeContext, current, scope
from async_nodes.core.errors import AsyncNodesError

keys = st.text(min_size=1, max_size=10)
jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def built(pairs: list[tuple[str, Any]]) -> ScopeContext:
    context = EMPTY
    for key, value in pairs:
        context = context.with_value(key, value)
    return context


def test_a_child_knows_its_parent_and_leaves_it_alone() -> None:
    """with_value returns a new snapshot; the one it came from stays as it was."""
    parent = EMPTY.with_value("tenant", "a")
    child = parent.with_value("tenant", "b").with_value("request", 1)

    assert parent.get("tenant") == "a"
    assert (child.get("tenant"), child.get("request")) == ("b", 1)
    assert child.parent is not None
    assert child.parent.parent is parent


@given(st.lists(st.tuples(keys, st.integers())))
def test_a_chain_reads_like_a_dictionary(pairs: list[tuple[str, int]]) -> None:
    """The nearest value wins, absent keys have the default, all visible ones are listed."""
    context, plain = built(pairs), dict(pairs)

    assert context.to_dict() == plain
    assert all(context.get(key) == value and key in context for key, value in plain.items())
    assert context.get("no such key, it is too long", 5) == 5


def test_a_snapshot_cannot_be_written() -> None:
    """Setting an attribute is refused, and so is a key that is empty."""
    with pytest.raises(AttributeError, match="with_value"):
        EMPTY._value = 1
    with pytest.raises(ValueError, match="empty"):
        EMPTY.with_value("", 1)


def test_a_deep_chain_is_walked_without_recursion() -> None:
    """100,000 links are looked through and the first is found."""
    context = built([("first", 1), *((f"k{n}", n) for n in range(100_000))])

    assert context.get("first") == 1


@given(st.dictionaries(keys, jsons))
def test_headers_bring_the_scope_to_another_process(values: dict[str, Any]) -> None:
    """What is sent as JSON comes back with the same values in the same order."""
    context = built(list(values.items()))

    there = ScopeContext.from_headers(json.loads(json.dumps(context.to_headers())))

    assert list(there.to_dict().items()) == list(values.items())


@pytest.mark.parametrize(
    "value", [{1, 2}, b"x", float("nan"), (1, 2), {1: 2}, object(), [float("inf")]]
)
def test_what_json_would_change_does_not_travel(value: object) -> None:
    """A value that would arrive as another one, or not at all, is refused by its key."""
    with pytest.raises(AsyncNodesError, match="'a/b'") as refused:
        EMPTY.with_value("a/b", value).to_headers()

    assert (refused.value.code, refused.value.pointer) == ("invalid_request", "/scope/a~1b")


@pytest.mark.parametrize("headers", [None, [], "x", {"": 1}, {1: 2}])
def test_headers_of_another_shape_are_refused(headers: object) -> None:
    """Only an object whose keys are texts is a scope."""
    with pytest.raises(AsyncNodesError) as refused:
        ScopeContext.from_headers(headers)

    assert refused.value.code == "invalid_request"


def test_a_scope_can_be_pickled() -> None:
    """A prefork pool may hand a scope to its children."""
    there = pickle.loads(pickle.dumps(built([("a", [1]), ("b", None)])))  # noqa: S301 - our own

    assert there.to_dict() == {"a": [1], "b": None}


def fail_inside(inner: ScopeContext) -> None:
    assert current() is inner
    assert inner.to_dict() == {"tenant": "a", "request": 1}
    raise KeyError


def test_a_block_ends_with_what_was_before_it() -> None:
    """scope() nests, takes a snapshot or values, and is undone by an exception too."""
    with scope(tenant="a") as outer:
        with pytest.raises(KeyError), scope(request=1) as inner:
            fail_inside(inner)
        assert current() is outer
        with scope(EMPTY):
            assert current() is EMPTY

    assert current() is EMPTY


def test_threads_do_not_see_each_other() -> None:
    """Each of 50 threads sees its own values in step with all others, a new thread none."""
    seen: list[bool] = []
    together = threading.Barrier(50)

    def body(number: int) -> None:
        clean = current() is EMPTY
        with scope(number=number):
            together.wait(30)
            clean = clean and current().get("number") == number
            together.wait(30)
        seen.append(clean and current() is EMPTY)

    threads = [threading.Thread(target=body, args=(n,)) for n in range(50)]
    with scope(number=-1):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert seen == [True] * 50


def test_asyncio_tasks_start_with_their_maker_s_scope_and_keep_to_themselves() -> None:
    """A task sees the scope it was made in; what it sets does not come out."""

    async def body(number: int) -> tuple[Any, Any]:
        with scope(number=number):
            await asyncio.sleep(0)
            return current().get("tenant"), current().get("number")

    async def main() -> list[tuple[Any, Any]]:
        with scope(tenant="a"):
            return await asyncio.gather(*(body(n) for n in range(100)))

    assert asyncio.run(main()) == [("a", n) for n in range(100)]
    assert current() is EMPTY


GREENLETS = """
from gevent import monkey; monkey.patch_all()
import gevent
from gevent.event import Event
from async_nodes.core.context import EMPTY, current, scope

everybody_in, right, leaks = Event(), [], []

def body(number):
    leaks.append(current().get("number"))
    with scope(number=number):
        everybody_in.wait()
        gevent.sleep(0.001 * (number % 7))
        right.append(current().get("number") == number)
    leaks.append(current().get("number"))

with scope(tenant="a"):
    greenlets = [gevent.spawn(body, number) for number in range(1000)]
gevent.sleep(0)
everybody_in.set()
gevent.joinall(greenlets, raise_error=True)
assert right == [True] * 1000, right.count(False)
assert leaks == [None] * 2000
assert current() is EMPTY
with scope(number=-1):
    inside = gevent.spawn(lambda: current().get("number")).get()
assert inside is None, "a greenlet starts with the empty scope"
"""


def test_a_thousand_greenlets_do_not_see_each_other() -> None:
    """Greenlets that all sit inside their own scope at once see only their own."""
    done = subprocess.run([sys.executable, "-c", GREENLETS], capture_output=True, check=False)

    assert done.returncode == 0, done.stderr.decode()


def test_a_copied_context_holds_the_scope() -> None:
    """A callback run in a copied context sees the scope of where it was copied."""
    with scope(tenant="a"):
        copied = contextvars.copy_context()

    assert copied.run(lambda: current().get("tenant")) == "a"
