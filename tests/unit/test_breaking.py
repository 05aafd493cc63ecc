"""What a node's declared protection does around its body."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from async_nodes import Breaker, Degraded, Hedge, LastGood, NodeContext, OtherNode, node
from async_nodes.core.breaker import Cause, State, closed, opened
from async_nodes.core.context import EMPTY
from async_nodes.core.errors import AsyncNodesError, RetryableError
from async_nodes.core.retry import RetryPolicy
from async_nodes.execution.breakers import Board, BreakerOpen
from async_nodes.execution.breaking import Breaking, address_of
from async_nodes.execution.hedging import FEWEST, Hedging
from async_nodes.execution.job import Job
from async_nodes.nodes import invoke
from async_nodes.nodes.registry import Registry
from async_nodes.testing.harness import MemoryBlobs

CLAIM: Any = None


class Bench:
    """Run the bodies of declared nodes as an attempt does."""

    def __init__(self) -> None:
        self.board = Board(None, None, endpoint=Breaker())
        self.nodes: Any = Registry()
        self.breaking = Breaking(self.board, self.nodes, None)
        self.blobs = MemoryBlobs()
        self.usage: dict[str, int] = {}
        self.log: list[str] = []

    def declare(self, name: str, body: Callable[..., Any], **declared: Any) -> None:
        """Declare a node."""
        node(name, **declared)(body)

    def run(self, name: str, **inputs: Any) -> Any:
        """Run a node and keep what it reports."""
        self.usage, self.log = {}, []
        ctx = NodeContext(
            task_id="t_1",
            node=name,
            blobs=self.blobs,
            on_usage=self.usage.update,
            on_log=lambda _level, text: self.log.append(text),
            calls=self.breaking.calls,
        )
        job = Job(self.nodes[name], json.dumps(inputs).encode(), RetryPolicy(), EMPTY, "")

        def body(_claim: Any, job: Job) -> Any:
            return invoke(job.spec, ctx, job.spec.validate(job.inputs))

        return self.breaking.protect(ctx)(body)(CLAIM, job)

    def open(self, name: str) -> None:
        """Open a node's breaker."""
        guarded = self.board.node(name, self.nodes[name].protection.breaker)
        now_ms = self.board.now_ms()
        guarded._adopt(
            opened(guarded.breaker, guarded.condition, Cause.FAILURES, now_ms=now_ms, draw=0.5)
        )

    def end_opening(self, name: str) -> None:
        """Let an open breaker's time be over."""
        self.board.node(name, self.nodes[name].protection.breaker)._opens_at = 0.0


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return a bench whose nodes are known to nobody else."""
    made = Bench()
    monkeypatch.setattr("async_nodes.nodes.registry._registry", made.nodes)
    return made


def answers(text: str) -> Callable[..., Any]:
    """Return a body that answers."""

    def body(x: int = 0) -> str:
        return f"{text} {x}"

    return body


def fails(x: int = 0) -> str:
    raise RetryableError("the model is away")


def test_a_refused_call_is_an_error_of_the_catalogue(bench: Bench) -> None:
    """Where nothing else is declared; the body is not run."""
    bench.declare("ask", answers("asked"), breaker=Breaker())
    bench.open("ask")

    with pytest.raises(BreakerOpen) as refused:
        bench.run("ask")

    assert refused.value.code == "breaker_open"
    assert 27 <= (refused.value.retry_after or 0) <= 36
    assert bench.usage == {}


@pytest.mark.parametrize("value", [None, "busy", {"answer": []}], ids=str)
def test_a_declared_value_answers_and_the_record_says_so(bench: Bench, value: Any) -> None:
    """In its usage, and in the task's log with the reason."""
    bench.declare("ask", answers("asked"), breaker=Breaker(), fallback=value)
    bench.open("ask")

    assert bench.run("ask") == value
    assert bench.usage == {"fallback": 1}
    assert "too many calls failed" in bench.log[0]


def test_without_need_nothing_is_said(bench: Bench) -> None:
    """A closed breaker's node answers by itself."""
    bench.declare("ask", answers("asked"), breaker=Breaker(), fallback="busy")

    assert (bench.run("ask", x=2), bench.usage, bench.log) == ("asked 2", {}, [])


def test_another_node_answers_with_the_same_inputs(bench: Bench) -> None:
    """And with its own fallback where it is closed off too."""
    bench.declare("small", answers("small"), breaker=Breaker(), fallback="neither")
    bench.declare("ask", answers("asked"), breaker=Breaker(), fallback=OtherNode("small"))
    bench.open("ask")

    first = bench.run("ask", x=3)
    bench.open("small")

    assert (first, bench.run("ask", x=3)) == ("small 3", "neither")


def test_a_circle_of_fallbacks_ends(bench: Bench) -> None:
    """With the refusal."""
    bench.declare("one", answers("one"), breaker=Breaker(), fallback=OtherNode("two"))
    bench.declare("two", answers("two"), breaker=Breaker(), fallback=OtherNode("one"))
    bench.open("one")
    bench.open("two")

    with pytest.raises(BreakerOpen):
        bench.run("one")


def test_the_last_good_answer_to_the_same_inputs_answers(bench: Bench) -> None:
    """Not one to others."""
    bench.declare("ask", answers("asked"), breaker=Breaker(), fallback=LastGood())
    bench.run("ask", x=1)
    bench.open("ask")

    assert (bench.run("ask", x=1), bench.usage) == ("asked 1", {"fallback": 1})
    assert "its last good answer, 0 s old" in bench.log[0]
    with pytest.raises(BreakerOpen):
        bench.run("ask", x=2)


def test_a_fallback_answers_where_an_endpoint_is_closed_off(bench: Bench) -> None:
    """The node need not have a breaker of its own."""

    def body(ctx: NodeContext) -> str:
        with ctx.call_to("https://api.example/v1"):
            return "asked"

    bench.declare("ask", body, fallback="busy")
    guarded = bench.board.endpoint("api.example:443", "default")
    assert guarded is not None
    before = bench.run("ask")
    guarded._adopt(opened(guarded.breaker, guarded.condition, Cause.FAILURES,
                          now_ms=bench.board.now_ms(), draw=0.5))  # fmt: skip

    assert (before, bench.run("ask"), bench.usage) == ("asked", "busy", {"fallback": 1})


def test_a_failing_trial_is_not_to_its_clients_cost(bench: Bench) -> None:
    """Its task gets the fallback; the trial counts as failed."""
    bench.declare("ask", fails, breaker=Breaker(), fallback="busy")
    bench.open("ask")
    bench.end_opening("ask")

    assert bench.run("ask") == "busy"
    condition = bench.board.conditions()["node:ask"]
    assert (condition.state, condition.trials) == (State.HALF_OPEN, (False,))


def test_an_error_of_a_closed_breaker_is_the_nodes_own(bench: Bench) -> None:
    """A fallback is for what is not tried."""
    bench.declare("ask", fails, breaker=Breaker(), fallback="busy")

    with pytest.raises(RetryableError, match="the model is away"):
        bench.run("ask")


def test_a_body_knows_its_degraded_mode(bench: Bench) -> None:
    """By name, while it lasts."""

    def body(ctx: NodeContext) -> str:
        return ctx.degraded or "full"

    bench.declare("ask", body, breaker=Breaker(degraded=Degraded("small-model")))
    before = bench.run("ask")
    bench.open("ask")
    guarded = bench.board.node("ask", bench.nodes["ask"].protection.breaker)
    guarded._adopt(closed(guarded.condition, Cause.TRIALS_SUCCEEDED, now_ms=bench.board.now_ms()))

    assert (before, bench.run("ask")) == ("full", "small-model")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://api.example/v1/chat", "api.example:443"),
        ("http://API.example:8080", "api.example:8080"),
        ("http://[::1]:99/", "::1:99"),
        ("http://host:port/", "?"),
        ("", "?:0"),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(url: str, address: str) -> None:
    """Whatever the path; a URL that is none has a name too."""
    assert address_of(url) == address


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ({"breaker": 5}, "breaker must be"),
        ({"fallback": {1, 2}}, "JSON value"),
        ({"fallback": OtherNode("ask")}, "its own fallback"),
        ({"fallback": LastGood(0)}, "30 days"),
        ({"hedge": 0.1}, "hedge must be"),
        ({"hedge": Hedge(after=0)}, "after"),
        ({"hedge": Hedge(most=2)}, "most"),
    ],
    ids=str,
)
def test_a_protection_that_makes_no_sense_is_refused(
    bench: Bench, declared: dict[str, Any], why: str
) -> None:
    """When the node is declared."""
    with pytest.raises(AsyncNodesError, match=why) as refused:
        bench.declare("ask", answers("asked"), **declared)

    assert refused.value.code == "invalid_node"


def test_a_stream_cannot_be_hedged(bench: Bench) -> None:
    """Two would be mixed."""

    def body() -> Iterator[str]:
        yield "a"

    with pytest.raises(AsyncNodesError, match="plain function"):
        bench.declare("ask", body, hedge=Hedge())


def test_where_there_are_no_breakers_every_call_is_let_through() -> None:
    """In a test of a node, say."""
    ctx = NodeContext(task_id="t_1", node="a")

    assert isinstance(ctx.call_to("https://api.example"), nullcontext)


# -- hedges ----------------------------------------------------------------------------------------


class Track:
    """A host whose first calls are slow, so that each second one is asked for."""

    def race(
        self, call: Callable[[bool], Any], after: float, second: Callable[[], bool]
    ) -> tuple[Any, bool]:
        """Ask for the second call at once."""
        return call(False), second()


def test_a_tenth_of_the_calls_is_hedged_at_most() -> None:
    """However many are slow."""
    hedging = Hedging("ask", Hedge(after=0.1))

    for _ in range(100):
        hedging.run(lambda _second: None, Track())

    assert hedging.extra == 10


def test_a_hedge_waits_for_the_p95() -> None:
    """Of the calls before; nothing is slow while there were too few."""
    hedging = Hedging("ask", Hedge())
    for number in range(FEWEST):
        assert hedging.after() is None
        hedging.observe(1.0 if number == FEWEST - 1 else 0.1)

    assert hedging.after() == pytest.approx(0.1, rel=0.06)


def test_old_calls_are_forgotten() -> None:
    """After a thousand that were faster."""
    hedging = Hedging("ask", Hedge())
    for seconds in [1.0] * 500 + [0.1] * 1_000:
        hedging.observe(seconds)

    assert hedging.after() == pytest.approx(0.1, rel=0.06)
