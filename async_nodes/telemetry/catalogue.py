"""Every metric there is: name, type, labels and meaning, in one table.

What a process counts is made from a row here (`registry`), docs/metrics.md is written from it, and
a test holds every exposed line to it. A label's values are few: a task's id is never one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

TASK_SECONDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2.5, 5, 10, 30, 60, 120, 300, 600,
)  # fmt: skip
"""Bounds for what bodies take. 1.5 s is the specification's threshold for more web replicas."""

HTTP_SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2.5, 5, 10, 30,
)  # fmt: skip
SHORT_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
ROWS: Final = (1, 2, 5, 10, 20, 50, 100, 200)
TOKEN_RATES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """Which processes have a metric."""

    WEB = "web"
    STORE = "store"
    """The web process, which asks the store when it is scraped."""

    WORKER = "worker"
    BREAKERS = "breakers"
    EACH = "each"


@dataclass(frozen=True, slots=True)
class Described:
    """Describe one metric.

    Attributes:
        name: as it is exposed; a histogram's without ``_bucket``.
        kind: counter, gauge or histogram.
        source: who has it.
        labels: names of its labels.
        en, zh: what it means, for people.
        bounds: of a histogram's buckets, ascending.

    """

    name: str
    kind: Kind
    source: Source
    labels: tuple[str, ...]
    en: str
    zh: str
    bounds: tuple[float, ...] = ()


COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
WEB, STORE, EACH = Source.WEB, Source.STORE, Source.EACH
WORKER, BREAKERS = Source.WORKER, Source.BREAKERS

_ROWS: Final = (
    # -- tasks, as workers see them
    Described(
        "celery_task_runtime", HISTOGRAM, WORKER, ("node",),
        "Seconds a node's body ran (the name is kept for compatibility).",
        "节点函数体的运行秒数(为兼容而保留此名)。", TASK_SECONDS,
    ),
    Described(
        "celery_active_tasks", GAUGE, WORKER, (),
        "Bodies running in this process (the name is kept for compatibility).",
        "本进程中正在运行的函数体数(为兼容而保留此名)。",
    ),
    Described(
        "async_nodes_task_queue_wait_seconds", HISTOGRAM, WORKER, ("node",),
        "Time from a task being claimable to being claimed.",
        "任务从可领取到被领取的时间。", TASK_SECONDS,
    ),
    Described(
        "async_nodes_task_end_to_end_seconds", HISTOGRAM, WORKER, ("node",),
        "Time from a task being accepted to its end here, waiting and retries included.",
        "任务从被接受到在此结束的时间,含等待与重试。", TASK_SECONDS,
    ),
    Described(
        "async_nodes_task_first_chunk_seconds", HISTOGRAM, WORKER, ("node",),
        "Time from the start of a body to its first chunk: the time to the first token of a model.",
        "函数体开始到首个数据块的时间,对模型即首个 token 的时间。", TASK_SECONDS,
    ),
    Described(
        "async_nodes_attempts_total", COUNTER, WORKER, ("node", "outcome"),
        "Attempts that ended: succeeded, failed, timed_out and cancelled end their task, retried"
        " and released do not, fence_lost belongs to another worker by now.",
        "已结束的尝试:succeeded、failed、timed_out、cancelled 使任务结束;retried、released 不会;"
        "fence_lost 表示任务已归其他 worker。",
    ),
    Described(
        "async_nodes_task_retries_total", COUNTER, WORKER, ("node",),
        "Attempts that failed and will be made again.",
        "失败后将再次进行的尝试数。",
    ),
    Described(
        "async_nodes_lease_losses_total", COUNTER, WORKER, (),
        "Leases that this worker lost: its tasks were given to others.",
        "本 worker 失去租约的次数:其任务已交给其他 worker。",
    ),
    Described(
        "async_nodes_task_rescues_total", COUNTER, WORKER, (),
        "Tasks of dead workers that this worker's sweep made claimable again.",
        "本 worker 清扫时从死亡 worker 处救回的任务数。",
    ),
    Described(
        "async_nodes_messages_sent_again_total", COUNTER, WORKER, (),
        "Messages that had vanished and that this worker's sweep sent again.",
        "本 worker 清扫时补发的丢失消息数。",
    ),
    Described(
        "async_nodes_child_losses_total", COUNTER, WORKER, (),
        "Child processes of the CPU pool that died with a task.",
        "CPU 池中带着任务死亡的子进程数。",
    ),
    Described(
        "async_nodes_schedules_total", COUNTER, WORKER, ("outcome",),
        "What was done with schedules that were due.",
        "对到期计划任务的处理。",
    ),
    Described(
        "async_nodes_tokens_total", COUNTER, WORKER, ("node", "direction"),
        "Tokens that model nodes reported, in and out.",
        "模型节点报告的 token 数,分输入(in)与输出(out)。",
    ),
    Described(
        "async_nodes_tokens_per_second", HISTOGRAM, WORKER, ("node",),
        "Tokens out of an attempt by the seconds its body ran.",
        "一次尝试的输出 token 数除以函数体运行秒数。", TOKEN_RATES,
    ),
    Described(
        "async_nodes_usage_total", COUNTER, WORKER, ("node", "unit"),
        "What bodies reported as used, by the name they gave it.",
        "函数体报告的用量,按其命名。",
    ),
    Described(
        "async_nodes_worker_slots", GAUGE, WORKER, (),
        "Bodies that this worker runs at once at most.",
        "本 worker 最多同时运行的函数体数。",
    ),
    Described(
        "async_nodes_worker_slots_used", GAUGE, WORKER, (),
        "Slots of this worker that are taken.",
        "本 worker 已占用的槽位数。",
    ),
    # -- the web process
    Described(
        "async_nodes_http_request_duration_seconds", HISTOGRAM, WEB, ("route", "method", "status"),
        "Time from a request to the first byte of its answer; a wait that was asked for is part of"
        " it.",
        "从请求到应答首字节的时间,含客户端要求的等待。", HTTP_SECONDS,
    ),
    Described(
        "async_nodes_submits_total", COUNTER, WEB, ("outcome",),
        "Requests to submit a task: accepted, replayed, or the error's code.",
        "提交任务的请求:accepted、replayed 或错误码。",
    ),
    Described(
        "async_nodes_polls_total", COUNTER, WEB, ("outcome",),
        "Requests to read a task: ok (200), not_modified (304), task_not_found (404), task_gone"
        " (410), waited, events, or another error's code.",
        "读取任务的请求:ok(200)、not_modified(304)、task_not_found(404)、task_gone(410)、waited、events"
        " 或其他错误码。",
    ),
    Described(
        "async_nodes_sse_subscribers", GAUGE, WEB, (),
        "Open event streams and long polls of this process.",
        "本进程打开的事件流与长轮询数。",
    ),
    Described(
        "async_nodes_sse_dropped_total", COUNTER, WEB, (),
        "Messages that were dropped because their reader was too slow; it looks into the store.",
        "因读者过慢而丢弃的消息数;读者会改为查询存储。",
    ),
    Described(
        "async_nodes_tls_handshakes_total", COUNTER, WEB, ("outcome",),
        "Connections to the TLS port, by what became of their handshake.",
        "连到 TLS 端口的连接,按握手结果。",
    ),
    # -- the store, asked at each scrape
    Described(
        "async_nodes_store_up", GAUGE, STORE, (),
        "Whether the task store answers.",
        "任务存储是否应答。",
    ),
    Described(
        "async_nodes_queue_depth", GAUGE, STORE, ("queue", "priority"),
        "Messages that wait for a worker, those of kombu's own priorities included.",
        "等待 worker 的消息数,含 kombu 自身优先级键中的消息。",
    ),
    Described(
        "async_nodes_queue_waiting_tasks", GAUGE, STORE, ("queue", "priority", "place"),
        "Tasks that are not in the list: parked at the gate, held by a pause, delayed, backoff.",
        "不在列表中的任务:parked(准入等待)、held(暂停)、delayed(延时)、backoff(退避)。",
    ),
    Described(
        "async_nodes_queue_oldest_age_seconds", GAUGE, STORE, ("queue", "priority"),
        "Age of the oldest unclaimed message, 0 without one.",
        "最早未被领取的消息的年龄,没有则为 0。",
    ),
    Described(
        "async_nodes_workers", GAUGE, STORE, ("kind",),
        "Workers with a live lease.",
        "持有有效租约的 worker 数。",
    ),
    Described(
        "async_nodes_dead_letters", GAUGE, STORE, (),
        "Dead letters of all tenants that are kept.",
        "保留的死信数(所有租户)。",
    ),
    Described(
        "async_nodes_store_memory_bytes", GAUGE, STORE, (),
        "Memory that the store's server uses.",
        "存储服务器使用的内存。",
    ),
    Described(
        "async_nodes_store_memory_limit_bytes", GAUGE, STORE, (),
        "Memory that the store's server may use, 0 for no limit.",
        "存储服务器可用的内存上限,0 表示不限。",
    ),
    Described(
        "async_nodes_store_clients", GAUGE, STORE, (),
        "Connections that the store's server has.",
        "存储服务器的连接数。",
    ),
    # -- calls that may be refused, see core/breaker.py: the circuits
    Described(
        "async_nodes_breaker_state", GAUGE, BREAKERS, ("breaker",),
        "0 closed, 1 half-open, 2 open.",
        "0 关闭,1 半开,2 打开。",
    ),
    Described(
        "async_nodes_breaker_degraded", GAUGE, BREAKERS, ("breaker", "mode"),
        "1 while a node is in the degraded mode that it declares.",
        "节点处于其声明的降级模式时为 1。",
    ),
    Described(
        "async_nodes_breaker_threshold", GAUGE, BREAKERS, ("breaker", "of"),
        "Bounds of a breaker: rate in calls per second, p95 in seconds.",
        "熔断器的界限:rate 为每秒调用数,p95 为秒。",
    ),
    Described(
        "async_nodes_breaker_measured", GAUGE, BREAKERS, ("breaker", "of"),
        "What the last judged window had: rate, p95 in seconds, failure_rate.",
        "最近一个被判定窗口的数值:rate、p95(秒)、failure_rate。",
    ),
    Described(
        "async_nodes_breaker_transitions_total", COUNTER, BREAKERS, ("breaker", "state"),
        "Changes of a breaker's state that this process noticed, by the state it went to.",
        "本进程注意到的熔断器状态变化,按变为的状态。",
    ),
    Described(
        "async_nodes_breaker_refused_total", COUNTER, BREAKERS, ("breaker",),
        "Calls that a breaker did not let through.",
        "熔断器未放行的调用。",
    ),
    Described(
        "async_nodes_breaker_fallbacks_total", COUNTER, BREAKERS, ("node", "kind"),
        "Attempts that were answered by something else, by what it was.",
        "由替代方式应答的尝试,按替代方式。",
    ),
    Described(
        "async_nodes_hedges_total", COUNTER, BREAKERS, ("node", "winner"),
        "Second calls beside one that was slow, by which of the two answered.",
        "慢调用旁的第二次调用,按二者中先应答者。",
    ),
    # -- every process
    Described(
        "async_nodes_build_info", GAUGE, EACH, ("version", "python"),
        "Always 1; the labels tell what runs.",
        "恒为 1;标签说明所运行的版本。",
    ),
    Described(
        "async_nodes_redis_round_trips_total", COUNTER, EACH, (),
        "Calls that this process made to Redis; calls of one turn of the loop travel together.",
        "本进程对 Redis 的调用数;事件循环同一轮中的调用一起发送。",
    ),
    Described(
        "async_nodes_redis_sends_total", COUNTER, EACH, (),
        "Writes to the socket that carried those calls.",
        "承载这些调用的套接字写入次数。",
    ),
    Described(
        "async_nodes_redis_errors_total", COUNTER, EACH, ("kind",),
        "Calls that got no reply: timeout, refused (too much waits), cut (the connection was"
        " lost).",
        "未得到应答的调用:timeout、refused(等待过多)、cut(连接断开)。",
    ),
    Described(
        "async_nodes_redis_connects_total", COUNTER, EACH, (),
        "Connections to Redis that this process made.",
        "本进程建立的 Redis 连接数。",
    ),
    Described(
        "async_nodes_redis_waiting", GAUGE, EACH, (),
        "Replies of Redis that this process awaits now.",
        "本进程正在等待的 Redis 应答数。",
    ),
    Described(
        "async_nodes_group_commit_rows", HISTOGRAM, EACH, (),
        "Rows that one flush of the group commit carried.",
        "一次组提交所含的行数。", ROWS,
    ),
    Described(
        "async_nodes_event_loop_lag_seconds", HISTOGRAM, EACH, (),
        "How late the event loop ran a timer, looked at twice a second.",
        "事件循环执行定时器的延迟,每秒观察两次。", SHORT_SECONDS,
    ),
    Described(
        "async_nodes_event_loop_stalls_total", COUNTER, WORKER, (),
        "How often the event loop stood still for a second or more.",
        "事件循环停顿一秒以上的次数。",
    ),
    Described(
        "async_nodes_gc_collections_total", COUNTER, EACH, ("generation",),
        "Runs of Python's garbage collector.",
        "Python 垃圾回收的次数。",
    ),
    Described(
        "async_nodes_gc_pause_seconds", HISTOGRAM, EACH, ("generation",),
        "How long a run of the garbage collector took.",
        "一次垃圾回收所用的时间。", SHORT_SECONDS,
    ),
    Described(
        "async_nodes_process_cpu_seconds_total", COUNTER, EACH, (),
        "User and system time of the process.",
        "进程的用户态与内核态 CPU 时间。",
    ),
    Described(
        "async_nodes_process_resident_memory_bytes", GAUGE, EACH, (),
        "Resident memory of the process.",
        "进程的常驻内存。",
    ),
    Described(
        "async_nodes_process_open_fds", GAUGE, EACH, (),
        "Open file descriptors of the process.",
        "进程打开的文件描述符数。",
    ),
    Described(
        "async_nodes_process_max_fds", GAUGE, EACH, (),
        "File descriptors that the process may open.",
        "进程可打开的文件描述符上限。",
    ),
    Described(
        "async_nodes_process_start_time_seconds", GAUGE, EACH, (),
        "When the process began, in seconds since 1970.",
        "进程启动时刻(自 1970 年起的秒数)。",
    ),
    Described(
        "async_nodes_metrics_processes", GAUGE, EACH, ("outcome",),
        "Processes whose metrics belong on this page: shown, or silent (they did not answer).",
        "应出现在本页的进程:shown 已显示,silent 未应答。",
    ),
)  # fmt: skip

CATALOGUE: Final[Mapping[str, Described]] = MappingProxyType({row.name: row for row in _ROWS})
"""All metrics by name."""
