"""The group commit on a link of the test's own: what is gathered, kept, put off and given up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import gevent
import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage import group_commit as module
from async_nodes.storage.commit import MAX_ROWS, DirectCommit, passes
from async_nodes.storage.group_commit import GroupCommit
from async_nodes.storage.redis_errors import (
    NotSent,
    OutcomeUnknown,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    reply_error,
)
from async_nodes.storage.script_library import NAMES, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCRIPTS = {name: Script(name, f"-- {name}", name) for name in NAMES}
Answer = Any


class EchoLink:
    """Answers each row (one argument) with itself, after the failures it was given."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls: list[list[tuple[str, list[Any]]]] = []
        self.doubts: list[str] = []
        self.answer: Callable[[str, Any], Answer] = lambda _script, row: [b"ok", row]

    def call_many(
        self, commands: Sequence[Sequence[Any]], *, timeout: float | None = None
    ) -> list[Any]:
        """Answer EVALSHA script 1 base row row and so on."""
        gevent.sleep(0)
        self.calls.append([(command[1], list(command[4:])) for command in commands])
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, StoreUnavailable):
                raise failure
            return [failure] * len(commands)
        return [[self.answer(command[1], row) for row in command[4:]] for command in commands]

    def doubt(self, word: str) -> None:
        """Write down what the server was doubted for."""
        self.doubts.append(word)


def committed(link: EchoLink) -> GroupCommit:
    return GroupCommit(link, SCRIPTS, "an:{0}:")  # type: ignore[arg-type]


def test_what_waits_together_goes_together() -> None:
    """A thousand rows take as many flushes as their number demands, each gets its own verdict."""
    link = EchoLink()
    group = committed(link)
    rows = [gevent.spawn(group.commit, "submit", (n,), patience=5.0) for n in range(1000)]

    assert [row.get() for row in rows] == [[b"ok", n] for n in range(1000)]
    assert group.rows == 1000
    assert group.flushes <= 1000 / MAX_ROWS + 2
    sent = [row for call in link.calls for _, batch in call for row in batch]
    assert sent == list(range(1000))


def test_one_flush_runs_the_scripts_in_the_order_of_a_life() -> None:
    """A task's chunk is in the store before its end, whoever asked first."""
    link = EchoLink()
    group = committed(link)
    waiting = [
        gevent.spawn(group.commit, script, (script,), patience=5.0)
        for script in reversed(module.ORDER)
    ]
    gevent.joinall(waiting, raise_error=True)

    assert [name for name, _ in link.calls[0]] == list(module.ORDER)
    assert module.ORDER.index("apply") < module.ORDER.index("complete")


def test_large_rows_are_split_by_their_bytes() -> None:
    """A flush carries about 256 KiB per script, and at least one row."""
    link = EchoLink()
    group = committed(link)
    big = b"x" * (200 << 10)
    waiting = [gevent.spawn(group.commit, "submit", (big,), patience=5.0) for _ in range(4)]
    gevent.joinall(waiting, raise_error=True)

    assert [len(batch) for call in link.calls for _, batch in call] == [1, 1, 1, 1]


@pytest.mark.parametrize("failure", [OutcomeUnknown("cut"), NotSent("down")])
def test_a_failed_flush_is_sent_again_in_order(failure: StoreUnavailable) -> None:
    """Every row goes out again, before those that came later."""
    link = EchoLink(failure, failure)
    group = committed(link)
    rows = [gevent.spawn(group.commit, "finish", (n,), patience=5.0) for n in range(5)]

    assert [row.get()[1] for row in rows] == list(range(5))
    assert [call[0][1] for call in link.calls] == [list(range(5))] * 3


@pytest.mark.parametrize("word", ["LOADING", "READONLY", "BUSY", "MASTERDOWN"])
def test_a_server_that_is_not_ready_is_waited_for(word: str) -> None:
    """A result is not thrown away because the server is loading or changes its role."""
    link = EchoLink(reply_error(f"{word} not now"))
    group = committed(link)

    assert group.commit("finish", (1,), patience=5.0) == [b"ok", 1]
    assert len(link.calls) == 2


@pytest.mark.parametrize(
    ("answer", "doubts"),
    [
        (reply_error("READONLY You can't write"), ["READONLY"]),
        (reply_error("NOREPLICAS Not enough good replicas"), ["NOREPLICAS"]),
        (reply_error("LOADING not now"), []),
        (reply_error("BUSY not now"), []),
    ],
)
def test_a_server_that_refuses_as_a_replica_is_doubted(
    answer: Exception, doubts: list[str]
) -> None:
    """The connection is told to look for the primary; a server that is busy stays it."""
    link = EchoLink(answer)

    assert committed(link).commit("finish", (1,), patience=5.0) == [b"ok", 1]
    assert link.doubts == doubts


def test_a_row_that_is_put_off_does_not_hold_the_others() -> None:
    """The same flush answers some rows and keeps the rest, in their order."""
    link = EchoLink()
    group = committed(link)
    refused = {3, 4}

    def answer(_script: str, row: int) -> Answer:
        if row in refused:
            refused.discard(row)
            return [b"error", b"READONLY You can't write against a read only replica."]
        return [b"ok", row]

    link.answer = answer
    rows = [gevent.spawn(group.commit, "finish", (n,), patience=5.0) for n in range(6)]

    assert [row.get()[1] for row in rows] == list(range(6))
    assert [call[0][1] for call in link.calls] == [[0, 1, 2, 3, 4, 5], [3, 4]]


def test_patience_ends() -> None:
    """A row's sender is told within its patience, and whether the row may have been carried out."""
    for failures, kind in [
        ([NotSent("down")] * 99, NotSent),
        ([OutcomeUnknown("cut"), *[NotSent("down")] * 99], OutcomeUnknown),
        ([reply_error("LOADING")] * 99, StoreUnavailable),
    ]:
        started = time.monotonic()
        with pytest.raises(StoreUnavailable) as told:
            committed(EchoLink(*failures)).commit("submit", (1,), patience=0.3)
        assert type(told.value) is kind
        assert 0.2 < time.monotonic() - started < 1


def test_a_full_server_is_told_to_a_client_and_waited_for_by_a_worker() -> None:
    """A submit is refused at once; what a worker has to say would be lost, so it waits."""
    link = EchoLink()
    link.answer = lambda _script, _row: [b"error", b"OOM command not allowed when used memory"]
    group = committed(link)
    started = time.monotonic()

    with pytest.raises(StoreFull):
        group.commit("submit", (1,), patience=5.0)
    assert time.monotonic() - started < 0.2
    waiting = gevent.spawn(group.commit, "apply", (2,), patience=5.0)
    gevent.sleep(0.1)
    assert not waiting.ready()
    link.answer = lambda _script, row: [b"ok", row]
    assert waiting.get() == [b"ok", 2]


def test_a_fault_inside_a_script_is_its_row_s_alone() -> None:
    """One row's error does not reach the others."""
    link = EchoLink()
    link.answer = lambda _script, row: [b"error", b"attempt to index nil"] if row == 1 else [b"ok"]
    group = committed(link)
    rows = [gevent.spawn(group.commit, "finish", (n,), patience=5.0) for n in range(3)]
    gevent.joinall(rows)

    assert (rows[0].value, rows[2].value) == ([b"ok"], [b"ok"])
    assert isinstance(rows[1].exception, AsyncNodesError)
    assert rows[1].exception.code == "internal"


def test_a_row_that_cannot_be_sent_is_its_sender_s_fault() -> None:
    """It is refused before it can spoil a flush, and the flusher lives on."""
    group = committed(EchoLink())

    with pytest.raises(TypeError, match="None"):
        group.commit("finish", (None,), patience=1.0)  # type: ignore[arg-type]
    assert group.commit("finish", (1,), patience=1.0) == [b"ok", 1]


def test_a_flusher_that_met_the_unexpected_answers_and_lives_on() -> None:
    """Whatever the link raises reaches the rows of that flush as an error of ours."""
    link = EchoLink()
    group = committed(link)
    link.answer = lambda _script, row: [b"ok", 1 // row]

    with pytest.raises(AsyncNodesError) as told:
        group.commit("finish", (0,), patience=1.0)
    assert told.value.code == "internal"
    assert group.commit("finish", (1,), patience=1.0) == [b"ok", 1]


def test_a_crowd_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound a row is refused at once, and taken again when the crowd is gone."""
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    group = committed(EchoLink())
    rows = [gevent.spawn(group.commit, "submit", (n,), patience=5.0) for n in range(15)]
    gevent.joinall(rows)

    assert [type(row.exception) for row in rows[10:]] == [StoreBusy] * 5
    assert all(row.value for row in rows[:10])
    assert group.commit("submit", (99,), patience=1.0) == [b"ok", 99]


def test_what_waits_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submit that would go beyond is refused at once; a worker's result never is."""
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 1000)
    group = committed(EchoLink())
    large = b"x" * 400
    submits = [gevent.spawn(group.commit, "submit", (large,), patience=5.0) for _ in range(4)]
    results = [gevent.spawn(group.commit, "finish", (large,), patience=5.0) for _ in range(4)]
    gevent.joinall(submits + results)

    assert [type(row.exception) for row in submits[2:]] == [StoreBusy] * 2
    assert all(row.value for row in submits[:2] + results)
    gevent.sleep(0.01)
    assert group._waiting_bytes == 0
    assert group.commit("submit", (b"y" * 2000,), patience=1.0)[0] == b"ok"  # it waits alone


def test_a_server_at_work_gets_the_time_it_takes() -> None:
    """Rows that had to wait for many others are not given up while the server answers."""
    given: list[float] = []

    class BusyLink(EchoLink):
        def call_many(
            self, commands: Sequence[Sequence[Any]], *, timeout: float | None = None
        ) -> list[Any]:
            gevent.sleep(0.1)
            if timeout is not None and timeout < 0.1:
                raise OutcomeUnknown("no answer in time")
            given.append(timeout or 0)
            return super().call_many(commands, timeout=timeout)

    group = committed(BusyLink())
    said = group.commit_many("submit", [(n,) for n in range(MAX_ROWS * 6)], patience=0.3)

    assert said == [[b"ok", n] for n in range(MAX_ROWS * 6)]
    assert len(given) == 6


def test_a_hung_server_answers_large_rows_as_soon_as_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flush takes one of them; the others do not wait for a flush each once their time is up."""
    monkeypatch.setattr("async_nodes.storage.commit.MAX_BYTES", 100)

    class HungLink(EchoLink):
        def call_many(
            self, commands: Sequence[Sequence[Any]], *, timeout: float | None = None
        ) -> list[Any]:
            gevent.sleep(timeout or 0)
            raise OutcomeUnknown("no answer")

    group = committed(HungLink())
    began = time.monotonic()
    rows = [gevent.spawn(group.commit, "submit", (b"x" * 90,), patience=0.3) for _ in range(30)]
    gevent.joinall(rows)

    assert time.monotonic() - began < 1.0
    assert {type(row.exception) for row in rows} <= {NotSent, OutcomeUnknown}
    assert type(rows[-1].exception) is NotSent
    assert group._waiting == group._waiting_bytes == 0


def test_a_sender_that_was_killed_disturbs_nobody() -> None:
    """Its row is carried out or not; the others get their own verdicts, the bound stays right."""
    group = committed(EchoLink())
    rows = [gevent.spawn(group.commit, "finish", (n,), patience=5.0) for n in range(10)]
    gevent.sleep(0)
    rows[4].kill(block=False)
    gevent.joinall(rows)

    assert [row.value[1] for n, row in enumerate(rows) if n != 4] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    gevent.sleep(0.01)
    assert group._waiting == 0


def test_the_direct_commit_keeps_trying_too() -> None:
    """One row at a time, the same rules."""
    link = EchoLink(NotSent("down"), OutcomeUnknown("cut"), reply_error("LOADING"))
    direct = DirectCommit(link, SCRIPTS, "an:{0}:")  # type: ignore[arg-type]
    assert direct.commit("finish", (1,), patience=5.0) == [b"ok", 1]

    link.failures = [OutcomeUnknown("cut"), *[NotSent("down")] * 99]
    with pytest.raises(OutcomeUnknown):
        direct.commit("finish", (1,), patience=0.2)
    link.failures = [reply_error("OOM command not allowed")]
    with pytest.raises(StoreFull):
        direct.commit("submit", (1,), patience=5.0)
    link.failures = [reply_error("OOM command not allowed")]
    assert direct.commit("finish", (1,), patience=5.0) == [b"ok", 1]


# -- many rows of one sender -----------------------------------------------------------------------

COMMITS = pytest.mark.parametrize("made", [committed, lambda link: DirectCommit(link, SCRIPTS, "")])


@COMMITS
def test_many_rows_of_one_sender_go_together(made: Any) -> None:
    """They share calls up to the caps, and each gets its own verdict, in order."""
    link = EchoLink()
    answers = made(link).commit_many("submit", [(n,) for n in range(450)], patience=5.0)

    assert answers == [[b"ok", n] for n in range(450)]
    assert [len(batch) for call in link.calls for _, batch in call] == [200, 200, 50]
    assert made(link).commit_many("submit", [], patience=5.0) == []


@COMMITS
def test_one_row_that_fails_harms_no_other(made: Any) -> None:
    """An error stands in its place; what was put off is sent again by itself."""
    link = EchoLink()
    refused = {2}

    def answer(_script: str, row: int) -> Answer:
        if row in refused:
            refused.discard(row)
            return [b"error", b"LOADING"]
        return [b"error", b"OOM command"] if row == 1 else [b"ok", row]

    link.answer = answer
    answers = made(link).commit_many("submit", [(n,) for n in range(4)], patience=5.0)

    assert [answers[0], *answers[2:]] == [[b"ok", 0], [b"ok", 2], [b"ok", 3]]
    assert isinstance(answers[1], StoreFull)
    assert [call[0][1] for call in link.calls] == [[0, 1, 2, 3], [2]]


@COMMITS
def test_many_rows_whose_fate_is_unknown_are_told_as_that(made: Any) -> None:
    """Those that were sent before the cut are unknown, each by itself."""
    link = EchoLink(OutcomeUnknown("cut"), *[NotSent("down")] * 99)
    answers = made(link).commit_many("submit", [(n,) for n in range(250)], patience=0.2)

    assert [type(one) for one in answers] == [OutcomeUnknown] * 200 + [NotSent] * 50


def test_a_sender_of_many_that_was_killed_disturbs_nobody() -> None:
    """Its rows are carried out or not; the bound stays right."""
    group = committed(EchoLink())
    many = gevent.spawn(group.commit_many, "submit", [(n,) for n in range(300)], patience=5.0)
    gevent.sleep(0)
    many.kill(block=False)

    assert group.commit("submit", (999,), patience=5.0) == [b"ok", 999]
    gevent.sleep(0.01)
    assert group._waiting == 0


def test_a_script_outside_the_order_comes_last() -> None:
    """Rows of any script can be committed."""
    link = EchoLink()
    group = committed(link)
    waiting = [
        gevent.spawn(group.commit, script, (script,), patience=5.0)
        for script in ("release", "finish")
    ]
    gevent.joinall(waiting, raise_error=True)

    assert [name for name, _ in link.calls[0]] == ["finish", "release"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ([b"ok", 1], False),
        ([b"error", b"BUSY Redis is busy"], True),
        ([b"error", b"OOM command"], True),
        ([b"error", b"nil"], False),
        (reply_error("LOADING x"), True),
        (reply_error("WRONGTYPE x"), False),
        ([], False),
    ],
)
def test_what_passes_is_told_from_what_stays(reply: Any, *, expected: bool) -> None:
    """Loading, failing over, busy and full pass; mistakes and verdicts do not."""
    assert passes(reply, "finish") is expected
