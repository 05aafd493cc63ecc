"""The one adapter of the store's roles: rows in, verdicts out, nothing decided here."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from redis.exceptions import ResponseError

from async_nodes.core.api_keys import DEFAULT_TENANT
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import IdSource
from async_nodes.core.ports import (
    Accepted,
    Applied,
    Cancelled,
    Claim,
    Deleted,
    Ending,
    Finished,
    LogEntry,
    Refused,
    StreamEntry,
    Submission,
    Swept,
    Taken,
    TimersFired,
)
from async_nodes.core.priority import LISTS
from async_nodes.core.states import NodeState
from async_nodes.storage import layout, plain
from async_nodes.storage.commit import Committer, DirectCommit, Link, verdict_of
from async_nodes.storage.commit import run as run_script
from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_errors import OutcomeUnknown, StoreUnavailable
from async_nodes.storage.script_library import Script, render

if TYPE_CHECKING:
    from async_nodes.storage.gathered_reads import GatheredReads

OLDEST = (6, 2)
ALLOW_OOM_SINCE = (7, 0)
MOST_TIMERS = 200
MOST_RESCUED = 200
DEADLINE_GRACE_MS = 5_000
CANCEL_GRACE_MS = 5_000
PAGE = 500
FENCE_LENGTH, WORKER_LENGTH = 16, 40
LEDGER_AGE_SECONDS = 60
TAKE_PAUSE = 0.1
ASK_AGAIN_WITHIN = 0.1
"""Seconds within which a read may fail and still be tried a second time."""

WEB_PATIENCE = 0.8
"""Seconds a request waits for the store before it answers 503."""

WORKER_PATIENCE = 3_600.0
"""Seconds a worker keeps trying to tell the store what it did: a result is not thrown away."""


def scripts_for(
    link: Link,
    keys: Keys,
    messages: Mapping[str, str],
    *,
    gate_limit: int = 0,
    schema: int = layout.SCHEMA,
) -> dict[str, Script]:
    """Return the scripts as this server takes them, after checking that it may be used at all.

    Args:
        link: to the server.
        keys: the key grammar.
        messages: see `render`.
        gate_limit: see `render`.
        schema: the layout in which new tasks are written.

    Raises:
        AsyncNodesError: ``redis_too_old``, ``unsupported_store`` or ``invalid_setting``.
        StoreUnavailable: it does not answer.

    """
    info = link.call("INFO", "server").decode("utf-8", "replace")
    found = re.search(r"redis_version:(\d+)\.(\d+)", info)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < OLDEST:
        raise AsyncNodesError(
            "redis_too_old", f"the server reports version {version[0]}.{version[1]}"
        )
    if "redis_mode:cluster" in info:
        raise AsyncNodesError("unsupported_store", "Redis Cluster is not supported: use one server")
    _agree_on_schema(link, keys, schema)
    allow_oom = version >= ALLOW_OOM_SINCE
    return render(keys, messages, gate_limit=gate_limit, allow_oom=allow_oom, schema=schema)


def _agree_on_schema(link: Link, keys: Keys, schema: int) -> None:
    """Refuse a store with records that this release cannot read; note what it is going to write."""
    if schema not in layout.SCHEMAS:
        known = " or ".join(map(str, layout.SCHEMAS))
        raise AsyncNodesError(
            "invalid_setting", f"ASYNC_NODES_WRITE_SCHEMA must be {known}, not {schema}"
        )
    written = int(float(link.call("ZSCORE", keys.schema, "records") or 0))
    if written > layout.SCHEMA:
        raise AsyncNodesError(
            "unsupported_store",
            f"it has records of schema {written}, and this release reads up to {layout.SCHEMA}: "
            "upgrade this process",
        )
    if written < schema:
        with contextlib.suppress(ResponseError):  # full or read-only now: the next start notes it
            link.call("ZADD", keys.schema, "GT", schema, "records")


class RedisStore:
    """Keep tasks in Redis.

    Args:
        link: runs plain commands.
        committer: runs rows, see `commit` and `group_commit`.
        keys: the key grammar.
        scripts: what `scripts_for` returned.
        lease_seconds: how long a worker's silence is believed.
        patience: seconds to keep sending a row whose fate is unknown.

    """

    def __init__(
        self,
        *,
        link: Link,
        committer: Committer,
        keys: Keys,
        scripts: Mapping[str, Script],
        lease_seconds: float = 15.0,
        patience: float = WEB_PATIENCE,
        reads: GatheredReads | None = None,
    ) -> None:
        self.keys = keys
        self.link = link
        self._committer = committer
        self._scripts = scripts
        self._may_be_plain = "accept" in scripts
        self._lease_ms = int(lease_seconds * 1000)
        self._patience = patience
        self._reads = reads
        self._index_cursor: bytes = b"0"
        self._unswept, self._swept = [DEFAULT_TENANT], DEFAULT_TENANT

    # -- Tasks -------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> Accepted:
        """Put a task into the store and its message into the list, in one transaction.

        Raises:
            AsyncNodesError: ``idempotency_mismatch``; ``outcome_unknown`` with ``task_id``.
            StoreUnavailable: nothing was accepted.

        """
        task_id = submission.task_id
        try:
            if self._may_be_plain and plain.is_plain(submission):
                created_ms = self.row("accept", plain.accept_row(submission))
                if created_ms:
                    return Accepted(task_id, 1, int(created_ms))
            verdict = self.row("submit", submit_row(submission))
        except OutcomeUnknown as error:
            raise unknown_outcome(task_id, error) from error
        if verdict[0] == b"ok":
            return Accepted(task_id, int(verdict[1]), int(verdict[2]))
        (said,) = self.accepted([task_id], [verdict])
        if isinstance(said, AsyncNodesError):
            raise said
        return said

    def submit_many(self, submissions: Sequence[Submission]) -> list[Accepted | AsyncNodesError]:
        """Put tasks into the store, each by itself; return for each what `submit` would.

        Raises:
            StoreUnavailable: nothing was accepted.

        """
        ids = [submission.task_id for submission in submissions]
        verdicts = self._submitted(submissions)
        refused = [said for said in verdicts if _was_not_sent(said)]
        if refused and len(refused) == len(verdicts):
            raise refused[0]
        return self.accepted(ids, verdicts)

    def _submitted(self, submissions: Sequence[Submission]) -> list[Any]:
        """Return the verdicts about tasks that are to stand in the lists in this order."""
        commit = self._committer.commit_many
        if not self._may_be_plain or not all(map(plain.is_plain, submissions)):
            return commit("submit", [*map(submit_row, submissions)], patience=self._patience)
        verdicts = commit("accept", [*map(plain.accept_row, submissions)], patience=self._patience)
        unusual = [index for index, said in enumerate(verdicts) if said == 0]
        rows = [submit_row(submissions[index]) for index in unusual]
        for index, said in zip(
            unusual, commit("submit", rows, patience=self._patience), strict=True
        ):
            verdicts[index] = said
        return verdicts

    def accepted(
        self, ids: Sequence[str], verdicts: Sequence[Any]
    ) -> list[Accepted | AsyncNodesError]:
        """Return what the verdicts about submits say, with a look at tasks that are replayed."""
        replayed = [
            said[1].decode() for said in verdicts if isinstance(said, list) and said[0] == b"replay"
        ]
        known = self.controls(replayed) if replayed else {}
        answers: list[Accepted | AsyncNodesError] = []
        for task_id, said in zip(ids, verdicts, strict=True):
            if isinstance(said, OutcomeUnknown):
                answers.append(unknown_outcome(task_id, said))
            elif isinstance(said, AsyncNodesError):
                answers.append(said)
            elif isinstance(said, int):  # when it was accepted
                answers.append(Accepted(task_id, 1, said))
            elif said[0] == b"ok":
                answers.append(Accepted(task_id, int(said[1]), int(said[2])))
            elif said[0] == b"mismatch":
                first = said[1].decode()
                answers.append(AsyncNodesError("idempotency_mismatch", task_id=first))
            else:
                answers.append(_replayed(said[1].decode(), known))
        return answers

    def controls(self, ids: Sequence[str]) -> dict[str, layout.Document]:
        """Return what is known of tasks but their documents: columns alone, however large."""
        last = layout.CONTROL_SIZE - 1
        found = self.link.call_many(
            [("GETRANGE", self.keys.task(task_id), 0, last) for task_id in ids]
        )
        return {
            task_id: layout.parse(raw)
            for task_id, raw in zip(ids, found, strict=True)
            if isinstance(raw, bytes) and raw
        }

    def read(self, task_id: str) -> layout.Document | None:
        """Return a task as stored, or None."""
        raw = self._get(task_id)
        return layout.parse(raw) if raw else None

    def glance(self, task_id: str) -> layout.Glance | None:
        """Return what a read of a task shows, or None."""
        raw = self._get(task_id)
        return layout.glance(raw) if raw else None

    def _get(self, task_id: str) -> bytes | None:
        try:
            return self._asked(self.keys.task(task_id))
        except OutcomeUnknown as error:  # what has changed nothing has no outcome
            raise StoreUnavailable(error.detail) from error

    def _asked(self, key: str) -> bytes | None:
        began = time.monotonic()
        try:
            if self._reads is not None:
                return self._reads.get(key)
            raw: bytes | None = self.link.call("GET", key)
        except StoreUnavailable:
            # A connection that was cut under the question: asking again costs nothing. One that
            # hangs has used up what a caller can wait.
            if time.monotonic() - began > ASK_AGAIN_WITHIN:
                raise
            raw = self.link.call("GET", key)
        return raw

    def claim(self, task_id: str, dispatch: int, *, worker: str, fence: str) -> Claim | Refused:
        """Turn a message into the right to run its task once.

        Args:
            task_id: the message's.
            dispatch: the message's.
            worker: the worker's id, at most 40 characters.
            fence: 16 characters that no other claim has.

        """
        if len(fence) != FENCE_LENGTH or len(worker) > WORKER_LENGTH:
            message = f"fence {fence!r} or worker {worker!r} does not fit the record"
            raise ValueError(message)
        verdict = self.row("claim", (task_id, dispatch, worker.ljust(40), fence))
        if verdict[0] != b"run":
            return Refused(verdict[0].decode())
        return _claim(task_id, fence, verdict)

    def take(
        self,
        lists: Sequence[str],
        most: int,
        *,
        worker: str,
        first: tuple[str, bytes] | None = None,
    ) -> Taken:
        """Pop messages and claim their tasks, in one step.

        Args:
            lists: names of `priority.LISTS`, most urgent first.
            most: how many tasks at most.
            worker: the worker's id.
            first: the list and the message that a blocking pop has brought already.

        """
        nonce = secrets.token_hex(6)
        name, message = first or (lists[0], b"")
        indexes = [LISTS.index(name), *map(LISTS.index, lists)]
        again = 0
        while True:
            try:
                reply = self.run("take", worker.ljust(40), nonce, most, again, message, *indexes)
                return _taken(worker, nonce, *reply)
            except StoreUnavailable as error:
                # Claims may have been made, or a popped message is in hand: neither may be
                # forgotten, and the same nonce finds what is there already.
                if isinstance(error, OutcomeUnknown):
                    again = 1
                elif not (again or message):
                    raise
                time.sleep(TAKE_PAUSE)

    def progress(self, task_id: str, fence: str, json: bytes) -> Applied:
        """Show progress: a JSON object in the record and on the stream."""
        return self._apply(task_id, fence, "progress", 0, json)

    def chunk(self, task_id: str, fence: str, json: bytes, *, number: int = 0) -> Applied:
        """Append a piece of output to the task's stream.

        Args:
            task_id: the claim's.
            fence: the claim's.
            json: the chunk, a JSON object.
            number: of the chunk within its attempt, from 1, rising: one that is sent again after
                a cut connection is then stored once. Without a number it may be stored twice.

        """
        return self._apply(task_id, fence, "chunk", number, json)

    def log(self, task_id: str, fence: str, json: bytes, *, number: int) -> Applied:
        """Append a line to the task's log.

        Args:
            task_id: the claim's.
            fence: the claim's.
            json: the line, ``{at, level, text, attempt, n}``.
            number: of the line within its attempt, from 1, rising.

        """
        return self._apply(task_id, fence, "log", number, json)

    def output(self, document: layout.Document, start: int = 0, end: int = -1) -> bytes | None:
        """Return a range of an output's JSON, wherever it is kept.

        Args:
            document: the task as read.
            start: first byte.
            end: last byte, inclusive; -1 for the output's last.

        Returns:
            The bytes; None when there is no output, or it is gone by now.

        """
        if not document.output_bytes:
            return None
        last = document.output_bytes - 1 if end < 0 else end
        if not document.apart:
            return document.inline_output[start : last + 1]
        task_id = document.json[12:40].decode()
        found: bytes = self.link.call("GETRANGE", self.keys.output(task_id), start, last)
        return found or None

    def _apply(self, task_id: str, fence: str, kind: str, number: int, json: bytes) -> Applied:
        verdict = self.row("apply", (task_id, fence, kind, number, json))
        if verdict[0] != b"ok":
            return Applied(applied=False, version=0, cancel_asked=False)
        return Applied(applied=True, version=int(verdict[1]), cancel_asked=verdict[2] == 1)

    def finish(
        self, task_id: str, fence: str, ending: Ending, *, origin: object = None
    ) -> Finished:
        """End an attempt; the first ending under the task's fence wins, for ever.

        Args:
            task_id: the claim's.
            fence: the claim's.
            ending: how it ended.
            origin: the claim's; a usual end costs the server a quarter with it.

        """
        if isinstance(origin, plain.Origin) and plain.is_plain_end(ending):
            row = plain.complete_row(origin, fence, ending.output)
            if self.row("complete", row):
                return _SUCCEEDED
        row = (
            task_id, fence, ending.event.name, ending.delay_ms,
            ending.error, ending.output, ending.usage, ending.progress,
        )  # fmt: skip
        verdict = self.row("finish", row)
        if verdict[0] == b"gone":
            return Finished(applied=False, version=0, state=None)
        state = NodeState(verdict[2].decode())
        return Finished(applied=verdict[0] == b"ok", version=int(verdict[1]), state=state)

    def cancel(self, task_id: str, *, tenant: str) -> Cancelled:
        """End a waiting task, or ask the worker that runs it to stop."""
        verdict = self.row("cancel", (task_id, tenant.ljust(32), CANCEL_GRACE_MS))
        if len(verdict) == 1:
            return Cancelled(verdict[0].decode())
        state = NodeState(verdict[2].decode()) if len(verdict) > 2 else None  # noqa: PLR2004
        return Cancelled(verdict[0].decode(), int(verdict[1]), state)

    def delete(self, task_id: str, *, tenant: str) -> Deleted:
        """Remove every trace of a task that has ended."""
        verdict = self.row("delete", (task_id, tenant.ljust(32)))
        if len(verdict) == 1:
            return Deleted(verdict[0].decode())
        return Deleted(verdict[0].decode(), int(verdict[1]), NodeState(verdict[2].decode()))

    # -- Channels ----------------------------------------------------------------------------

    def entries(self, task_id: str, *, after: tuple[int, int]) -> list[StreamEntry]:
        """Return the stored chunks and progress after a position, oldest first."""
        found: list[StreamEntry] = []
        start = f"({after[0]}-{after[1]}" if after > (0, 0) else "-"
        while True:
            page = self.link.call(
                "XRANGE", self.keys.stream(task_id), start, "+", "COUNT", PAGE, timeout=5.0
            )
            found += [_entry(position, fields) for position, fields in page]
            if len(page) < PAGE:
                return found
            start = f"({page[-1][0].decode()}"

    def log_entries(self, task_id: str, *, after: tuple[int, int] = (0, 0)) -> list[LogEntry]:
        """Return the stored log lines after a position, oldest first."""
        start = f"({after[0]}-{after[1]}" if after > (0, 0) else "-"
        found = self.link.call("XRANGE", self.keys.log(task_id), start, "+", timeout=5.0)
        entries = [_entry(position, fields) for position, fields in found]
        return [LogEntry(one.version, one.seq, one.json) for one in entries]

    # -- Ops ---------------------------------------------------------------------------------

    def register(self, worker: str, info: bytes = b"") -> None:
        """Give a worker its lease; `info` is what it says of itself, JSON."""
        self.run("lease", "register", worker, self._lease_ms, info)

    def renew(self, worker: str, held: Sequence[str] = (), info: bytes = b"") -> bool:
        """Renew a lease; false when it was lost and the worker's tasks were given away.

        Args:
            worker: the worker's id.
            held: tasks whose messages it has popped and not started.
            info: what the worker says of itself, JSON.

        """
        return bool(self.run("lease", "renew", worker, self._lease_ms, info, *held))

    def expire(self, worker: str) -> None:
        """Give up a lease with all tasks under it, to be rescued by the next sweep."""
        self.run("lease", "expire", worker, 0, "")

    def retire(self, worker: str) -> None:
        """Sign off a worker that runs nothing any more."""
        self.run("lease", "retire", worker, 0, "")

    def lost(self, task_id: str, *, worker: str, dispatch: int, isolated: bool) -> str:
        """Report that the child process which had a task is gone."""
        row = (task_id, worker.ljust(40), dispatch, "1" if isolated else "0")
        return str(self.row("lost", row)[0].decode())

    def fire_timers(self) -> TimersFired:
        """Wake what is due, end what is past its deadline."""
        reply = self.run("due", MOST_TIMERS, DEADLINE_GRACE_MS, self._lease_ms)
        next_in = None if reply[0] < 0 else reply[0] / 1000
        schedules = tuple(name.decode() for name in reply[1])
        return TimersFired(next_in, tuple(task_id.decode() for task_id in reply[2:]), schedules)

    def sweep(self) -> Swept:
        """Recover what dead workers and vanished messages left behind."""
        ack_timeout = self._lease_ms
        outage = max(self._lease_ms // 2, 5_000)
        tenant = self._unswept.pop() if self._index_cursor == b"0" else self._swept
        self._unswept = self._unswept or self.tenants()
        reply = self.run(
            "sweep", self._lease_ms, ack_timeout, MOST_RESCUED, outage, self._index_cursor, tenant
        )
        self._index_cursor, self._swept = reply[3], tenant
        ended = tuple(task_id.decode() for task_id in reply[4:])
        return Swept(int(reply[0]), int(reply[1]), int(reply[2]), ended)

    def tidy(self) -> int:
        """Clear kombu's ledger of messages whose tasks do not wait for them; return how many."""
        ledger, index, _ = self.keys.ledger
        return int(self.run("tidy", ledger, index, LEDGER_AGE_SECONDS, MOST_RESCUED))

    def workers(self) -> dict[str, float]:
        """Return the workers with a live lease and the seconds it still has."""
        now = self.now_ms()
        found = self.link.call("ZRANGEBYSCORE", self.keys.workers, now, "+inf", "WITHSCORES")
        names, scores = found[::2], found[1::2]
        return {
            name.decode(): (float(score) - now) / 1000
            for name, score in zip(names, scores, strict=True)
        }

    def running(self, worker: str) -> list[str]:
        """Return the ids of the tasks under a worker's lease."""
        members = self.link.call("SMEMBERS", self.keys.running(worker))
        return sorted(member.decode() for member in members)

    def depths(self) -> dict[str, int]:
        """Return how many messages wait in each list."""
        replies = self.link.call_many([("LLEN", queue) for queue in self.keys.queues])
        return dict(zip(LISTS, (int(reply) for reply in replies), strict=True))

    def dead_letters(self, tenant: str = "default") -> list[str]:
        """Return the ids of a tenant's tasks that could not be done, newest first."""
        members = self.link.call("ZREVRANGE", self.keys.dead(tenant), 0, -1)
        return [member.decode() for member in members]

    def beside(self, link: Link) -> RedisStore:
        """Return the same store on another connection: that of another thread."""
        return RedisStore(
            link=link,
            committer=DirectCommit(link, self._scripts, self.keys.base),
            keys=self.keys,
            scripts=self._scripts,
            lease_seconds=self._lease_ms / 1000,
            patience=self._patience,
        )

    def id_source(self) -> IdSource:
        """Return the maker of task ids, whose secret all processes share."""
        return IdSource(bytes(self.run("secret", secrets.token_bytes(16))))

    def close(self) -> None:
        """Close the connection for good."""
        self.link.close()

    def tenants(self) -> list[str]:
        """Return everybody who may have tasks."""
        known = {name.decode() for name in self.link.call("SMEMBERS", self.keys.tenants)}
        return sorted(known | {DEFAULT_TENANT})

    def ping(self) -> None:
        """Raise unless the server answers."""
        self.link.call("PING")

    def now_ms(self) -> int:
        """Return the store's time, milliseconds since 1970."""
        seconds, micros = self.link.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def row(self, script: str, row: tuple[Any, ...]) -> Any:
        """Send one row through the committer and return its verdict."""
        return self._committer.commit(script, row, patience=self._patience)

    def run(self, script: str, *args: str | int | bytes) -> Any:
        """Run a script by itself and return its reply."""
        reply = run_script(self.link, self.keys.base, self._scripts[script], args)
        return verdict_of(reply) if isinstance(reply, Exception) else reply


def submit_row(submission: Submission) -> tuple[Any, ...]:
    """Return a task as the scripts take it that accept one."""
    return (
        submission.task_id,
        submission.tenant.ljust(32),
        LISTS.index(submission.list_name),
        submission.private,
        submission.tail,
        submission.inputs_at,
        submission.inputs_len,
        submission.delay_ms,
        submission.deadline_ms,
        submission.timeout_ms,
        submission.ttl_ms,
        submission.max_dispatches,
        submission.idempotency.ljust(32),
        submission.fingerprint,
    )


def _was_not_sent(said: object) -> TypeGuard[StoreUnavailable]:
    return isinstance(said, StoreUnavailable) and not isinstance(said, OutcomeUnknown)


def unknown_outcome(task_id: str, error: OutcomeUnknown) -> AsyncNodesError:
    """Return what to tell of a task that may have been accepted."""
    return AsyncNodesError("outcome_unknown", error.detail, retry_after=1.0, task_id=task_id)


def _replayed(first: str, known: Mapping[str, layout.Document]) -> Accepted:
    """Return what is said of an earlier task; one that ends and expires meanwhile was accepted."""
    found = known.get(first)
    if found is None:
        return Accepted(first, 1, 0, replayed=True)
    return Accepted(first, found.version, int(found.created_at), replayed=True, state=found.state)


def _entry(position: bytes, fields: list[bytes]) -> StreamEntry:
    version, _, seq = position.partition(b"-")
    return StreamEntry(int(version), int(seq), fields[1].decode(), fields[3])


_CLAIMED = (
    "version", "attempt", "spent", "losses", "deaths", "queued_ms", "started_ms",
    "first_started_ms", "deadline_ms", "timeout_ms", "created_ms",
)  # fmt: skip


def _claim(task_id: str, fence: str, verdict: list[Any]) -> Claim:
    numbers = {name: int(value) for name, value in zip(_CLAIMED, verdict[1:12], strict=True)}
    tenant, private, inputs, index = verdict[12:16]
    return Claim(
        task_id, fence, tenant=tenant.decode(), private=private, inputs=inputs,
        list_name=LISTS[index], **numbers,
    )  # fmt: skip


_SUCCEEDED = Finished(applied=True, version=3, state=NodeState.SUCCEEDED)
"""What a plain end comes to."""


def _taken(
    worker: str, nonce: str, now_ms: int, usual: list[bytes], others: list[list[Any]]
) -> Taken:
    started = plain.moment(now_ms) if usual else b""
    claims = [
        plain.claim_of(raw, inputs, f"{nonce}{number:04d}", worker, now_ms, started)
        for number, (raw, inputs) in enumerate(zip(usual[::2], usual[1::2], strict=True))
    ]
    expired = []
    for task_id, fence, what in others:
        if isinstance(what, list):
            claims.append(_claim(task_id.decode(), fence.decode(), what))
        elif what == b"no_lease":
            return Taken(leased=False)
        else:
            expired.append(task_id.decode())
    return Taken(tuple(claims), tuple(expired))
