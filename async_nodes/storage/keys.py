"""Every Redis key of the product: type, life, owner. No key is spelt anywhere else.

All keys share one configurable prefix and the shard's hash tag, so that one script may touch
them. With the default prefix ``an``:

| key | type | life | written by | holds |
|---|---|---|---|---|
| an:{0}:t:<id> | string | until ttl after the end | every script | the task, see `layout` |
| an:{0}:e:<id> | stream | like the task | apply | chunks and progress, id <version>-<n> |
| an:{0}:o:<id> | string | like the task | finish | an output that is too large for the record |
| an:{0}:l:<id> | stream | like the task | apply | log lines, id <version>-<n> |
| an:{0}:k:<tenant>:<sha> | string | like its task | submit | "<id> <fingerprint>" of an Idempotency-Key |
| an:{0}:x:<tenant> | zset | ever | submit, sweep | index of ids by time of creation |
| an:{0}:q:<list> | zset | ever | dispatch, claim | dispatched, unclaimed ids by last sign of life |
| an:{0}:due | zset | ever | many, due | timers: "w:<id>" wake, "d:<id>" deadline, "c:<id>" cancel grace, "e:<id>" ended, and to be cleaned up after, "s:<tenant>:<name>" schedule |
| an:{0}:tried:<id> | string | until it is cleaned up after | end | how many have begun to clean up after a task |
| an:{0}:workers | zset | ever | lease, sweep | worker ids by end of lease |
| an:{0}:r:<worker> | set | the worker's | claim, finish | ids the worker runs |
| an:{0}:swept | string | ever | sweep | time of the last sweep, to notice an outage |
| an:{0}:i:<worker> | string | two leases | lease | what a worker says of itself, JSON |
| an:{0}:dead:<tenant> | zset | newest 10,000 | poison, undispatched | dead letters by time |
| an:{0}:controls | hash | ever | controls | what is paused or drained: "queue:<list>" or "node:<name>" -> JSON |
| an:{0}:breakers | hash | 7 days after the last use | breaker_set | breaker "node:<name>", "key:<key>" or "endpoint:<host>:<port>" -> its condition, JSON |
| an:{0}:breakerused | zset | ever | breaker_set | names of breakers by their last use |
| an:{0}:breakcount:<name> | hash | two windows and a minute | breaker | slice of time -> "calls failures size:calls …" |
| an:{0}:breaktrial:<name> | string | 5 s, renewed | breaker_trial | token of the one call that a half-open breaker lets through |
| an:{0}:hold:<scope> | list | until released | claim, release | ids of tasks held because <scope> is paused |
| an:{0}:holds | set | ever | claim, release | scopes with held tasks |
| an:{0}:feed | string | 60 s | feed | somebody follows many tasks, and all is noted since (ms) |
| an:{0}:feed:<tenant> | stream | 10 min, newest 10,000 | every script | changes of state, while followed |
| an:{0}:u:<tenant>:<yyyymmdd> | hash | 400 days | finish | usage of a day (UTC): "<node>/<name>" -> total |
| an:{0}:b:<tenant>:<name> | string | as its node says, at most 30 days | nodes | bytes that nodes keep, such as an index |
| an:{0}:file:<tenant>:<id> | hash | until it expires | file_commit, file_keep | a file: name, type, size, sha256, times |
| an:{0}:part:<tenant>:<id> | hash | like its file; 2 min while it arrives | file_part | a file's content: number -> 256 KiB |
| an:{0}:files:<tenant> | zset | ever | file_commit | ids of files by their text, which is by time |
| an:{0}:fileend:<tenant> | zset | ever | file_… | ids of files, arriving ones too, by the end of their life |
| an:{0}:filesize:<tenant> | hash | ever | file_… | what files take: id -> bytes, "total" |
| an:{0}:filekey:<tenant>:<sha> | string | like its file | file_commit | "<id> <fingerprint>" of an upload's Idempotency-Key |
| an:{0}:schedule:<tenant>:<name> | hash | until it is deleted | schedule, fire | a schedule: definition, version, the tick it waits for, what it has done |
| an:{0}:schedules | zset | ever | schedule | "<tenant>:<name>" of every schedule, by name |
| an:{0}:schema | zset | ever | every process | "records": the highest schema that was written |
| an:{0}:mark | string | 60 s | submit | written behind submits that replicas are waited for with |
| an:{0}:gate | hash | ever | dispatch, claim | messages out per "<list>:<tenant>" (only with a limit) |
| an:{0}:park:<list>:<tenant> | list | ever | dispatch, claim | ids parked at the gate |
| an:{0}:secret | string | ever | first process | key of the MAC in task ids |
| an:{0}:apikeys | hash | until it is revoked | keys | an API key's id -> its SHA-256, tenant, scopes, name, JSON |
| an:{0}:tenants | set | ever | keys | everybody for whom a key was made |
| an.io.high … an.cpu.low | list | ever | dispatch, kombu | Celery messages: wake-ups |
| an.unacked, an.unacked_index | hash, zset | until acknowledged | kombu, tidy | popped messages by delivery tag |

Channels (not keys): an:{0}:s:<id> carries a task's events as "<version>-<n> <type> <json>";
an:{0}:f:<tenant> the feed's as "<stream id> state <json>";
an:{0}:ctl:<worker> carries "cancel <id> <fence>" to the worker that runs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.priority import LISTS

PREFIX_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Keys:
    """Spell the keys for one prefix and shard."""

    prefix: str = "an"
    shard: int = 0

    def __post_init__(self) -> None:
        """Refuse a prefix that would break the key grammar."""
        if not PREFIX_PATTERN.fullmatch(self.prefix):
            raise AsyncNodesError(
                "invalid_setting",
                f"ASYNC_NODES_KEY_PREFIX must be 1 to 32 of A-Z a-z 0-9 _ -, not {self.prefix!r}",
            )

    @property
    def base(self) -> str:
        """Return the common start of all keys, the one key the scripts are given."""
        return f"{self.prefix}:{{{self.shard}}}:"

    def task(self, task_id: str) -> str:
        """Return the key of a task's record."""
        return f"{self.base}t:{task_id}"

    def stream(self, task_id: str) -> str:
        """Return the key of a task's chunks."""
        return f"{self.base}e:{task_id}"

    def output(self, task_id: str) -> str:
        """Return the key of an output that is too large for the record."""
        return f"{self.base}o:{task_id}"

    def log(self, task_id: str) -> str:
        """Return the key of a task's log lines."""
        return f"{self.base}l:{task_id}"

    def channel(self, task_id: str) -> str:
        """Return the channel of a task's events."""
        return f"{self.base}s:{task_id}"

    def control(self, worker: str) -> str:
        """Return the channel on which a worker hears of cancels."""
        return f"{self.base}ctl:{worker}"

    def replay(self, tenant: str, digest: str) -> str:
        """Return the key of what an Idempotency-Key stands for, by its digest."""
        return f"{self.base}k:{tenant}:{digest}"

    def index(self, tenant: str) -> str:
        """Return the key of a tenant's ids by time of creation."""
        return f"{self.base}x:{tenant}"

    def running(self, worker: str) -> str:
        """Return the key of the ids that a worker runs."""
        return f"{self.base}r:{worker}"

    def unclaimed(self, name: str) -> str:
        """Return the key of a list's dispatched, unclaimed ids."""
        return f"{self.base}q:{name}"

    @property
    def workers(self) -> str:
        """Return the key of the leases."""
        return f"{self.base}workers"

    @property
    def due(self) -> str:
        """Return the key of the timers."""
        return f"{self.base}due"

    def dead(self, tenant: str) -> str:
        """Return the key of a tenant's dead letters."""
        return f"{self.base}dead:{tenant}"

    def worker_info(self, worker: str) -> str:
        """Return the key of what a worker says of itself."""
        return f"{self.base}i:{worker}"

    @property
    def breakers(self) -> str:
        """Return the key of the breakers' conditions."""
        return f"{self.base}breakers"

    def held(self, scope: str) -> str:
        """Return the key of the ids held because a scope is paused."""
        return f"{self.base}hold:{scope}"

    @property
    def holds(self) -> str:
        """Return the key of the scopes with held tasks."""
        return f"{self.base}holds"

    @property
    def controls(self) -> str:
        """Return the key of what is paused or drained."""
        return f"{self.base}controls"

    @property
    def gate(self) -> str:
        """Return the key of the numbers of messages out, by list and tenant."""
        return f"{self.base}gate"

    def parked(self, slot: str) -> str:
        """Return the key of the ids parked at the gate of a ``<list>:<tenant>``."""
        return f"{self.base}park:{slot}"

    @property
    def feed(self) -> str:
        """Return the key that says that somebody follows many tasks."""
        return f"{self.base}feed"

    def feed_of(self, tenant: str) -> str:
        """Return the key of a tenant's latest changes of state."""
        return f"{self.base}feed:{tenant}"

    def feed_channel(self, tenant: str) -> str:
        """Return the channel of a tenant's changes of state."""
        return f"{self.base}f:{tenant}"

    def usage(self, tenant: str, day: str) -> str:
        """Return the key of a day's usage totals; the day is ``yyyymmdd`` in UTC."""
        return f"{self.base}u:{tenant}:{day}"

    def blob(self, tenant: str, name: str) -> str:
        """Return the key of bytes that a tenant's nodes keep."""
        return f"{self.base}b:{tenant}:{name}"

    def file(self, tenant: str, file_id: str) -> str:
        """Return the key of what a file is."""
        return f"{self.base}file:{tenant}:{file_id}"

    def parts(self, tenant: str, file_id: str) -> str:
        """Return the key of a file's content."""
        return f"{self.base}part:{tenant}:{file_id}"

    def schedule(self, tenant: str, name: str) -> str:
        """Return the key of a schedule."""
        return f"{self.base}schedule:{tenant}:{name}"

    @property
    def schedules(self) -> str:
        """Return the key of the names of all schedules."""
        return f"{self.base}schedules"

    @property
    def schema(self) -> str:
        """Return the key of the highest schema that was written."""
        return f"{self.base}schema"

    @property
    def mark(self) -> str:
        """Return the key that is written behind submits which replicas are waited for with."""
        return f"{self.base}mark"

    @property
    def api_keys(self) -> str:
        """Return the key of what is kept of the API keys."""
        return f"{self.base}apikeys"

    @property
    def tenants(self) -> str:
        """Return the key of the names of the tenants."""
        return f"{self.base}tenants"

    @property
    def secret(self) -> str:
        """Return the key of the id secret."""
        return f"{self.base}secret"

    def queue(self, name: str) -> str:
        """Return the Celery queue, which is also the Redis list, of a list such as ``io.high``."""
        return f"{self.prefix}.{name}"

    @property
    def ledger(self) -> tuple[str, str, str]:
        """Return kombu's hash, index and mutex of popped messages."""
        return (
            f"{self.prefix}.unacked",
            f"{self.prefix}.unacked_index",
            f"{self.prefix}.unacked_mutex",
        )

    @property
    def queues(self) -> tuple[str, ...]:
        """Return the Celery queues in the order of `priority.LISTS`."""
        return tuple(self.queue(name) for name in LISTS)
