"""The store on real servers does what the memory oracle does, step by step, whatever happens.

Hypothesis makes up histories; every step is done to both, and after each the verdicts, the records,
the lists, leases, timers, streams and published events have to be the same. At the end every
record has to be what the machine makes of the history that the record itself tells.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import IdSource
from async_nodes.core.machine import Attempt, Event, Snapshot, replay, submitted
from async_nodes.core.ports import Claim, Ending
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType, NodeState, Outcome, Reason
from async_nodes.storage import layout
from async_nodes.storage.controls import Controls, Mode
from tests.contract.oracle import Oracle
from tests.contract.real_store import KEYS, OTHER, WORKER, RealStore, open_store, submission
from tests.servers import on_servers

if TYPE_CHECKING:
    from tests.servers import RedisServer

LEASE_SECONDS = 3_600
MOST_TASKS = 3  # alive at a time: few, so that much happens to each
HOUR = 3_600_000
TIMES = ("created_at", "started_at", "finished_at", "queued_at", "next_attempt_at", "expires_at")
ENDINGS = [
    EventType.COMPLETE,
    EventType.ERROR,
    EventType.RETRY,
    EventType.TIMEOUT,
    EventType.CANCEL,
    EventType.RELEASE,
]
jsons = st.sampled_from(
    [b"null", b'{"a": 1}', b'"\xe4\xbd\xa0\xe5\xa5\xbd"', b"[1,2,3]", b'"%d %s"']
)
SCOPES = ("queue:io.default", "node:echo")
workers = st.sampled_from([WORKER, OTHER])
whiches = st.integers(0, 9)


class Pair(RuleBasedStateMachine):
    """Drive the oracle and the store side by side."""

    server: ClassVar[RedisServer]
    gate_limit: ClassVar[int]
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.server.empty()
        self.real: RealStore = open_store(
            self.server, gate_limit=self.gate_limit, lease_seconds=LEASE_SECONDS
        )
        self.oracle = Oracle(
            self.real.now_ms, gate_limit=self.gate_limit, lease_ms=LEASE_SECONDS * 1000
        )
        self.client = self.server.client()
        self.heard = self.client.pubsub()
        self.heard.psubscribe(f"{KEYS.base}s:*", "marker")
        self.published()
        self.origins: dict[tuple[str, str], object] = {}

    retired = False
    made = 0

    def teardown(self) -> None:
        """Close the connections."""
        self.heard.close()
        self.real.link.close()

    def both(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """Do the same to both and compare what they say and what they publish."""
        said = outcome(getattr(self.real.store, verb), *args, **kwargs)
        published = self.published()
        if verb in ("sweep", "fire_timers"):
            kwargs["order"] = list(dict.fromkeys(task_id for task_id, *_ in published))
        expected = outcome(getattr(self.oracle, verb), *args, **kwargs)
        assert plain(said) == plain(expected)
        told, self.oracle.published = self.oracle.published, []
        assert sorted(published) == sorted(told)
        return said

    def new_id(self) -> str:
        """Return an id that is the same in every run of a history, and greater than the last."""
        self.made += 1
        return IdSource(b"a secret of the tests", lambda _bits: 0).make(self.made)

    def let_a_moment_pass(self, timed: object) -> None:
        """Keep timers a moment apart: those of one millisecond fire by id, others by time."""
        if timed:
            time.sleep(0.004)

    def some_timer_is_short(self) -> bool:
        """Tell whether a timer is due or soon will be; with a margin, so that runs repeat."""
        return min(self.oracle.due.values(), default=1e15) < self.real.now_ms() + HOUR / 2

    def live(self) -> list[str]:
        """Return the tasks that have not ended."""
        return [one for one, task in self.oracle.tasks.items() if not task.snap.state.terminal]

    def ended(self) -> list[str]:
        """Return the tasks that have ended."""
        return [one for one, task in self.oracle.tasks.items() if task.snap.state.terminal]

    def pick(self, which: int) -> str:
        """Return a task, mostly one to which something can still happen."""
        found = list(self.oracle.tasks) if which > 7 or not self.live() else self.live()
        return found[which % len(found)]

    def published(self) -> list[tuple[str, str, int, int]]:
        """Return what was published since, as (id, kind, version, seq)."""
        while not self.real.link.call("PUBLISH", "marker", "marked"):
            time.sleep(0.001)  # not subscribed yet
        found = []
        while (message := self.heard.get_message(timeout=5))["data"] != b"marked":
            if message["type"] != "pmessage":
                continue
            position, kind, body = message["data"].decode().split(" ", 2)
            version, seq = map(int, position.split("-"))
            if kind == "state":
                assert json.loads(body)["version"] == version
            found.append((message["channel"].decode().rpartition(":")[2], kind, version, seq))
        return found

    # -- what people and workers do ----------------------------------------------------------

    @initialize()
    def start_workers(self) -> None:
        """Register both workers, or every claim would be refused."""
        for worker in (WORKER, OTHER):
            self.both("register", worker)

    @precondition(lambda self: len(self.live()) < MOST_TASKS)
    @rule(
        delay=st.sampled_from([0, 0, 0, 0, 1, HOUR]),
        deadline=st.sampled_from([0, 0, 0, "soon", "soon", "past"]),
        key=st.sampled_from(["", "", "a" * 32, "b" * 32]),
        fingerprint=st.sampled_from(["f", "g"]),
        dispatches=st.sampled_from([10, 10, 1, 0]),
        name=st.sampled_from(["io.default", "io.default", "cpu.low"]),
        inputs=jsons,
    )
    def submit(self, delay, deadline, key, fingerprint, dispatches, name, inputs) -> None:  # noqa: ANN001
        """Accept a task, twice: the second time nothing may change."""
        now = self.real.now_ms()
        one = submission(
            self.new_id(), inputs=inputs, delay_ms=delay, idempotency=key, list_name=name,
            fingerprint=fingerprint, max_dispatches=dispatches,
            deadline_ms={0: 0, "soon": now + HOUR, "past": now - HOUR}[deadline],
        )  # fmt: skip
        first = self.both("submit", one)
        self.let_a_moment_pass(delay)
        assert plain(self.both("submit", one)) == plain(first)

    @precondition(lambda self: self.oracle.tasks)
    @rule(target=claims, which=whiches, worker=workers, right=st.sampled_from([0, 0, 0, 1, -1]))
    def claim(self, which: int, worker: str, right: int) -> Any:
        """Claim with the right dispatch number or a wrong one, twice."""
        task = self.pick(which)
        fence = self.real.fence()
        dispatch = self.real.dispatch_of(task) + right
        first = self.both("claim", task, dispatch, worker=worker, fence=fence)
        again = self.both("claim", task, dispatch, worker=worker, fence=fence)
        if not isinstance(first, Claim):
            return multiple()
        assert again == first
        return (task, fence)

    @precondition(lambda self: len(self.live()) < MOST_TASKS)
    @rule(target=claims, worker=workers, deadline=st.sampled_from([0, HOUR]))
    def run(self, worker: str, deadline: int) -> Any:
        """Accept a task and claim it at once."""
        now = self.real.now_ms()
        one = submission(self.new_id(), deadline_ms=deadline and now + deadline)
        self.both("submit", one)
        fence = self.real.fence()
        dispatch = self.real.dispatch_of(one.task_id)
        said = self.both("claim", one.task_id, dispatch, worker=worker, fence=fence)
        if isinstance(said, Claim):
            return (one.task_id, fence)
        assert self.oracle.paused
        return multiple()

    @precondition(lambda self: any(self.oracle.lists.values()))
    @rule(target=claims, worker=workers, most=st.integers(1, 3), both=st.booleans())
    def take(self, worker: str, most: int, *, both: bool) -> Any:
        """Pop and claim in one step, from one list or two."""
        names = ["io.default", "cpu.low"] if both else ["io.default"]
        for name in names:
            # Messages of one millisecond may stand in either order; from here on it matters.
            order = self.real.list_of(name)
            self.oracle.lists[name].sort(key=lambda one: order.index(one[:2]))
        said = self.real.store.take(names, most, worker=worker)
        fences = {claim.task_id: claim.fence for claim in said.claims}
        expected = self.oracle.take(names, most, worker=worker, fences=fences)
        by_id = [sorted(map(plain, one.claims), key=str) for one in (said, expected)]
        assert by_id[0] == by_id[1]
        self.origins |= {(one.task_id, one.fence): one.origin for one in said.claims}
        assert (said.expired, said.leased) == (expected.expired, expected.leased)
        told, self.oracle.published = self.oracle.published, []
        assert sorted(self.published()) == sorted(told)
        return multiple(*fences.items())

    @precondition(lambda self: any(self.oracle.lists.values()))
    @rule(target=claims, worker=workers, which=st.integers(0, 1))
    def work(self, worker: str, which: int) -> Any:
        """Pop a message and claim with it, as a worker does."""
        full = sorted(name for name, messages in self.oracle.lists.items() if messages)
        name = full[which % len(full)]
        task, dispatch = self.real.pop(name)
        self.oracle.lists[name].remove(
            next(one for one in self.oracle.lists[name] if one[:2] == (task, dispatch))
        )
        fence = self.real.fence()
        said = self.both("claim", task, dispatch, worker=worker, fence=fence)
        return (task, fence) if isinstance(said, Claim) else multiple()

    @rule(claim=claims, json=jsons, number=st.integers(0, 4))
    def chunk(self, claim: tuple[str, str], json: bytes, number: int) -> None:
        """Send a chunk; a number that was seen must be known again."""
        self.both("chunk", *claim, json, number=number)

    @rule(claim=claims)
    def progress(self, claim: tuple[str, str]) -> None:
        """Send progress."""
        self.both("progress", *claim, b'{"fraction":0.25,"text":"quarter"}')

    @rule(claim=claims)
    def finish_with_another_s_fence(self, claim: tuple[str, str]) -> None:
        """End an attempt that one does not own."""
        said = self.both("finish", claim[0], "x" * 16, Ending(event=EventType.COMPLETE))
        assert not said.applied

    @rule(
        claim=claims,
        event=st.sampled_from(ENDINGS),
        delay=st.sampled_from([0, 1, 2 * HOUR]),
        error=jsons,
        output=jsons,
        usage=st.sampled_from([b"null", b'{"tokens":3}']),
    )
    def finish(self, claim, event, delay, error, output, usage) -> None:  # noqa: ANN001
        """End an attempt in every way, twice."""
        ending = Ending(event=event, delay_ms=delay, error=error, output=output, usage=usage)
        first = self.both("finish", *claim, ending, origin=self.origins.get(claim))
        self.let_a_moment_pass(delay <= 1 and event is EventType.RETRY)
        before = self.real.link.call("GET", KEYS.task(claim[0]))
        again = self.both("finish", *claim, ending, origin=self.origins.get(claim))
        assert (again.version, again.state) == (first.version, first.state)
        assert self.real.link.call("GET", KEYS.task(claim[0])) == before

    @precondition(lambda self: self.live())
    @rule(which=whiches, tenant=st.sampled_from(["default", "default", "default", "other"]))
    def cancel(self, which: int, tenant: str) -> None:
        """Cancel, twice; another tenant sees no such task."""
        task = self.pick(which)
        first = self.both("cancel", task, tenant=tenant)
        again = self.both("cancel", task, tenant=tenant)
        assert again.version == first.version

    @precondition(lambda self: self.ended())
    @rule(which=whiches, early=st.sampled_from([False, False, True]))
    def delete(self, which: int, *, early: bool) -> None:
        """Delete a task, twice: nothing of it is left, and one that lives is left alone."""
        found = list(self.oracle.tasks) if early else self.ended()
        task = found[which % len(found)]
        first = self.both("delete", task, tenant="default")
        again = self.both("delete", task, tenant="default")
        assert again.verdict == {"deleted": "gone"}.get(first.verdict, first.verdict)
        if first.verdict == "deleted":
            keys = [name(task) for name in (KEYS.task, KEYS.stream, KEYS.output, KEYS.log)]
            assert self.real.link.call("EXISTS", *keys) == 0
            assert self.real.link.call("ZSCORE", KEYS.index("default"), task) is None

    # -- what an operator does -------------------------------------------------------------------

    @rule(scope=st.sampled_from(SCOPES))
    def pause(self, scope: str) -> None:
        """Hold what would start."""
        Controls(self.real.store).put(scope, Mode.PAUSE)
        self.oracle.paused.add(scope)

    @precondition(lambda self: self.oracle.paused)
    @rule(which=whiches)
    def resume(self, which: int) -> None:
        """End a pause, and die before anything is released."""
        scope = sorted(self.oracle.paused)[which % len(self.oracle.paused)]
        Controls(self.real.store).end(scope)
        self.oracle.paused.remove(scope)

    @precondition(lambda self: any(self.oracle.lines.values()))
    @rule(scope=st.sampled_from(SCOPES), most=st.integers(1, 2))
    def release(self, scope: str, most: int) -> None:
        """Dispatch held tasks again, unless they are to be held."""
        _, *said = self.real.store.row("release", (scope, most))
        assert tuple(said) == self.oracle.release(scope, most)
        told, self.oracle.published = self.oracle.published, []
        assert sorted(self.published()) == sorted(told)

    @precondition(lambda self: any(self.oracle.lines.values()))
    @rule()
    def sweep(self) -> None:
        """Let a worker finish what whoever resumed has begun."""
        self.both("sweep")

    # -- what goes wrong ------------------------------------------------------------------------

    @precondition(lambda self: self.live())
    @rule(which=whiches, worker=workers, right=st.booleans(), isolated=st.booleans())
    def lost(self, which: int, worker: str, *, right: bool, isolated: bool) -> None:
        """Report a dead child, rightly or not, twice."""
        task = self.pick(which)
        dispatch = self.real.dispatch_of(task) if right else 99
        self.both("lost", task, worker=worker, dispatch=dispatch, isolated=isolated)
        if right:
            said = self.both("lost", task, worker=worker, dispatch=dispatch, isolated=isolated)
            assert said == "stale"

    @precondition(lambda self: any(self.oracle.held.values()))
    @rule(worker=workers, back=st.sampled_from([False, False, True]))
    def worker_dies(self, worker: str, *, back: bool) -> None:
        """Give up a lease, and sweep; the worker may come back first."""
        self.both("expire", worker)
        if back:
            self.both("renew", worker)
        self.both("sweep")
        self.both("register", worker)

    @precondition(lambda self: not self.retired)
    @rule(worker=workers)
    def worker_retires(self, worker: str) -> None:
        """Sign off, which only an idle worker can, and try to renew."""
        self.retired = True
        self.both("retire", worker)
        self.both("renew", worker)
        self.both("register", worker)

    @precondition(lambda self: any(self.oracle.unclaimed.values()))
    @rule(which=whiches, held=st.booleans())
    def message_vanishes(self, which: int, *, held: bool) -> None:
        """Lose the task's message, too long ago unless a worker says that it holds it; sweep."""
        task = self.pick(which)
        name = self.oracle.tasks[task].asked.list_name
        for raw in self.real.link.call("LRANGE", KEYS.queue(name), 0, -1):
            if json.loads(raw)["headers"]["id"] == task:
                self.real.link.call("LREM", KEYS.queue(name), 1, raw)
        self.oracle.lists[name] = [one for one in self.oracle.lists[name] if one[0] != task]
        if task in self.oracle.unclaimed[name]:
            long_ago = self.real.now_ms() - 2 * LEASE_SECONDS * 1000
            self.real.link.call("ZADD", KEYS.unclaimed(name), long_ago, task)
            self.oracle.unclaimed[name][task] = long_ago
        if held:
            self.both("renew", WORKER, [task])
        self.both("sweep")

    @precondition(lambda self: any(member[0] == "d" for member in self.oracle.due))
    @rule(which=whiches, ago=st.sampled_from([1, 10_000]))
    def deadline_comes(self, which: int, ago: int) -> None:
        """Let the deadline pass, a moment or longer than the grace ago."""
        task = self.pick(which)
        member = f"d:{task}"
        self.let_a_moment_pass(member in self.oracle.due)
        if member in self.oracle.due:
            then = self.real.now_ms() - ago
            self.real.set_column(task, "deadline", then)
            self.real.link.call("ZADD", KEYS.due, then, member)
            self.oracle.tasks[task].deadline = self.oracle.due[member] = then

    @precondition(lambda self: any(member[0] == "c" for member in self.oracle.due))
    @rule(which=whiches)
    def grace_ends(self, which: int) -> None:
        """Let the patience with a body that does not heed its cancel run out."""
        task = self.pick(which)
        member = f"c:{task}"
        if member in self.oracle.due:
            self.real.link.call("ZADD", KEYS.due, 1, member)
            self.oracle.due[member] = 1

    @precondition(lambda self: self.some_timer_is_short())
    @rule()
    def timers(self) -> None:
        """Fire what is due."""
        time.sleep(0.003)
        self.both("fire_timers")

    # -- what holds always ---------------------------------------------------------------------

    @invariant()
    def records_are_the_same(self) -> None:
        """Compare every record as a reader sees it, byte order of fields included."""
        for task_id in self.oracle.tasks:
            document, expected = self.real.store.read(task_id), self.oracle.read(task_id)
            assert (document.state, document.etag) == (expected.state, expected.etag)
            assert without_times(document.json) == without_times(expected.json)
            assert columns_of(document) == columns_of_oracle(self.oracle, task_id)
            assert self.real.entries(task_id, after=(0, 0)) == self.oracle.entries(
                task_id, after=(0, 0)
            )

    @invariant()
    def books_are_the_same(self) -> None:
        """Compare lists, leases, timers, dead letters and the gate."""
        real, oracle = self.real, self.oracle
        lists = {name: sorted(one[:2] for one in found) for name, found in oracle.lists.items()}
        found = {name: sorted(real.list_of(name)) for name in LISTS}
        assert found == {name: lists.get(name, []) for name in LISTS}
        for name in LISTS:
            waiting = real.link.call("ZRANGE", KEYS.unclaimed(name), 0, -1)
            assert names(waiting) == sorted(oracle.unclaimed[name])
        for worker in (WORKER, OTHER):
            assert real.running(worker) == sorted(oracle.held[worker])
        assert names(real.link.call("ZRANGE", KEYS.workers, 0, -1)) == sorted(oracle.leases)
        assert names(real.link.call("ZRANGE", KEYS.due, 0, -1)) == sorted(oracle.due)
        assert sorted(real.dead_letters()) == sorted(oracle.dead)
        for scope in SCOPES:
            line = real.link.call("LRANGE", KEYS.held(scope), 0, -1)
            assert [one.decode() for one in line] == oracle.lines[scope]
        if self.gate_limit:
            gate = real.link.call("HGETALL", f"{KEYS.base}gate")
            counts = dict(zip(gate[::2], map(int, gate[1::2]), strict=True))
            expected = {":".join(slot).encode(): count for slot, count in oracle.gate.items()}
            assert {k: v for k, v in counts.items() if v} == {
                k: v for k, v in expected.items() if v
            }

    @invariant()
    def a_record_is_the_replay_of_its_history(self) -> None:
        """Derive the events from the stored record and let the machine run them."""
        for task_id in self.oracle.tasks:
            document = self.real.store.read(task_id)
            first, events = history_of(document)
            assert shown(replay(first, events)) == shown(snapshot_of(document))


# -- views that can be compared --------------------------------------------------------------------


def outcome(verb: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return verb(*args, **kwargs)
    except AsyncNodesError as error:
        return error


def plain(said: Any) -> Any:
    """Return a verdict without its times."""
    if isinstance(said, AsyncNodesError):
        return said.code, said.extra
    if not hasattr(said, "__slots__"):
        return said
    values = {name: getattr(said, name) for name in said.__slots__ if name != "origin"}
    for name, value in values.items():
        if name.endswith("_ms") and name != "timeout_ms":
            values[name] = bool(value)
    if "next_in" in values:
        due = values["next_in"]
        values["next_in"] = due if due is None else due > 60
    if "ended" in values:
        values["ended"] = sorted(values["ended"])
    return type(said).__name__, values


def names(members: list[bytes]) -> list[str]:
    return sorted(member.decode() for member in members)


def without_times(document: bytes) -> str:
    """Return the document with each time replaced by whether there is one."""

    def seen(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value is not None if key in TIMES else value for key, value in pairs}

    return json.dumps(json.loads(document, object_pairs_hook=seen))


def columns_of(document: layout.Document) -> tuple[Any, ...]:
    queued = ("no", "out", "parked", "held")[document.queued]
    return (
        queued, bool(document.cancel), document.redispatched, document.dispatch, document.spent,
        document.deaths, document.queued_version, document.started_version,
    )  # fmt: skip


def columns_of_oracle(oracle: Oracle, task_id: str) -> tuple[Any, ...]:
    task = oracle.tasks[task_id]
    snap = task.snap
    return (
        task.queued, task.cancel, task.redispatched, snap.dispatch, snap.spent, snap.deaths,
        snap.queued_version, snap.started_version,
    )  # fmt: skip


# -- the history that a record tells ---------------------------------------------------------------

EVENT_OF = {
    Outcome.SUCCEEDED: EventType.COMPLETE,
    Outcome.FAILED: EventType.ERROR,
    Outcome.RETRIED: EventType.RETRY,
    Outcome.TIMEOUT: EventType.TIMEOUT,
    Outcome.CANCELLED: EventType.CANCEL,
    Outcome.LOST: EventType.LOST,
    Outcome.RELEASED: EventType.RELEASE,
}
END_OF_WAITING = {
    Reason.DEADLINE: EventType.TIMEOUT,
    Reason.UNDISPATCHED: EventType.ERROR,
    Reason.NONE: EventType.CANCEL,
}


def snapshot_of(document: layout.Document) -> Snapshot:
    """Return the stored record as the machine knows it."""
    attempts = tuple(
        Attempt(
            one["attempt"], one["queued_at"], one["started_at"], one["finished_at"],
            Outcome(one["outcome"]), tuple(one["versions"]),
        )
        for one in json.loads(document.json)["attempts"]
    )  # fmt: skip
    names = Snapshot.__dataclass_fields__.keys() - {"state", "reason", "attempts"}
    columns = {name: int(getattr(document, name)) for name in names}
    return Snapshot(state=document.state, reason=document.why, attempts=attempts, **columns)


def history_of(document: layout.Document) -> tuple[Snapshot, list[Event]]:
    """Return the record's beginning and its events, read from what it says of its attempts."""
    record = snapshot_of(document)
    delayed = bool(record.attempts or record.started_version) and _first_queued(record) > 1
    delayed = delayed or (not record.attempts and record.queued_version != 1)
    first = submitted(record.created_at, delay_ms=1 if delayed else 0)
    events: list[Event] = []
    version, deaths = 1, record.deaths
    spans = [(one.versions, one.outcome) for one in record.attempts]
    if record.state is NodeState.RUNNING:
        spans.append(((record.queued_version, record.started_version, record.version), None))
    for number, ((queued, started, ended), outcome) in enumerate(spans):
        events += [Event(EventType.WAKE, 0)] * (queued - version)
        events.append(Event(EventType.START, 0))
        quiet = ended - started - (1 if outcome else 0)
        asked = quiet and (outcome is Outcome.CANCELLED or record.reason is Reason.CANCELLING)
        # Where in between the cancel was asked for shows in nothing that is kept.
        events += [Event(EventType.PROGRESS, 0)] * (quiet - bool(asked))
        events += [Event(EventType.CANCEL_ASKED, 0)] * bool(asked)
        version = ended
        if outcome:
            late = ended == record.version and record.reason is Reason.DEADLINE
            isolated = outcome is Outcome.LOST and deaths > 0 and _still(spans, number) <= deaths
            deaths -= isolated
            events.append(Event(EVENT_OF[outcome], 0, due=1, isolated=isolated, late=late))
    return first, events + _waiting_since(record, version)


def _first_queued(record: Snapshot) -> int:
    return record.attempts[0].versions[0] if record.attempts else record.queued_version


def _still(spans: list[Any], number: int) -> int:
    """Return how many losses come from this one on, itself included."""
    return sum(outcome is Outcome.LOST for _, outcome in spans[number:])


def _waiting_since(record: Snapshot, version: int) -> list[Event]:
    """Return what happened after the last attempt."""
    steps = record.version - version
    if record.state is NodeState.RUNNING or not steps:
        return []
    if record.state is NodeState.PENDING:
        last = EventType.HOLD if record.reason is Reason.PAUSED else EventType.WAKE
        return [Event(EventType.WAKE, 0)] * (steps - 1) + [Event(last, 0)]
    end = Event(END_OF_WAITING[record.reason], 0)
    return [Event(EventType.WAKE, 0)] * (steps - 1) + [end]


def shown(record: Snapshot) -> tuple[Any, ...]:
    """Return what a history decides: all but times and the number of messages."""
    attempts = [(one.attempt, one.outcome, one.versions) for one in record.attempts]
    return (
        record.state, record.reason, record.version, record.attempt, record.spent, record.losses,
        record.deaths, record.queued_version if not record.state.terminal else None,
        record.started_version, attempts,
    )  # fmt: skip


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gate_limit", [0, 2])
@pytest.mark.parametrize("redis_server", on_servers(), indirect=True)
def test_the_store_does_what_the_oracle_does(redis_server: RedisServer, gate_limit: int) -> None:
    """Any history leaves store and oracle with the same verdicts, records, lists and events."""

    class OnServer(Pair):
        server = redis_server

    OnServer.gate_limit = gate_limit
    run_state_machine_as_test(
        OnServer,
        settings=settings(
            max_examples=50,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert redis_server.is_running
