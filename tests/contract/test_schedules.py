"""Schedules in a real store: changes, and that a tick gives one task however many fire it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Accepted, Ending
from async_nodes.core.schedule import MOST_MADE_UP, Missed, Overlap
from async_nodes.core.states import EventType
from async_nodes.dispatch.firing import AT_ONCE, HELD_MS, Firer
from async_nodes.dispatch.schedules import Spec
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from async_nodes.storage import schedules as schedules_module
from async_nodes.storage.redis_connection import BlockingConnection
from async_nodes.storage.redis_errors import OutcomeUnknown
from async_nodes.storage.schedules import Changed, Definition, Firing, Schedules, StoredSchedule
from tests.contract.real_store import IDS, KEYS, WORKER, RealStore, open_store, submission

if TYPE_CHECKING:
    from tests.servers import RedisServer

TENANT, NAME = "default", "nightly"
TIMER = f"s:{TENANT}:{NAME}"
PLAIN = Definition(
    spec=Spec(every_ms=1_000).encode(),
    task=b'{"node":"echo","inputs":{"a":1}}',
    shown=b"",
    paused=False,
    skips=False,
    next_ms=1_000,
    due_ms=1_000,
)


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(redis_server)
    made.register(WORKER)
    yield made
    made.link.close()


@pytest.fixture
def schedules(store: RealStore) -> Schedules:
    return Schedules(store.store)


def firer(schedules: Schedules, **options: Any) -> Firer:
    given: dict[str, Any] = {"admit": lambda *_: None, "patience": 0.0, **options}
    return Firer(schedules, IDS, given.pop("nodes", registry(())), Settings(), **given)


def read(schedules: Schedules, name: str = NAME) -> StoredSchedule:
    found, _ = schedules.read(TENANT, name)
    assert found is not None
    return found


def timer(store: RealStore, member: str = TIMER) -> int | None:
    score = store.link.call("ZSCORE", KEYS.due, member)
    return None if score is None else int(score)


def steady(  # a schedule that is late by some ticks
    schedules: Schedules, *, late_ms: int = 0, every_ms: int = 1_000, **spec: Any
) -> int:
    """Create a schedule whose first tick is so late; return that tick."""
    first = schedules.now_ms() - late_ms
    known = Spec(every_ms=every_ms, starts_ms=first, **spec)
    skips = known.overlap is Overlap.SKIP
    made = replace(PLAIN, spec=known.encode(), skips=skips, next_ms=first, due_ms=first)
    assert schedules.create(TENANT, NAME, made) == Changed("ok", 1)
    return first


def fire_all(fire: Firer) -> None:
    """Fire until nothing is due."""
    for _ in range(100):
        if fire.fire(TENANT, NAME) == ["early"]:
            return
    pytest.fail("there is no end of ticks")


def ticks(store: RealStore) -> list[str]:
    """Return the tick of every task there is, in their order."""
    ids = store.link.call("ZRANGE", KEYS.index(TENANT), 0, -1)
    return sorted(store.json_of(one.decode())["metadata"]["scheduled_at"] for one in ids)


# -- changes ---------------------------------------------------------------------------------------


def test_a_schedule_is_kept_as_it_was_told(store: RealStore, schedules: Schedules) -> None:
    """With a version, its counts at nought and a timer for its first tick."""
    assert schedules.create(TENANT, NAME, PLAIN) == Changed("ok", 1)
    found = read(schedules)

    assert (found.spec, found.task, found.version) == (PLAIN.spec, PLAIN.task, 1)
    assert (found.fired, found.missed, found.skipped, found.last_task) == (0, 0, 0, "")
    assert found.created_ms == found.updated_ms > 0
    assert timer(store) == 1_000
    assert schedules.create(TENANT, NAME, PLAIN) == Changed("exists")


def test_a_version_that_is_not_that_of_the_reader_stops_a_change(schedules: Schedules) -> None:
    """Compare and set; version 0 stands for any."""
    schedules.create(TENANT, NAME, PLAIN)

    assert schedules.replace(TENANT, NAME, PLAIN, version=1, waits_for=1_000) == Changed("ok", 2)
    assert schedules.replace(TENANT, NAME, PLAIN, version=1, waits_for=1_000) == Changed(
        "conflict", 2
    )
    assert schedules.pause(TENANT, NAME, version=9) == Changed("conflict", 2)
    assert schedules.delete(TENANT, NAME, version=1) == Changed("conflict", 2)
    assert schedules.replace(TENANT, NAME, PLAIN, waits_for=9) == Changed("moved")
    assert schedules.replace(TENANT, NAME, PLAIN, waits_for=1_000) == Changed("ok", 3)


def test_pausing_takes_the_timer_and_resuming_gives_another(
    store: RealStore, schedules: Schedules
) -> None:
    """A pause remembers why, a resume forgets it; resuming what runs changes nothing."""
    schedules.create(TENANT, NAME, PLAIN)

    schedules.pause(TENANT, NAME, reason=b'{"code":"x"}')
    assert timer(store) is None
    assert (read(schedules).paused, read(schedules).reason) == (True, b'{"code":"x"}')

    assert schedules.resume(TENANT, NAME, next_ms=5_000, due_ms=5_500) == Changed("ok", 3)
    assert timer(store) == 5_500
    assert (read(schedules).paused, read(schedules).reason) == (False, b"")

    assert schedules.resume(TENANT, NAME, next_ms=9_000, due_ms=9_000) == Changed("ok", 3)
    assert read(schedules).next_ms == 5_000


def test_a_schedule_that_begins_paused_has_no_timer(store: RealStore, schedules: Schedules) -> None:
    """It waits until it is resumed."""
    schedules.create(TENANT, NAME, replace(PLAIN, paused=True))
    assert timer(store) is None


def test_nothing_is_left_of_a_deleted_schedule(store: RealStore, schedules: Schedules) -> None:
    """Neither its hash, nor its name, nor its timer."""
    schedules.create(TENANT, NAME, PLAIN)
    before = set(store.link.call("KEYS", "*"))

    assert schedules.delete(TENANT, NAME).verdict == "ok"
    assert schedules.delete(TENANT, NAME) == Changed("gone")

    gone = {KEYS.schedule(TENANT, NAME), KEYS.schedules, KEYS.due}
    assert before - set(store.link.call("KEYS", "*")) == {key.encode() for key in gone}
    assert schedules.replace(TENANT, NAME, PLAIN, waits_for=0) == Changed("gone")


def test_a_tenant_has_so_many_and_no_more(
    schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another tenant's do not count; room that is made can be used."""
    monkeypatch.setattr(schedules_module, "MOST_PER_TENANT", 2)

    assert [schedules.create(TENANT, name, PLAIN).verdict for name in "abc"] == ["ok", "ok", "full"]
    assert schedules.create("other", "c", PLAIN).verdict == "ok"
    schedules.delete(TENANT, "a")
    assert schedules.create(TENANT, "c", PLAIN).verdict == "ok"


def test_pages_go_by_name(schedules: Schedules) -> None:
    """Each schedule once, another tenant's never."""
    for name in ("b", "a", "d", "c"):
        schedules.create(TENANT, name, PLAIN)
    schedules.create("other", "x", PLAIN)

    first, more = schedules.page(TENANT, most=3)
    assert ([one.name for one in first], more) == (["a", "b", "c"], True)
    rest, more = schedules.page(TENANT, after="c", most=3)
    assert ([one.name for one in rest], more) == (["d"], False)
    assert schedules.page("nobody", most=3) == ([], False)


def test_a_change_that_is_sent_again_is_made_once(store: RealStore) -> None:
    """Whoever was cut off sends the same row: the same verdict, the same version."""
    row = ("create", TENANT, NAME, "nonce", 0, "{}", "{}", "", 0, "allow", 1, 1, 9)
    assert [store.row("schedule", row) for _ in range(2)] == [[b"ok", 1]] * 2
    pause = ("pause", TENANT, NAME, "another", 1, "", "", "", "", "", 0, 0, "")
    assert [store.row("schedule", pause) for _ in range(2)] == [[b"ok", 2]] * 2


# -- one fire per tick -----------------------------------------------------------------------------


def test_a_tick_fires_once(store: RealStore, schedules: Schedules) -> None:
    """The second finds that the schedule waits for another tick."""
    schedules.create(TENANT, NAME, PLAIN)
    firing = Firing(version=1, expected=1_000, tick=1_000, following=2_000, due_ms=2_500)
    first, second = submission(), submission()

    said = schedules.fire(TENANT, NAME, firing, first)

    assert isinstance(said, Accepted)
    assert schedules.fire(TENANT, NAME, firing, second) == "stale"
    assert store.read(second.task_id) is None
    assert store.list_of("io.default") == [(first.task_id, 1)]
    found = read(schedules)
    assert (found.next_ms, found.last_ms, found.last_task) == (2_000, 1_000, first.task_id)
    assert (found.fired, found.version, timer(store)) == (1, 1, 2_500)


def test_a_fire_that_is_sent_again_is_the_same(schedules: Schedules) -> None:
    """A process that was cut off under it learns that it has fired."""
    schedules.create(TENANT, NAME, PLAIN)
    firing = Firing(version=1, expected=1_000, tick=1_000, following=2_000, due_ms=2_000)
    one = submission()

    first, again = (schedules.fire(TENANT, NAME, firing, one) for _ in range(2))

    assert first == again
    assert read(schedules).fired == 1


def test_a_schedule_that_was_changed_meanwhile_is_not_fired(schedules: Schedules) -> None:
    """The task in hand is that of the definition before."""
    schedules.create(TENANT, NAME, PLAIN)
    firing = Firing(version=1, expected=1_000, tick=1_000, following=2_000, due_ms=2_000)
    schedules.replace(TENANT, NAME, PLAIN, waits_for=1_000)
    assert schedules.fire(TENANT, NAME, firing, submission()) == "stale"

    schedules.pause(TENANT, NAME)
    paused = replace(firing, version=3)
    assert schedules.fire(TENANT, NAME, paused, submission()) == "stale"
    schedules.delete(TENANT, NAME)
    assert schedules.fire(TENANT, NAME, paused, submission()) == "gone"


def test_the_end_takes_the_timer(store: RealStore, schedules: Schedules) -> None:
    """After the last tick there is nothing to wait for."""
    schedules.create(TENANT, NAME, PLAIN)
    firing = Firing(version=1, expected=1_000, tick=1_000)
    schedules.fire(TENANT, NAME, firing, submission())
    assert (read(schedules).next_ms, timer(store)) == (0, None)


def test_by_hand_the_ticks_stay(store: RealStore, schedules: Schedules) -> None:
    """Fired while it is paused, with a client's key: once, and its next tick is what it was."""
    schedules.create(TENANT, NAME, replace(PLAIN, paused=True))
    firing = Firing(version=1, expected=None, tick=77)
    one = submission(idempotency="a" * 32, fingerprint="f")

    first = schedules.fire(TENANT, NAME, firing, one)
    second = schedules.fire(TENANT, NAME, firing, submission(idempotency="a" * 32, fingerprint="f"))

    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert (second.task_id, second.replayed) == (one.task_id, True)
    found = read(schedules)
    assert (found.next_ms, found.last_ms, found.last_task) == (1_000, 77, one.task_id)
    assert (found.fired, timer(store)) == (1, None)
    with pytest.raises(AsyncNodesError) as caught:
        schedules.fire(TENANT, NAME, firing, submission(idempotency="a" * 32, fingerprint="g"))
    assert caught.value.code == "idempotency_mismatch"


def test_the_timer_offers_a_schedule_until_it_is_fired(
    store: RealStore, schedules: Schedules
) -> None:
    """Whoever is told of it may die: it is offered again."""
    steady(schedules)

    assert store.fire_timers().schedules == (f"{TENANT}:{NAME}",)
    assert store.fire_timers().schedules == ()
    again = timer(store)
    assert again is not None
    assert again > schedules.now_ms() + 3_000


def test_a_lost_timer_is_found(store: RealStore, schedules: Schedules) -> None:
    """A process of a release that knows no schedules may have taken it; only who waits gets one."""
    for name in ("a", "b", "c", "d"):
        schedules.create(TENANT, name, PLAIN)
    schedules.create("other", "e", PLAIN)
    schedules.pause(TENANT, "b")
    fired = Firing(version=1, expected=1_000, tick=None, passed=1)
    schedules.fire(TENANT, "c", fired)
    for member in (f"s:{TENANT}:a", "s:other:e"):
        store.link.call("ZREM", KEYS.due, member)

    after, first = schedules.rearm(most=3)
    assert (after, first) == (f"{TENANT}:c", 1)
    assert schedules.rearm(after, most=3) == ("", 1)
    assert schedules.rearm(most=50) == ("", 0)
    waiting = {member.decode() for member in store.link.call("ZRANGE", KEYS.due, 0, -1)}
    assert waiting == {f"s:{TENANT}:a", f"s:{TENANT}:d", "s:other:e"}


# -- the firer -------------------------------------------------------------------------------------


def test_the_task_of_a_tick_tells_its_schedule(store: RealStore, schedules: Schedules) -> None:
    """A tag, and its tick in the metadata."""
    first = steady(schedules)

    assert firer(schedules).fire(TENANT, NAME) == ["fired"]

    record = store.json_of(read(schedules).last_task)
    assert (record["node"], record["inputs"]) == ("echo", {"a": 1})
    assert record["tags"] == [f"schedule:{NAME}"]
    assert record["metadata"] == {"scheduled_at": iso(first)}
    assert read(schedules).next_ms == first + 1_000


def test_tag_and_metadata_of_the_task_stay(store: RealStore, schedules: Schedules) -> None:
    """What its owner has said under the same names wins; nothing stands there twice."""
    task = {"node": "echo", "tags": [f"schedule:{NAME}", "x"], "metadata": {"scheduled_at": "mine"}}
    made = replace(PLAIN, task=json.dumps(task).encode())
    schedules.create(TENANT, NAME, made)

    accepted = firer(schedules).trigger(TENANT, NAME)

    record = store.json_of(accepted.task_id)
    assert record["tags"] == [f"schedule:{NAME}", "x"]
    assert record["metadata"] == {"scheduled_at": "mine"}


def test_a_trigger_is_replayed_under_its_key(schedules: Schedules) -> None:
    """Sent again a moment later it is the same request."""
    schedules.create(TENANT, NAME, PLAIN)
    fire = firer(schedules)

    first, again = (fire.trigger(TENANT, NAME, key="k") for _ in range(2))

    assert (again.task_id, again.replayed) == (first.task_id, True)
    with pytest.raises(AsyncNodesError) as caught:
        fire.trigger(TENANT, "another")
    assert caught.value.code == "schedule_not_found"


def test_a_schedule_that_is_not_due_is_armed(store: RealStore, schedules: Schedules) -> None:
    """An offer too many does no harm."""
    first = steady(schedules, late_ms=-60_000)
    store.link.call("ZADD", KEYS.due, 5, TIMER)

    assert firer(schedules).fire(TENANT, NAME) == ["early"]
    assert timer(store) == first


@pytest.mark.parametrize("paused", [True, False])
def test_a_timer_without_a_schedule_goes(
    store: RealStore, schedules: Schedules, *, paused: bool
) -> None:
    """Deleted or paused: nobody is asked again."""
    if paused:
        schedules.create(TENANT, NAME, replace(PLAIN, paused=True))
    store.link.call("ZADD", KEYS.due, 5, TIMER)

    assert firer(schedules).fire(TENANT, NAME) == ["gone"]
    assert timer(store) is None


@pytest.mark.parametrize(
    ("policy", "fired", "missed"),
    [(Missed.SKIP, 0, 3), (Missed.ONCE, 1, 2), (Missed.ALL, 3, 0)],
)
def test_ticks_that_were_missed(
    store: RealStore, schedules: Schedules, policy: Missed, fired: int, missed: int
) -> None:
    """An hour of three ticks that nobody fired."""
    first = steady(schedules, late_ms=3_100_000, every_ms=1_200_000, missed=policy)

    firer(schedules).fire(TENANT, NAME)

    found = read(schedules)
    assert (found.fired, found.missed) == (fired, missed)
    assert ticks(store) == [iso(first + n * 1_200_000) for n in range(3 - fired, 3)]
    assert found.next_ms == timer(store) == first + 3_600_000


def test_many_missed_ticks_are_made_up_for_in_portions(
    store: RealStore, schedules: Schedules
) -> None:
    """The newest hundred; every portion leaves what the next one needs."""
    first = steady(schedules, late_ms=300_500, every_ms=1_000, missed=Missed.ALL)
    fire = firer(schedules)

    assert fire.fire(TENANT, NAME) == ["fired"] * AT_ONCE
    assert timer(store) is not None
    assert read(schedules).missed == 301 - MOST_MADE_UP
    fire_all(fire)

    found = ticks(store)
    assert len(found) == len(set(found)) == read(schedules).fired >= MOST_MADE_UP
    assert found[0] == iso(first + (301 - MOST_MADE_UP) * 1_000)


def test_no_task_while_the_one_before_has_not_ended(store: RealStore, schedules: Schedules) -> None:
    """With overlap skip: the tick is counted, the next one comes; after the end it fires again."""
    first = steady(
        schedules, every_ms=60_000, late_ms=60_000, overlap=Overlap.SKIP, missed=Missed.ALL
    )
    assert firer(schedules).fire(TENANT, NAME) == ["fired", "skipped"]
    found = read(schedules)
    assert (found.fired, found.skipped, found.missed) == (1, 1, 0)
    assert found.next_ms == first + 120_000

    claim = store.start(found.last_task)
    due = Firing(version=1, expected=found.next_ms, tick=found.next_ms, following=1, due_ms=1)
    assert schedules.fire(TENANT, NAME, due, submission()) == "skipped"
    store.finish(claim.task_id, claim.fence, Ending(event=EventType.COMPLETE, output=b"1"))
    again = replace(due, expected=1, tick=1)
    assert isinstance(schedules.fire(TENANT, NAME, again, submission()), Accepted)


def test_a_schedule_whose_node_is_gone_is_left_to_others_and_then_paused(
    store: RealStore, schedules: Schedules
) -> None:
    """While a release is rolled out another process may know the node; it is asked soon."""
    steady(schedules)
    clock = iter([0.0, 1.0, 31.0, 31.0]).__next__
    fire = firer(schedules, nodes={}, patience=30.0, clock=clock)

    assert fire.fire(TENANT, NAME) == ["left"]
    asked = timer(store)
    assert asked is not None
    assert schedules.now_ms() < asked < schedules.now_ms() + 1_600

    assert fire.fire(TENANT, NAME) == ["paused"]
    found = read(schedules)
    reason = json.loads(found.reason)
    assert (found.paused, reason["code"], timer(store)) == (True, "unknown_node", None)
    assert "echo" in reason["detail"]


def test_another_process_that_knows_the_node_fires(schedules: Schedules) -> None:
    """Only the one that does not know it has left it."""
    steady(schedules)
    assert firer(schedules, nodes={}, patience=30.0).fire(TENANT, NAME) == ["left"]
    assert firer(schedules).fire(TENANT, NAME) == ["fired"]


def test_a_drained_queue_keeps_the_tick(store: RealStore, schedules: Schedules) -> None:
    """It is looked at again, and is a missed one if that lasts."""
    first = steady(schedules)

    def refuse(*_: str) -> None:
        raise AsyncNodesError("draining")

    assert firer(schedules, admit=refuse).fire(TENANT, NAME) == ["left"]
    again = timer(store)
    assert again is not None
    assert again >= first + HELD_MS
    assert read(schedules).next_ms == first


# -- many at once, and deaths ----------------------------------------------------------------------


class Cut(Schedules):
    """Schedules over a connection that is cut at one call: before it arrives, or after."""

    def __init__(self, store: Any, *, at: int, after: bool) -> None:
        super().__init__(store, is_patient=False)
        self._at, self._after, self._calls = at, after, count()

    def _send(self, script: str, row: tuple[Any, ...]) -> list[Any]:
        is_now = next(self._calls) == self._at
        if is_now and not self._after:
            raise OutcomeUnknown("cut")
        verdict = super()._send(script, row)
        if is_now:
            raise OutcomeUnknown("cut")
        return verdict


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    deaths=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=6),
    late=st.integers(0, 9),
)
def test_a_tick_fires_once_wherever_its_keeper_dies(
    store: RealStore, schedules: Schedules, deaths: list[tuple[int, bool]], late: int
) -> None:
    """Before the script or after it: whoever comes next neither repeats nor leaves out a tick."""
    store.link.call("FLUSHALL")
    first = steady(schedules, late_ms=late * 1_000)

    for at, after in deaths:
        dying = firer(Cut(store.store, at=at, after=after))
        try:
            dying.fire(TENANT, NAME)
        except AsyncNodesError as error:
            assert error.code in {"outcome_unknown", "store_unavailable"}  # noqa: PT017
    fire_all(firer(schedules))

    found = ticks(store)
    assert found == [iso(first + n * 1_000) for n in range(len(found))]
    assert len(found) == read(schedules).fired >= late + 1
    assert read(schedules).next_ms == timer(store) == first + len(found) * 1_000


def test_of_several_keepers_one_fires_a_tick(
    store: RealStore, schedules: Schedules, redis_server: RedisServer
) -> None:
    """Six race for ten late ticks and those that come meanwhile."""
    first = steady(schedules, late_ms=9_000)
    stop = threading.Event()
    outcomes: list[str] = []

    def race() -> None:
        link = BlockingConnection(redis_server.url, timeout=5.0)
        mine = firer(Schedules(store.store.beside(link), is_patient=False))
        while not stop.is_set():
            outcomes.extend(mine.fire(TENANT, NAME))
            time.sleep(0)  # under gevent the others would have no turn
        link.close()

    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        if read(schedules).fired >= 13:
            break
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()

    found = ticks(store)
    assert found == [iso(first + n * 1_000) for n in range(len(found))]
    assert len(found) == outcomes.count("fired") == read(schedules).fired


Model = dict[str, Any]


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                ["create", "replace", "pause", "resume", "delete", "fire", "pass", "hand"]
            ),
            st.integers(0, 3),
        ),
        max_size=25,
    )
)
def test_the_store_does_what_a_plain_model_does(
    store: RealStore, schedules: Schedules, steps: list[tuple[str, int]]
) -> None:
    """Any order of changes and fires, with right and wrong versions and ticks."""
    store.link.call("FLUSHALL")
    model: Model | None = None
    for what, number in steps:
        model = _checked_step(store, schedules, model, what, number)
        stored, _ = schedules.read(TENANT, NAME)
        if model is None:
            assert stored is None
            assert timer(store) is None
        else:
            assert stored is not None
            assert {name: getattr(stored, name) for name in model} == model
            waits = not model["paused"] and model["next_ms"]
            assert timer(store) == (model["next_ms"] + 7 if waits else None)


def _checked_step(
    store: RealStore, schedules: Schedules, model: Model | None, what: str, number: int
) -> Model | None:
    """Do one thing in the store and in the model; `number` 3 is a version that is not its own."""
    known = model["version"] if model else 1
    version = {0: 0, 3: known + 1}.get(number, known)
    tick = (number + 1) * 1_000
    definition = replace(PLAIN, next_ms=tick, due_ms=tick + 7)
    if what == "create":
        made = schedules.create(TENANT, NAME, definition)
        assert made.verdict == ("exists" if model else "ok")
        fresh = {"version": 1, "paused": False, "next_ms": tick, "fired": 0, "missed": 0}
        return model or {**fresh, "last_ms": 0}
    if what in {"fire", "pass", "hand"}:
        return _checked_fire(schedules, model, what, number, version or known)
    done = {
        "replace": lambda: schedules.replace(
            TENANT,
            NAME,
            definition,
            version=version,
            waits_for=model["next_ms"] if model else 0,
        ),
        "pause": lambda: schedules.pause(TENANT, NAME, version=version),
        "resume": lambda: schedules.resume(
            TENANT, NAME, next_ms=tick, due_ms=tick + 7, version=version
        ),
        "delete": lambda: schedules.delete(TENANT, NAME, version=version),
    }[what]()
    if model is None:
        assert done.verdict == "gone"
        return None
    if version not in {0, known}:
        assert done == Changed("conflict", known)
        return model
    assert done.verdict == "ok"
    changes: dict[str, Model | None] = {
        "replace": {"paused": False, "next_ms": tick},
        "pause": {"paused": True},
        "resume": {"paused": False, "next_ms": tick} if model["paused"] else None,
        "delete": None,
    }
    change = changes[what]
    if what == "delete":
        return None
    return model if change is None else {**model, "version": known + 1, **change}


def _checked_fire(
    schedules: Schedules, model: Model | None, what: str, number: int, version: int
) -> Model | None:
    expected = model["next_ms"] if model else 1_000
    firing = Firing(
        version=version,
        expected=None if what == "hand" else expected if number else expected + 1,
        tick=None if what == "pass" else expected,
        following=expected + 1_000,
        due_ms=expected + 1_007,
        passed=number,
    )
    said = schedules.fire(TENANT, NAME, firing, None if what == "pass" else submission())
    if model is None:
        assert said == "gone"
        return None
    by_hand = what == "hand"
    if version != model["version"] or (not by_hand and (not number or model["paused"])):
        assert said == "stale"
        return model
    assert said == "passed" if what == "pass" else isinstance(said, Accepted)
    changed = dict(model)
    if what != "pass":
        changed |= {"fired": model["fired"] + 1, "last_ms": expected}
    if not by_hand:
        changed |= {"missed": model["missed"] + number, "next_ms": expected + 1_000}
    return changed
