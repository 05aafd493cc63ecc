"""Breakers that several processes share over a real server, and what each does without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from async_nodes.core.breaker import PRISTINE, Breaker, Cause, Condition, State, forced
from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.execution.breakers import Board, BreakerOpen, Guarded
from async_nodes.storage.breakers import KEPT_DAYS, SharedBreakers
from async_nodes.storage.redis_connection import BlockingConnection
from tests.contract.real_store import KEYS, RealStore, open_store

if TYPE_CHECKING:
    from tests.servers import RedisServer

QUICK = Breaker(window=2.0, open_seconds=0.3, jitter=0.0, failures=5)
NODE = "models.ask"


class Process:
    """What a process has of the breakers, with a connection of its own and time by hand."""

    def __init__(self, server: RedisServer) -> None:
        self.real: RealStore = open_store(server)
        self.link = BlockingConnection(server.url, timeout=0.5)
        self.shared = SharedBreakers(self.real.store.beside(self.link))
        self.board = Board(self.shared, None, endpoint=QUICK)

    def guarded(self, breaker: Breaker = QUICK, node: str = NODE) -> Guarded:
        """Return a breaker of the process."""
        return self.board.node(node, breaker)

    def fail(self, times: int) -> None:
        """Make calls that fail."""
        for _ in range(times):
            with pytest.raises(RetryableError), self.guarded()():
                raise RetryableError("no")

    def open(self) -> None:
        """Open the breaker by failures."""
        self.fail(6)
        self.board.flush()
        assert self.state is State.OPEN

    @property
    def state(self) -> State:
        """Return the state as this process knows it."""
        return self.guarded().condition.state


@pytest.fixture
def start(one_server: RedisServer) -> Iterator[Callable[[], Process]]:
    """Give a function that starts a process."""
    made: list[Process] = []

    def start() -> Process:
        made.append(Process(one_server))
        return made[-1]

    yield start
    for process in made:
        process.real.link.close()
        process.link.close()


def half_open(process: Process) -> None:
    """Wait for an open breaker's time to be over."""
    process.open()
    time.sleep(0.35)


def works(process: Process) -> bool:
    """Tell whether a call is let through, and make it."""
    try:
        with process.guarded()():
            return True
    except BreakerOpen:
        return False


# -- what one process finds holds for all ----------------------------------------------------------


def test_failures_of_several_processes_add_up(start: Callable[[], Process]) -> None:
    """None of the three has seen enough by itself."""
    processes = [start() for _ in range(3)]
    for process in processes:
        process.fail(2)
        process.board.flush()

    assert processes[-1].state is State.OPEN


def test_an_opening_is_known_to_all_at_their_next_look(start: Callable[[], Process]) -> None:
    """To one that has made calls, and to one that has only just come."""
    here, there = start(), start()
    there.guarded()
    here.open()
    newcomer = start()
    newcomer.guarded()

    for process in (there, newcomer):
        process.board.flush()

    assert [there.state, newcomer.state, here.state] == [State.OPEN] * 3
    assert not works(newcomer)


def test_a_refusal_says_until_when(start: Callable[[], Process]) -> None:
    """With the catalogue's code, to be tried again after the opening."""
    process = start()
    process.open()

    with pytest.raises(BreakerOpen) as refused, process.guarded()():
        pass

    assert (refused.value.code, refused.value.status) == ("breaker_open", 503)
    assert refused.value.retryable
    assert 0 < (refused.value.retry_after or 0) <= 0.34
    assert refused.value.extra == {"breaker": f"node:{NODE}"}


def test_breakers_of_two_names_are_two(start: Callable[[], Process]) -> None:
    """And one of a key is shared by the nodes that declare it."""
    process = start()
    process.open()
    other, first, second = (
        process.guarded(node="other"),
        process.guarded(replace(QUICK, key="billing"), "one"),
        process.guarded(replace(QUICK, key="billing"), "two"),
    )
    process.board.flush()

    assert other.condition.state is State.CLOSED
    assert first is second


def test_a_windows_figures_are_kept_for_people(start: Callable[[], Process]) -> None:
    """What decided: calls, failures, rate and P95."""
    process = start()
    process.open()

    known = process.shared.all()[f"node:{NODE}"]

    assert known.cause is Cause.FAILURES
    assert (known.figures.calls, known.figures.failures, known.figures.rate) == (6, 6, 3.0)


def test_what_works_is_looked_at_half_as_often(start: Callable[[], Process]) -> None:
    """Its counts wait for the next look; failures do not."""
    process = start()
    process.board.flush()
    good, bad = process.guarded(node="good"), process.guarded()
    with good():
        pass
    process.fail(1)

    assert process.board.flush(urgent=True)
    assert (good.counts.calls, bad.counts.calls) == (1, 0)


# -- half-open -------------------------------------------------------------------------------------


def test_one_call_at_a_time_in_the_whole_cluster(start: Callable[[], Process]) -> None:
    """Of two processes with a herd each, one call is let through."""
    processes = [start(), start()]
    half_open(processes[0])
    processes[1].guarded()
    processes[1].board.flush()

    with processes[0].guarded()():
        others = [works(process) for process in processes for _ in range(5)]

    assert others == [False] * 10


def test_it_closes_after_seven_good_trials(start: Callable[[], Process]) -> None:
    """Wherever they were made; not after one."""
    processes = [start(), start()]
    half_open(processes[0])
    processes[1].guarded()
    processes[1].board.flush()
    states = []

    for number in range(7):
        assert works(processes[number % 2])
        states.append(processes[0].shared.one(f"node:{NODE}").state)  # type: ignore[union-attr]

    assert states == [State.HALF_OPEN] * 6 + [State.CLOSED]
    for process in processes:
        process.board.flush()
    assert [process.state for process in processes] == [State.CLOSED] * 2


def test_two_bad_trials_open_it_again(start: Callable[[], Process]) -> None:
    """As 85 % of seven cannot be reached any more."""
    process = start()
    half_open(process)

    process.fail(1)
    between = process.state
    process.fail(1)

    assert (between, process.state) == (State.HALF_OPEN, State.OPEN)
    assert not works(process)


def test_a_trial_that_is_broken_off_proves_nothing(start: Callable[[], Process]) -> None:
    """A cancel of the task; and the next call is the trial."""
    process = start()
    half_open(process)

    with pytest.raises(GeneratorExit), process.guarded()():
        raise GeneratorExit

    assert process.guarded().condition.trials == ()
    assert works(process)
    assert process.guarded().condition.trials == (True,)


def test_a_trial_whose_process_died_is_over_after_a_while(start: Callable[[], Process]) -> None:
    """Nobody says any more that it goes on."""
    process, dead = start(), start()
    half_open(process)
    dead.shared.take(f"node:{NODE}", "of somebody who died")
    assert not works(process)

    dead.real.link.call("PEXPIRE", f"{KEYS.base}breaktrial:node:{NODE}", 1)
    time.sleep(0.06)  # the process asks again after 50 ms

    assert works(process)


def test_a_long_trial_goes_on_being_the_only_one(start: Callable[[], Process]) -> None:
    """Its process says so at every look."""
    process = start()
    half_open(process)
    key = f"{KEYS.base}breaktrial:node:{NODE}"

    with process.guarded()():
        process.real.link.call("PEXPIRE", key, 1_000)
        process.board.flush()
        left = process.real.link.call("PTTL", key)

    assert left > 2_000


# -- what counts as a failure ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "failures"),
    [
        (RetryableError("busy"), 1),
        (ConnectionError("cut"), 1),
        (TerminalError("no such model"), 0),
        (AsyncNodesError("invalid_inputs"), 0),
        (BreakerOpen("endpoint:x", 1, why="open"), None),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_callers_mistake_is_no_failure(
    start: Callable[[], Process], error: Exception, failures: int | None
) -> None:
    """And a call that another breaker has refused was never made."""
    guarded = start().guarded()

    with pytest.raises(type(error)), guarded():
        raise error

    expected = (0, 0) if failures is None else (1, failures)
    assert (guarded.counts.calls, guarded.counts.failures) == expected


def test_endpoints_are_apart_by_tenant(start: Callable[[], Process]) -> None:
    """What one does to a host closes it to nobody else."""
    board = start().board

    names = [board.endpoint("api.example:443", tenant).name for tenant in ("default", "acme")]  # type: ignore[union-attr]

    assert names == ["endpoint:api.example:443", "endpoint:api.example:443@acme"]


# -- administrators --------------------------------------------------------------------------------


def test_a_forced_breaker_is_so_everywhere(start: Callable[[], Process]) -> None:
    """Open without an end, whatever the calls do; and back by a word."""
    process, admin = start(), start()
    process.guarded()
    process.board.flush()
    name = f"node:{NODE}"

    def force(mode: str) -> None:
        known = admin.shared.one(name) or PRISTINE
        wanted = forced(known, mode, now_ms=admin.shared.now_ms())
        assert admin.shared.change(name, known.version, wanted) is None
        process.board.flush()

    force("open")
    refused = not works(process)
    force("closed")
    process.fail(6)
    process.board.flush()
    closed = works(process)
    force("auto")

    assert (refused, closed, works(process)) == (True, True, True)
    assert process.guarded().condition.forced == ""


def test_who_only_refuses_goes_on_looking(start: Callable[[], Process]) -> None:
    """Also long after the last call that was let through."""
    process, admin = start(), start()
    name = f"node:{NODE}"
    assert admin.shared.change(name, 0, forced(PRISTINE, "open", now_ms=1)) is None
    process.guarded()
    process.board.flush()
    process.guarded().used_at -= 3_600
    silent = process.board.flush()
    refused = not works(process)

    known = admin.shared.one(name)
    assert known is not None
    assert admin.shared.change(name, known.version, forced(known, "auto", now_ms=2)) is None

    assert (silent, refused) == (False, True)
    assert process.board.flush()
    assert works(process)


# -- without the store -----------------------------------------------------------------------------


def test_it_survives_an_emptied_store(start: Callable[[], Process]) -> None:
    """Whoever knows it writes it again; also when the scripts are gone."""
    process, other = start(), start()
    process.open()

    process.real.link.call("FLUSHALL")
    process.real.link.call("SCRIPT", "FLUSH")
    process.board.flush()
    other.guarded()
    other.board.flush()

    assert [process.state, other.state] == [State.OPEN, State.OPEN]


def test_an_emptied_store_knows_the_trial(start: Callable[[], Process]) -> None:
    """A condition that is lost while its time is over is written by whoever asks for the trial."""
    process = start()
    half_open(process)
    process.real.link.call("FLUSHALL")

    with process.guarded()():
        known = process.shared.one(f"node:{NODE}")

    assert known is not None
    assert known.state is State.HALF_OPEN


def test_it_opens_and_closes_by_itself_without_the_store(
    start: Callable[[], Process], one_server: RedisServer
) -> None:
    """By what the process sees; and what it has decided holds for all once the store is back."""
    process = start()
    process.guarded()
    process.board.flush()
    one_server.kill()
    try:
        process.open()
        refused = not works(process)
        time.sleep(0.35)
        trials = [works(process) for _ in range(7)]
        closed = process.state
        process.open()
    finally:
        one_server.start()
    assert (refused, trials, closed) == (True, [True] * 7, State.CLOSED)

    process.board.flush()

    known = process.shared.one(f"node:{NODE}")
    assert known is not None
    assert (known.state, process.board.alone) == (State.OPEN, False)


def test_what_others_decided_meanwhile_wins(
    start: Callable[[], Process], one_server: RedisServer
) -> None:
    """A process that was cut off goes by the cluster again."""
    process, other = start(), start()
    for one in (process, other):
        one.guarded()
        one.board.flush()
    one_server.kill()
    try:
        process.open()
    finally:
        one_server.start()
    other.open()
    theirs = other.guarded().condition

    process.board.flush()

    assert process.guarded().condition == theirs


# -- housekeeping ----------------------------------------------------------------------------------


def test_a_breaker_nobody_uses_is_forgotten(start: Callable[[], Process]) -> None:
    """After a week, at the next change of another one; one that is forced stays."""
    process = start()
    shared, link = process.shared, process.real.link
    for name, condition in (
        ("node:old", PRISTINE),
        ("node:kept", forced(PRISTINE, "open", now_ms=1)),
    ):
        assert shared.change(name, 0, replace(condition, version=1)) is None
    for name in ("node:old", "node:kept"):
        week_ago = process.real.now_ms() - (KEPT_DAYS * 86_400_000 + 1)
        link.call("ZADD", f"{KEYS.base}breakerused", week_ago, name)

    assert shared.change("node:new", 0, Condition(version=1)) is None

    assert sorted(shared.all()) == ["node:kept", "node:new"]


def test_many_hosts_take_little_room(
    start: Callable[[], Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond some thousand only those are kept that are not closed."""
    monkeypatch.setattr("async_nodes.storage.breakers.MOST_KEPT", 2)
    shared = start().shared
    shut = Condition(version=1, state=State.OPEN)
    for number, condition in enumerate((PRISTINE, PRISTINE, PRISTINE, shut)):
        assert shared.change(f"endpoint:{number}:443", 0, replace(condition, version=1)) is None

    assert sorted(shared.all()) == [f"endpoint:{number}:443" for number in (0, 1, 3)]


def test_counts_do_not_stay(start: Callable[[], Process]) -> None:
    """Those of a window ago go, and all of them once nobody calls."""
    process = start()
    process.fail(1)
    process.board.flush()
    key = f"{KEYS.base}breakcount:node:{NODE}"
    process.real.link.call("HSET", key, 1, "9 9 3:9")

    process.board.flush()

    assert process.real.link.call("HEXISTS", key, 1) == 0
    assert 0 < process.real.link.call("PTTL", key) <= 64_000
