"""Step 5, expose: the documentation in Chinese, by the English text that stands in the document.

A test tells which texts of the document and of its pages have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TEXTS: Final[Mapping[str, str]] = {
    "Run the slow nodes of an LLM workflow outside the request that asked.": (
        "在发起请求之外运行 LLM 工作流中的慢节点。"
    ),
    (
        "Unknown members of answers are to be ignored; unknown members of requests are "
        "refused. Every error is a problem document (RFC 9457)."
    ): ("应答中未知的成员应忽略;请求中未知的成员会被拒绝。每个错误都是一份问题文档(RFC 9457)。"),
    "Tasks": "任务",
    "Events of many tasks": "多任务事件",
    "The service": "服务本身",
    "Submit a task": "提交任务",
    "Ended while the client waited": "等待期间任务已结束",
    "Accepted; the task is stored": "已接受,任务已存储",
    ("Read a task; with a wait, as soon as it has ended or, with If-None-Match, changed"): (
        "读取任务;带等待时,在任务结束(或带 If-None-Match 时有变化)后立即应答"
    ),
    "The record, or its state object": "任务记录,或其状态对象",
    "One event: its name, its id (where to resume) and its data, a JSON text.": (
        "一个事件:名称、编号(续传位置)和数据(JSON 文本)。"
    ),
    "Not changed": "没有变化",
    "Stream a task's events (server-sent events)": "以 SSE 推送任务的事件",
    "The events from the client's position on": "客户端位置之后的事件",
    "The client has seen everything": "客户端已收到全部事件",
    "Cancel a task": "取消任务",
    "Cancelled": "已取消",
    "The worker was asked to stop": "已要求工作进程停止",
    "Stream the changes of state of many tasks (server-sent events)": (
        "以 SSE 推送多个任务的状态变化"
    ),
    "The changes from the client's place on": "客户端位置之后的变化",
    "A node's name; repeated: any of them.": "节点名;可重复,匹配任意一个。",
    "A tag; repeated: all of them.": "标签;可重复,须全部匹配。",
    "A state; repeated: any of them.": "状态;可重复,匹配任意一个。",
    "The same, in the address.": "同上,写在地址中。",
    "Show where to go from here": "显示各入口",
    "The addresses; for a browser, a page": "各地址;对浏览器则为页面",
    "Language of the page; else that of Accept-Language.": "页面语言;省略时按 Accept-Language。",
    "Show what can be asked, as a page for people": "以页面列出全部接口",
    "The page": "页面",
    "An operation's operationId.": "接口的 operationId。",
    "Explain one operation, as a page for people": "以页面说明一个接口",
    "As asked": "成功",
    "List the nodes": "列出节点",
    "Show one node": "查看一个节点",
    "Tell that the process serves": "确认进程在服务",
    "Tell whether tasks would be accepted and run": "说明任务能否被接受并执行",
    "Ready": "就绪",
    "Not ready; says what is missing": "未就绪,并说明缺少什么",
    "Show metrics in Prometheus' text format": "以 Prometheus 文本格式给出指标",
    "Show this document": "给出本接口文档",
    "Show the few short calls that Dify can import as custom tools": (
        "给出可导入 Dify 自定义工具的几个短调用"
    ),
    "Where Dify reaches the service; else the address of this request.": (
        "Dify 访问本服务的地址;缺省为本次请求的地址。"
    ),
    "List the error codes": "列出错误码",
    "Explain an error code": "解释一个错误码",
    "The node's name.": "节点名。",
    "See the node's schema at /v1/nodes.": "见 /v1/nodes 中该节点的 schema。",
    "0 is the most urgent.": "0 最紧急。",
    "Running time of one attempt; the node's default when left out.": (
        "单次执行的运行时间上限;省略时用节点的默认值。"
    ),
    "When the task fails if it has not ended, waiting included; with zone.": (
        "任务到此时仍未结束即失败,含排队时间;须带时区。"
    ),
    "How failures are tried again; members left out are the node's own.": (
        "失败如何重试;省略的成员用节点自己的设置。"
    ),
    "Seconds before the first attempt.": "首次执行前等待的秒数。",
    "Seconds that the record is kept after the task has ended.": "任务结束后记录保留的秒数。",
    "Yours: stored and shown, at most 16 KiB.": "归你使用:原样存储和展示,至多 16 KiB。",
    "Rises with every change of the record; also its ETag.": "记录每次变化时递增,也是其 ETag。",
    "Why the task is in this state, where the state alone does not tell.": (
        "状态本身不足以说明时,处于该状态的原因。"
    ),
    "Starts so far.": "至今开始的次数。",
    "Starts that were lost with their process.": "随进程丢失的次数。",
    "Until when an ended task is kept.": "已结束的任务保留到何时。",
    "As sent; secrets as [redacted].": "与提交时相同;机密显示为 [redacted]。",
    "What the node counted, such as tokens.": "节点统计的用量,例如 token 数。",
    "The node's result; null until the task has succeeded.": "节点的结果;任务成功前为 null。",
    "A task. Members may be added in later versions.": "任务。以后的版本可能增加成员。",
    "The task as the specification's state object.": "以规范的状态对象表示的任务。",
    "Whether the work has stopped.": "执行是否已停止。",
    "Of the record when it was queued, started and ended.": "排队、开始、结束时记录的版本。",
    "A chunk that is not text.": "不是文本的数据块。",
    "Clients drop chunks of older attempts.": "客户端应丢弃较早执行的数据块。",
    "Counts in the attempt.": "在该次执行内计数。",
    "A task has entered a state, or has another reason for it.": "任务进入了某状态,或其原因有变。",
    "What happened after this place is not kept: read the tasks again.": (
        "此位置之后的变化已不再保留:请重新读取任务。"
    ),
    "JSON schema of the inputs.": "输入的 JSON schema。",
    "The process that answered.": "应答的进程。",
    "Which of several it is, from 0; null: the only.": "多个进程中的序号,从 0 起;null:仅此一个。",
    "RFC 9457; further members depend on the code.": "RFC 9457;其余成员因错误码而异。",
    "In the language of Accept-Language.": "按 Accept-Language 的语言。",
    "Every fault of the request, each with the JSON pointer of its place.": (
        "请求的全部错误,各带其位置的 JSON 指针。"
    ),
    "What a submit answered.": "提交时返回的编号。",
    "A node's name.": "节点名。",
    "An error code.": "错误码。",
    (
        "Your name for this request: sent again, it makes no second task. Kept as long "
        "as its task. Bare or as a quoted string."
    ): ("你为该请求取的名字:重发不会产生第二个任务。与任务同期保留。可直接写,也可加引号。"),
    "wait=N holds the answer up to N seconds, at most 30.": "wait=N 最多等待 N 秒再应答,上限 30。",
    "Seconds, as in Prefer; more than 30 count as 30.": "秒数,同 Prefer;超过 30 按 30 计。",
    "The ETag of the record you have.": "你已有记录的 ETag。",
    "text/event-stream gives the events instead.": "text/event-stream 则改为返回事件流。",
    "node_state gives {id, status, timestamp}.": "node_state 返回 {id, status, timestamp}。",
    "Resume after the event of this id.": "从该编号的事件之后继续。",
    "Your trace (W3C); made when absent.": "你的追踪上下文(W3C);没有时自动生成。",
    ("Echoed; made when absent or not 1 to 64 letters, digits, dots, dashes, underscores."): (
        "原样返回;没有或不是 1 至 64 个字母、数字、点、连字符、下划线时自动生成。"
    ),
    "The task's address": "任务的地址",
    "Seconds after which to look, or to try, again": "多少秒后再查看或重试",
    "The record's version in quotes": "带引号的记录版本",
    "How long the answer could be held, as wait=N": "应答最多等待多久,形如 wait=N",
    "true: an earlier request had made the task": "true:任务由先前的请求创建",
    "Breakers": "熔断器",
    "List the breakers": "列出熔断器",
    "Show a breaker": "查看一个熔断器",
    "Force a breaker open or closed, or let it decide again": "强制打开或关闭熔断器,或恢复自动判断",
    "The breaker as it is now": "熔断器的当前状态",
    "node:<name>, key:<key> or endpoint:<host>:<port>.": (
        "node:<名称>、key:<键> 或 endpoint:<主机>:<端口>。"
    ),
    "Nodes that declare it.": "声明它的节点。",
    "auto: it decides by itself; otherwise what it is forced to be.": (
        "auto:自动判断;否则为强制的状态。"
    ),
    "When an open one may be half-open.": "打开的熔断器何时可转为半开。",
    "The mode that its node is in.": "节点所处的降级模式。",
    "The last results in half-open.": "半开时最近的试探结果。",
    "Windows in a row over both thresholds of load and latency.": (
        "负载与延迟连续超过阈值的窗口数。"
    ),
    "The smoothed utilisation s.": "平滑后的利用率 s。",
    "Calls per second.": "每秒调用数。",
    "open refuses all calls, closed lets all through.": "open 拒绝全部调用,closed 全部放行。",
    "Queues and workers": "队列与工作进程",
    "Show the queues": "查看全部队列",
    "A queue, or io or cpu for all three of a kind.": "队列名;io 或 cpu 表示该类的全部三个队列。",
    "Show one queue, or the three of a kind": "查看一个队列,或一类的三个队列",
    "Show where a task waits, and why it has not started": "说明任务在哪里等待、为何尚未开始",
    "List the live workers": "列出存活的工作进程",
    "A live worker's id.": "存活的工作进程的编号。",
    "Show a worker and what it runs": "查看一个工作进程及其正在运行的任务",
    "Hold the tasks of a queue that wait": "暂停队列中等待的任务",
    "Hold the tasks of a node that wait": "暂停节点中等待的任务",
    "End a queue's pause or drain": "解除队列的暂停或排空",
    "End a node's pause or drain": "解除节点的暂停或排空",
    "Refuse new tasks of a queue and work off those that wait": (
        "队列不再接受新任务,并处理完等待的任务"
    ),
    "Refuse new tasks of a node and work off those that wait": (
        "节点不再接受新任务,并处理完等待的任务"
    ),
    "Cancel a queue's tasks that wait": "取消队列中等待的任务",
    "Cancel a node's tasks that wait": "取消节点中等待的任务",
    "What is in force now, and how many tasks it touched": "当前的状态,以及涉及的任务数",
    "What whoever paused or drained it said.": "暂停或排空时填写的原因。",
    "Messages in the list.": "列表中的消息数。",
    "Tasks whose message is out, those on their way to a body included.": (
        "消息已发出的任务数,含即将开始执行的。"
    ),
    "Tasks that wait to be let in.": "等待入队的任务数。",
    "Tasks that the pause holds.": "被暂停的任务数。",
    "Tasks whose first attempt is yet to be due.": "尚未到首次执行时间的任务数。",
    "Tasks whose next attempt is yet to be due.": "尚未到重试时间的任务数。",
    "Since the oldest of the unclaimed was dispatched.": "最早入队且未被领取的任务已等待的秒数。",
    "Tasks begun per second over the last minute, by all workers.": (
        "最近一分钟所有工作进程每秒开始的任务数。"
    ),
    "Live workers that take from it.": "处理该队列的存活工作进程数。",
    "Tasks that they run at once; null when one does not tell.": (
        "它们可同时运行的任务数;有进程未报告时为 null。"
    ),
    "Tasks that they run now, of any queue.": "它们正在运行的任务数,不限队列。",
    "false: there may be more delayed and backing off than told.": (
        "false:实际延迟和待重试的任务可能更多。"
    ),
    "Where it waits: in the queue, to be let in, or for a pause to end.": (
        "在何处等待:队列中、等待入队,或等待暂停解除。"
    ),
    "Its place in that line.": "在该队伍中的位置。",
    "Of that line.": "该队伍的长度。",
    "Until it starts, as far as that can be told.": "距开始的秒数(可估计时)。",
    "fast or stock: how its messages come.": "fast 或 stock:取消息的方式。",
    "Left until it counts as dead.": "距被视为失效的剩余秒数。",
    "Tasks that it runs at once.": "可同时运行的任务数。",
    "Slots that are free.": "空闲槽位数。",
    "Tasks begun per second over the last minute, by queue that it takes from.": (
        "最近一分钟每秒开始的任务数,按其处理的队列。"
    ),
    "Nodes that it knows.": "它所知的节点数。",
    "How often its event loop stood still.": "其事件循环停顿的次数。",
    "Some of what it runs, the longest first.": "正在运行的部分任务,运行最久的在前。",
    "Shown to whoever asks why tasks wait or are refused.": "供查询任务为何等待或被拒的人查看。",
    "Tasks held (pause), put back (resume, drain) or cancelled.": (
        "暂停、放回(resume、drain)或取消的任务数。"
    ),
    "true: the time was up. Ask again; resume goes on by itself.": (
        "true:时间已用完。请再次请求;resume 会自行继续。"
    ),
    "unknown: the store does not answer.": "unknown:存储无响应。",
    "Fields": "字段",
    "Field": "字段",
    "Type": "类型",
    "Meaning": "含义",
    "required": "必填",
    "Event": "事件",
    "Example": "示例",
    "All operations": "全部接口",
    "Operations": "接口",
    "Documentation": "文档",
    "Needs no key.": "无需密钥。",
    "Needs the key, where one is set:": "设置了密钥时需要:",
    "Call": "调用",
    "Parameters": "参数",
    "Body": "请求体",
    "Answers": "应答",
    "Errors": "错误",
    "Status": "状态码",
    "Code": "错误码",
    "may be sent again": "可以重发",
    "Neighbours": "前后接口",
    "Try it": "试一试",
    "Skip to the text": "跳到正文",
    "Pages": "页面",
    "Language": "语言",
    "path": "路径",
    "query": "查询参数",
    "header": "请求头",
    "OpenAPI": "OpenAPI",
    "Nodes": "节点",
    "Problems": "错误码",
    "Health": "健康状况",
    "Metrics": "指标",
    "Every operation with its fields, examples and errors": "每个接口的字段、示例和错误",
    "The same for programs, OpenAPI 3.1": "供程序使用的同一内容,OpenAPI 3.1",
    "What can be run, with the schema of its inputs": "可运行的节点及其输入的 schema",
    "Every error code, and what to do about it": "全部错误码及处理办法",
    "Whether tasks would be accepted and run": "任务能否被接受并执行",
    "For Prometheus": "供 Prometheus 抓取",
    "Schedules": "定时计划",
    "Create a schedule": "创建定时计划",
    "Created": "已创建",
    "List the schedules by name": "按名称列出定时计划",
    "A schedule's name.": "定时计划的名称。",
    "Show a schedule with its ticks to come": "查看定时计划及其后续时刻",
    "As it is now": "当前内容",
    "Give a schedule another definition": "替换定时计划的定义",
    "The ETag that you have read: with another nothing is changed.": (
        "你读到的 ETag;若已不同则不作任何修改。"
    ),
    "Delete a schedule; tasks that it has made stay": "删除定时计划,其产生的任务保留",
    "Stop a schedule until it is resumed": "暂停定时计划,直到恢复",
    "Let a paused schedule go on with its next tick": "恢复已暂停的定时计划,从下一时刻继续",
    "Send a schedule's task now, paused or not": "立即提交定时计划的任务,无论是否暂停",
    "Yours; its address too.": "由你命名,也是其地址。",
    (
        "Five fields (minute, hour, day of month, month, day of week), names of months "
        "and days, or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, "
        "@hourly. Either this or every."
    ): (
        "五个字段(分、时、日、月、星期),可用月份和星期的英文缩写,或 @yearly、@annually、"
        "@monthly、@weekly、@daily、@midnight、@hourly 之一。与 every 二选一。"
    ),
    "Seconds from one tick to the next.": "相邻两个时刻之间的秒数。",
    "Whose wall clocks cron goes by, an IANA name; CELERY_TIMEZONE when left out.": (
        "cron 所依据的时区(IANA 名称);省略时为 CELERY_TIMEZONE。"
    ),
    "From when on it ticks; with zone.": "从何时开始;须带时区。",
    "When it has ended; with zone.": "到何时结束;须带时区。",
    "Seconds by which a tick is fired late at most, to spread many.": (
        "触发最多延后的秒数,用于错开大量任务。"
    ),
    "What each tick submits; without a deadline.": "每个时刻提交的任务;不可带 deadline。",
    (
        "What becomes of ticks that nobody was there to fire: nothing, one task for all, "
        "or a task for each of the newest 100."
    ): ("无人触发而错过的时刻如何处理:忽略、合并为一个任务,或为最近 100 个各提交一个任务。"),
    "skip: no task for a tick while the last tick's task has not ended.": (
        "skip:上一时刻的任务未结束时,本时刻不提交任务。"
    ),
    "Waits until it is resumed.": "等待恢复。",
    "As it was given; secret inputs as [redacted].": "与给出时相同;机密输入显示为 [redacted]。",
    "Why it was paused by the service: its task cannot be sent any more.": (
        "服务自动暂停它的原因:其任务已无法提交。"
    ),
    "When it fires next, jitter included.": "下次触发时间,含延后。",
    "The last tick that was fired.": "最近一次触发的时刻。",
    (
        "Ticks that gave a task; that nobody fired in time; that came while the task "
        "before had not ended."
    ): ("已产生任务的时刻数;未能及时触发的时刻数;因前一任务未结束而跳过的时刻数。"),
    "Of the definition; its ETag.": "定义的版本,也是其 ETag。",
    "The next times at which it fires.": "接下来的触发时间。",
    "Files": "文件",
    "Upload a file: the body itself, or the one file of a form": (
        "上传文件:请求体本身,或表单中的唯一文件"
    ),
    "The file's address": "文件地址",
    "The file's name; before that of the head.": "文件名;优先于请求头中的名称。",
    "Seconds to keep it; longer while tasks need it.": "保留秒数;任务需要时会延长。",
    "The file's name, as filename or filename*.": "文件名,写作 filename 或 filename*。",
    "sha-256=:…: or sha-512=:…: of the body; checked.": (
        "请求体的 sha-256=:…: 或 sha-512=:…:;会校验。"
    ),
    "List the files, the youngest first": "列出文件,新文件在前",
    "A page of files": "一页文件",
    "Kept": "已保存",
    "What an upload answered.": "上传时返回的 ID。",
    "Show what a file is": "查看文件信息",
    "The description": "文件信息",
    "Delete a file; from then on it is gone": "删除文件,此后不再存在",
    "Download a file's content, whole or in part": "下载文件内容,全部或部分",
    "The content": "文件内容",
    "The content, under its own media type.": "文件内容,以其自身的媒体类型返回。",
    "The content's SHA-256 in quotes": "带引号的内容 SHA-256",
    "attachment, with the file's name": "attachment,带文件名",
    "bytes=0-99: one part of the content.": "bytes=0-99:内容的一段。",
    "As its sender says.": "由上传者声明。",
    "Later once a task takes the file.": "有任务使用该文件后会推迟。",
    "Seconds, as its sender wanted.": "秒,由上传者指定。",
    "The cursor of the next page.": "下一页的游标。",
    "What all files take, arriving ones included.": "全部文件占用的字节数,含正在上传的。",
    "How many at most.": "最多多少个。",
    "The file; without a body, an empty one.": "文件;没有请求体即为空文件。",
    "The next of the page before.": "上一页的 next。",
    "The part asked for": "请求的部分",
    "Which bytes, of how many, as bytes 0-99/1000": "哪些字节、共多少,如 bytes 0-99/1000",
    "bytes: the header Range is heeded": "bytes:支持 Range 请求头",
    "The ETag of the parts you have; others give the whole.": "已有部分的 ETag;不一致则返回全部。",
    "Deleted": "已删除",
    "A page": "一页",
    (
        "A request looks at 5000 tasks at most: a page may be short, or empty, and have "
        "a next all the same."
    ): ("一次请求至多查看 5000 个任务:一页可能不满甚至为空,但仍有 next。"),
    "A task in brief.": "任务摘要。",
    "Accepted: a new task does the same again": "已接受:由新任务重做",
    "Accepted; the new task is stored": "已接受,新任务已存储",
    "An earlier request with the same key had made the task.": (
        "该任务由先前使用相同键的请求创建。"
    ),
    "As the header Idempotency-Key, for this task alone.": (
        "同请求头 Idempotency-Key,仅用于此任务。"
    ),
    (
        "At most 1000 tasks and 16 MiB. With an Idempotency-Key the item at index i has "
        "the key `<key>/<i>`, unless it brings one of its own."
    ): (
        "至多 1000 个任务、16 MiB。带 Idempotency-Key 时,序号为 i 的任务以 `<key>/<i>` 为"
        "键,除非自带键。"
    ),
    "At most 200 ids with commas between them, and no filter beside them.": (
        "至多 200 个编号,以逗号分隔;不可同时使用筛选条件。"
    ),
    "By name, such as total_tokens.": "按名称统计,例如 total_tokens。",
    "Bytes of the output.": "输出的字节。",
    "Dead letters": "死信",
    "Dead letters that are there now.": "当前的死信数。",
    "Delete a task that has ended; from then on it is gone": "删除已结束的任务,此后不再存在",
    "Drop a dead letter; its task's record stays": "丢弃死信,其任务记录保留",
    "Dropped": "已丢弃",
    "Ended tasks": "已结束的任务",
    "First day (UTC); 29 before the last when absent.": "起始日(UTC);省略时为截止日前 29 天。",
    "How many.": "数量。",
    "Last day (UTC); today when absent.": "截止日(UTC);省略时为今天。",
    "List tasks, newest first: those that pass the filters, or those named by ids": (
        "列出任务,新任务在前:符合筛选条件的,或 ids 指定的"
    ),
    "List the tasks that nobody could do, newest first": "列出始终无法完成的任务,新的在前",
    "Logs": "日志",
    "Made earlier than this.": "创建时间早于此。",
    "Made later than this.": "创建时间晚于此。",
    "Many tasks": "批量任务",
    "Needed where ASYNC_NODES_API_KEY is set or ASYNC_NODES_API_KEYS is true. Reading needs the "
    "scope read, tasks, files and schedules run, queues, nodes and dead letters admin, /metrics "
    "metrics.": "设置了 ASYNC_NODES_API_KEY 或 ASYNC_NODES_API_KEYS=true 时需要。"
    "读取需要 read 权限;任务、文件与定时任务需要 run;"
    "队列、节点与死信的变更需要 admin;/metrics 需要 metrics。",
    "Of the ids asked for, those to ask for again.": "所请求的编号中,需再次请求的。",
    "Of the ids asked for, those without a task.": "所请求的编号中,没有对应任务的。",
    "Read a task's output alone, whole or in part, however large it is": (
        "只读取任务的输出,全部或部分,大小不限"
    ),
    "Read what a task has logged, or follow it (server-sent events)": (
        "读取任务的日志,或以 SSE 持续接收"
    ),
    "Read what nodes have used, by day": "按日读取各节点的用量",
    "Run an ended task again: a new task with the same inputs, or with changes": (
        "重新运行已结束的任务:以相同或修改后的输入创建新任务"
    ),
    "Seconds after which the item may be sent again.": "多少秒后可重发该项。",
    "Send a dead letter again, with changes if they are wanted; safe to repeat": (
        "重新提交死信,可附带修改;重复请求无副作用"
    ),
    "Send dead letters again, the oldest first": "批量重新提交死信,旧的在前",
    "Show a dead letter with the task's record": "查看死信及其任务记录",
    "Submit many tasks in one request, each accepted or refused by itself": (
        "一次请求提交多个任务,逐个接受或拒绝"
    ),
    "The cursor of the next page, or null.": "下一页的游标,或 null。",
    "The letter": "死信",
    "The lines after the client's position": "客户端位置之后的日志行",
    "The output": "输出",
    "The output, as the node gave it.": "节点给出的输出,原样返回。",
    "The totals": "合计",
    "This level and above.": "该级别及以上。",
    "Those of this node only.": "仅限该节点的死信。",
    "Those on which something was counted.": "有用量记录的日期。",
    "Until when the record is kept.": "记录保留到何时。",
    "Usage": "用量",
    "What became of each, in their order": "逐项结果,按提交顺序",
    "What became of them": "处理结果",
    (
        "What is to be different; a deadline is not carried over. A secret input that "
        "reads [redacted] stays what it was."
    ): ("要修改的内容;deadline 不会沿用。显示为 [redacted] 的机密输入保持原值。"),
    "What is to be different; nothing for the same again.": "要修改的内容;不写则原样重做。",
    "What the page before has answered as next.": "上一页返回的 next。",
    "Whether the task has ended.": "任务是否已结束。",
    (
        "brief leaves out inputs, output, attempts, metadata; full shows whole records, "
        "in pages of about 8 MiB at most."
    ): ("brief 省略 inputs、output、attempts、metadata;full 返回完整记录,每页至多约 8 MiB。"),
    "length ≥": "长度 ≥",
    "length ≤": "长度 ≤",
    "items ≥": "项数 ≥",
    "items ≤": "项数 ≤",
    "the same again": "原样重做",
    "more time": "延长时间",
    "with everything": "包含全部成员",
    "bytes=0-99: one part of the output.": "bytes=0-99:输出的一段。",
}
