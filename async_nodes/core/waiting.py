"""Why a task is still Pending, and for how long: one pure function over plain facts.

The first cause that holds is told: what has to happen next for the task to start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from async_nodes.core.contracts import iso
from async_nodes.core.states import NodeState, Reason

SLOWEST_RATE: Final = 0.001
"""Tasks a second below which a rate says nothing about when a task's turn comes."""

LONGEST_ERROR: Final = 200
"""Characters of the last attempt's error that a sentence quotes."""

OUT, PARKED, HELD = 1, 2, 3
"""Where a Pending task is (the record's `queued`): its message is out, it waits at the gate, it is
held by a pause. 0: neither, a timer will wake it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Hold what is known of a task and of what it waits for.

    Attributes:
        state, reason, queued: of its record.
        now_ms: the store's time, milliseconds since 1970.
        next_attempt_ms: when a timer wakes it, 0 for none.
        error: message of the last attempt's error.
        list_name: the list it goes to.
        paused: scope of the pause that holds for it, such as ``node:llm.chat``; empty for none.
        paused_ms, paused_reason: since when, and why as somebody said.
        ahead: tasks before it where it waits, None when it was not found there.
        workers: live workers that take from its list.
        any_workers: live workers of any kind; timers need one.
        slots: bodies those of its list run at once, None when some do not tell.
        running: bodies they run now.
        rate: tasks a second taken from its list of late.

    """

    state: NodeState
    reason: Reason = Reason.NONE
    queued: int = OUT
    now_ms: int = 0
    next_attempt_ms: int = 0
    error: str = ""
    list_name: str = "io.default"
    paused: str = ""
    paused_ms: int = 0
    paused_reason: str = ""
    ahead: int | None = None
    workers: int = 0
    any_workers: int = 0
    slots: int | None = None
    running: int = 0
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Why:
    """Say why a task has not started.

    Attributes:
        code: one word for programs.
        en, zh: a sentence for people.
        eta_seconds: until it starts, as far as that can be told.

    """

    code: str
    en: str
    zh: str
    eta_seconds: float | None = None


CODES: Final = (
    "running", "ended", "delayed", "backoff", "paused", "releasing", "parked", "no_worker",
    "again", "busy", "queued", "dispatching",
)  # fmt: skip
"""Every code that `explain` gives."""


def explain(facts: Facts) -> Why:
    """Return why a task is where it is."""
    if facts.state is NodeState.RUNNING:
        return Why("running", "The task is running.", "任务正在运行。", 0.0)
    if facts.state.terminal:
        return Why("ended", "The task has ended.", "任务已结束。")
    if facts.next_attempt_ms > facts.now_ms:
        return _timed(facts)
    if facts.paused:
        return _paused(facts)
    where = {HELD: _releasing, PARKED: _parked, OUT: _in_the_queue}
    return where.get(facts.queued, _due)(facts)


def _timed(facts: Facts) -> Why:
    at = iso(facts.next_attempt_ms)
    seconds = (facts.next_attempt_ms - facts.now_ms) / 1000
    if facts.reason is Reason.DELAYED:
        en = f"It was asked to start no earlier than {at}."
        return Why("delayed", en, f"提交时要求不早于 {at} 开始。", seconds)
    error = facts.error[:LONGEST_ERROR]
    quoted, quoted_zh = (f": {error}", f":{error}") if error else (".", "。")
    return Why(
        "backoff",
        f"It is tried again at {at}; the last attempt failed{quoted}",
        f"将于 {at} 重试;上次执行失败{quoted_zh}",
        seconds,
    )


def _paused(facts: Facts) -> Why:
    kind, _, name = facts.paused.partition(":")
    since = iso(facts.paused_ms)
    said = f" ({facts.paused_reason})" if facts.paused_reason else ""
    return Why(
        "paused",
        f"The {kind} {name} has been paused since {since}{said}.",
        f"{'队列' if kind == 'queue' else '节点'} {name} 自 {since} 起暂停{said}。",
    )


def _releasing(facts: Facts) -> Why:
    ahead = facts.ahead or 0
    return Why(
        "releasing",
        f"The pause is over; {_tasks(ahead)} held before it {_are(ahead)} put back first.",
        f"暂停已解除;在它之前暂停的 {ahead} 个任务先放回队列。",
        _eta(facts),
    )


def _parked(facts: Facts) -> Why:
    ahead = facts.ahead or 0
    return Why(
        "parked",
        f"Too many tasks are in {facts.list_name}; {_tasks(ahead)} {_are(ahead)} let in before it.",
        f"{facts.list_name} 中任务过多;在它之前还有 {ahead} 个任务等待入队。",
        _eta(facts),
    )


def _no_worker(facts: Facts) -> Why:
    return Why(
        "no_worker",
        f"No live worker takes tasks from {facts.list_name}.",
        f"没有存活的工作进程处理 {facts.list_name}。",
    )


def _due(facts: Facts) -> Why:
    if not facts.any_workers:  # they fire the timers
        return _no_worker(facts)
    return _dispatching("It is due and is being put into its queue.", "已到时间,正在放入队列。")


def _in_the_queue(facts: Facts) -> Why:
    if not facts.workers:
        return _no_worker(facts)
    if facts.reason in (Reason.LOST, Reason.RELEASED):
        what = "was lost with its process" if facts.reason is Reason.LOST else "was handed back"
        zh = "所在进程丢失" if facts.reason is Reason.LOST else "被交回"
        en = f"Its last attempt {what}; it is first in {facts.list_name} again."
        return Why("again", en, f"上次执行{zh},已重新排在 {facts.list_name} 最前。", 0.0)
    ahead = facts.ahead or 0
    if facts.slots is not None and facts.running >= facts.slots:
        return Why(
            "busy",
            f"All {facts.slots} slots are busy and {_tasks(ahead)} {_are(ahead)} ahead of it.",
            f"全部 {facts.slots} 个槽位都在忙,前面还有 {ahead} 个任务。",
            _eta(facts),
        )
    if ahead:
        return Why(
            "queued",
            f"{_tasks(ahead).capitalize()} {_are(ahead)} ahead of it in {facts.list_name}.",
            f"{facts.list_name} 中前面还有 {ahead} 个任务。",
            _eta(facts),
        )
    return _dispatching("It is next and about to be taken.", "即将被领取。")


def _dispatching(en: str, zh: str) -> Why:
    return Why("dispatching", en, zh, 0.0)


def _eta(facts: Facts) -> float | None:
    """Return how long the tasks ahead and this one take at the rate of late."""
    if facts.ahead is None or facts.rate < SLOWEST_RATE:
        return None
    return (facts.ahead + 1) / facts.rate


def _tasks(count: int) -> str:
    return "one task" if count == 1 else f"{count or 'no'} tasks"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
