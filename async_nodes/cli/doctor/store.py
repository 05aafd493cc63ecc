"""The checks of Redis, straight at the server: it answers, keeps what it gets, workers live."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from async_nodes.cli.doctor.check import Check, Outcome, Patient, SkippedError
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import printable
from async_nodes.core.redacted import masked
from async_nodes.storage.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 1.0
_OLDEST = (6, 2)


def store(patient: Patient) -> Check:
    """store: Redis answers and is new enough."""
    from async_nodes.storage.redis_errors import explained

    settings = patient.known_settings()
    address = masked(settings.store_url)
    with _redis(patient) as client:
        try:
            began = time.perf_counter()
            client.ping()
            took = (time.perf_counter() - began) * 1000
            info: dict[str, Any] = client.info("server")
        except Exception as error:  # noqa: BLE001 - redis-py's errors, sockets', name look-ups'
            hint = tr(
                "Start `async-nodes dev` (or `redis`), or set ASYNC_NODES_REDIS_URL.",
                "请启动 `async-nodes dev`(或 `redis`),或设置 ASYNC_NODES_REDIS_URL。",
            )
            if settings.redis_url is None:
                detail = tr(
                    f"no embedded store runs on {settings.data_dir}, nor does {address} answer",
                    f"{settings.data_dir} 上没有内置存储在运行,{address} 也无响应",
                )
            else:
                detail = tr(f"{address} does not answer", f"{address} 无响应")
                detail += f": {masked(explained(error))}"
            return Check("store", Outcome.FAIL, detail, hint)
    patient.store_answers = True
    version = str(info["redis_version"])
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < _OLDEST:
        hint = tr("Use Redis 6.2 or newer, or Valkey.", "请使用 Redis 6.2 以上或 Valkey。")
        return Check("store", Outcome.FAIL, f"{name}, {address}", hint)
    if info.get("redis_mode") == "cluster":
        hint = tr("Use one server.", "请使用单机。")
        return Check("store", Outcome.FAIL, f"{name} Cluster, {address}", hint)
    return Check("store", Outcome.OK, f"{name}, {address}, {took:.1f} ms")


def replication(patient: Patient) -> Check:
    """replication: the server takes writes; under Sentinel, somebody can take its place."""
    from async_nodes.core.sentinel_urls import is_sentinel

    settings = patient.known_settings()
    with _answering(patient) as client:
        info: dict[str, Any] = client.info("replication")
    replicas = int(info.get("connected_slaves", 0))
    if info["role"] != "master":
        hint = tr(
            "Name the primary in ASYNC_NODES_REDIS_URL, or the Sentinels that know it.",
            "请在 ASYNC_NODES_REDIS_URL 中指定主节点,或指定 Sentinel。",
        )
        detail = tr("a replica, which refuses to write", "是从节点,拒绝写入")
        return Check("replication", Outcome.FAIL, detail, hint)
    detail = tr(f"primary, {replicas} replicas", f"主节点,{replicas} 个从节点")
    wanted = settings.redis_wait_replicas or 0
    if replicas < wanted:
        hint = tr(
            f"{wanted} must have a task before it is accepted: submits are refused.",
            f"任务须有 {wanted} 个从节点确认才被接受:目前提交会被拒绝。",
        )
        return Check("replication", Outcome.FAIL, detail, hint)
    if not is_sentinel(settings.store_url):
        return Check("replication", Outcome.OK, detail)
    return _watched(settings.store_url, detail, replicas)


def _watched(url: str, detail: str, replicas: int) -> Check:
    """Return what the Sentinels have to say of a primary that is well."""
    from redis.exceptions import RedisError

    from async_nodes.core.sentinel_urls import parse_sentinel
    from async_nodes.storage.redis_address import ask
    from async_nodes.storage.sentinels import facts_of

    address = parse_sentinel(url)
    known: list[dict[str, str]] = []
    for sentinel in address.sentinel_urls():
        with contextlib.suppress(RedisError, OSError):
            known.append(facts_of(ask(sentinel, address.name)))
    places = {f"{facts['ip']}:{facts['port']}" for facts in known}
    count, quorum = len(address.sentinels), max((int(f["quorum"]) for f in known), default=0)
    detail += " · " + tr(
        f"{len(known)} of {count} Sentinels answer, quorum {quorum}, {', '.join(sorted(places))}",
        f"{count} 个 Sentinel 中 {len(known)} 个响应,法定数 {quorum},{'、'.join(sorted(places))}",
    )
    if len(known) < max(quorum, count // 2 + 1):
        hint = tr("There would be no failover now.", "目前无法进行故障切换。")
        return Check("replication", Outcome.FAIL, detail, hint)
    if len(known) < count or len(places) > 1 or not replicas:
        hint = tr(
            "Every Sentinel should answer and name the same primary, which needs a replica.",
            "所有 Sentinel 应响应并指向同一主节点,且主节点应有从节点。",
        )
        return Check("replication", Outcome.WARN, detail, hint)
    return Check("replication", Outcome.OK, detail)


def eviction(patient: Patient) -> Check:
    """eviction: a full server refuses writes, and does not forget tasks."""
    with _answering(patient) as client:
        info: dict[str, Any] = client.info("memory")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    used = f"{int(info['used_memory']) / 1e6:.0f} MB"
    limit = int(info.get("maxmemory", 0))
    detail = f"maxmemory-policy {policy}, {used}" + (f" / {limit / 1e6:.0f} MB" if limit else "")
    if policy == "noeviction":
        return Check("eviction", Outcome.OK, detail)
    hint = tr(
        "CONFIG SET maxmemory-policy noeviction, or Redis will drop tasks when it is full.",
        "请执行 CONFIG SET maxmemory-policy noeviction,否则内存满时会丢失任务。",
    )
    return Check("eviction", Outcome.FAIL if limit else Outcome.WARN, detail, hint)


def persistence(patient: Patient) -> Check:
    """persistence: accepted tasks survive a restart of the server."""
    with _answering(patient) as client:
        info: dict[str, Any] = client.info("persistence")
    if int(info.get("aof_enabled", 0)):
        if info.get("aof_last_write_status", "ok") != "ok":
            hint = tr("Look at the server's disk.", "请检查服务器磁盘。")
            return Check("persistence", Outcome.FAIL, "AOF: last write failed", hint)
        return Check("persistence", Outcome.OK, "AOF")
    hint = tr(
        "CONFIG SET appendonly yes; without it a restart loses accepted tasks.",
        "请执行 CONFIG SET appendonly yes;否则重启会丢失已接受的任务。",
    )
    return Check("persistence", Outcome.WARN, tr("no AOF", "未启用 AOF"), hint)


def workers(patient: Patient) -> Check:
    """workers: one of each pool holds a lease."""
    settings = patient.known_settings()
    with _answering(patient) as client:
        seconds, micros = client.time()
        now = seconds * 1000 + micros // 1000
        key = Keys(settings.key_prefix).workers
        found: list[tuple[bytes, float]] = client.zrangebyscore(key, now, "+inf", withscores=True)
    alive = {name.decode(): (until - now) / 1000 for name, until in found}
    missing = [kind for kind in ("io", "cpu") if not any(w.startswith(f"{kind}-") for w in alive)]
    names = ", ".join(f"{name} ({left:.0f} s)" for name, left in sorted(alive.items()))
    if missing:
        detail = tr(f"none of the pool {' or '.join(missing)}", f"缺少进程池:{'、'.join(missing)}")
        hint = tr(
            f"Start `async-nodes worker --pool {missing[0]}`, or `async-nodes dev`.",
            f"请启动 `async-nodes worker --pool {missing[0]}` 或 `async-nodes dev`。",
        )
        return Check("workers", Outcome.FAIL, f"{detail}; {names}" if names else detail, hint)
    return Check("workers", Outcome.OK, names)


def pauses(patient: Patient) -> Check:
    """pauses: no queue and no node is paused or drained."""
    settings = patient.known_settings()
    with _answering(patient) as client:
        found: dict[bytes, bytes] = client.hgetall(Keys(settings.key_prefix).controls)
    if not found:
        return Check("pauses", Outcome.OK, tr("none", "无"))
    said = [_control(scope.decode(), json.loads(raw)) for scope, raw in sorted(found.items())]
    hint = tr(
        "`async-nodes resume QUEUE|NODE` ends a pause or a drain.",
        "`async-nodes resume QUEUE|NODE` 可解除暂停或排空。",
    )
    return Check("pauses", Outcome.WARN, "; ".join(said), hint)


def _control(scope: str, control: dict[str, Any]) -> str:
    words = {"pause": tr("paused", "已暂停"), "drain": tr("draining", "排空中")}
    reason = f" ({printable(control['reason'])})" if control.get("reason") else ""
    return f"{scope} {words.get(control['mode'], control['mode'])}{reason}"


@contextlib.contextmanager
def _answering(patient: Patient) -> Iterator[Any]:
    if not patient.store_answers:
        raise SkippedError(tr("the store does not answer", "存储无响应"))
    with _redis(patient) as client:
        yield client


@contextlib.contextmanager
def _redis(patient: Patient) -> Iterator[Any]:
    """Open a client that gives up soon, for as long as the block."""
    from async_nodes.storage import redis_client

    seconds = patient.left(_SECONDS)
    client: Any = redis_client.client(
        patient.known_settings().store_url, timeout=seconds, connect_timeout=seconds
    )
    try:
        yield client
    finally:
        client.close()
