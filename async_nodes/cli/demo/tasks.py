"""What the demo submits, and how each task must end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from async_nodes.cli.language import tr

PROMPT: Final = (
    "Every word you read here left the model a moment ago, passed a worker and the store, and "
    "came to you as a server-sent event. 请求早已返回,任务仍在后台继续运行,结果逐字到达。 "
    "Close this window and the task would still finish: the record is the truth. 🚀"
)
_PROMPT_ZH: Final = (
    "您现在看到的每个字,刚刚离开模型,经过工作进程与存储,以服务器推送事件的形式到达这里。"
    "请求早已返回,任务仍在后台继续运行。 Close this window and the task would still finish: "
    "the record is the truth. 即使关闭窗口,任务也会完成。🚀"
)
_PARAGRAPH: Final = (
    "A task is accepted in milliseconds. A worker takes its lease and runs it once. "
    "模型的回答逐字到达。工作进程若中途退出,租约到期后任务会再次运行。 "
    "Nothing that was accepted is lost. "
)


@dataclass(frozen=True, slots=True)
class DemoTask:
    """One task of the demo.

    Attributes:
        node: the node's name.
        purpose: what it shows, in a few words.
        body: further members of the request, its inputs first of all.
        expected: seconds it should take, for the progress bar.
        text_rows: lines kept for streamed text.
        check: returns what is wrong with a record that succeeded, empty when nothing is.
        outcome: returns what a person wants to know of a record that succeeded.

    """

    node: str
    purpose: str
    body: Mapping[str, Any]
    expected: float
    check: Callable[[Mapping[str, Any]], str]
    outcome: Callable[[Mapping[str, Any]], str]
    text_rows: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def request(self) -> dict[str, Any]:
        """Return the body of the request."""
        return {"node": self.node, "inputs": dict(self.body), **self.extra}


def prompt() -> str:
    """Return what the model is asked; the simulated one repeats it."""
    return tr(PROMPT, _PROMPT_ZH)


def messages() -> list[dict[str, str]]:
    """Return the conversation with the model."""
    return [{"role": "user", "content": prompt()}]


def demo_tasks(model_url: str) -> list[DemoTask]:
    """Return the four tasks.

    Args:
        model_url: root of the simulated model, ``http://host:port``.

    """
    return [
        DemoTask(
            "llm.chat",
            tr("a model, streamed", "模型流式输出"),
            {"base_url": f"{model_url}/v1", "model": "sim:echo", "messages": messages()},
            expected=3.5,
            check=lambda record: "" if record.get("output") == prompt() else _odd(record),
            outcome=lambda record: tr(
                f"{_tokens(record)} tokens streamed", f"流式输出 {_tokens(record)} 个 token"
            ),
            text_rows=4,
        ),
        DemoTask(
            "http.request",
            tr("an HTTP call", "HTTP 调用"),
            {"url": f"{model_url}/v1/models"},
            expected=0.2,
            check=lambda record: "" if _member(record, "status") == 200 else _odd(record),  # noqa: PLR2004
            outcome=lambda record: f"HTTP {_member(record, 'status')}",
        ),
        DemoTask(
            "text.chunk",
            tr("computing, in the CPU pool", "CPU 进程池计算"),
            {"text": _PARAGRAPH * 400, "size": 800, "overlap": 80},
            expected=0.5,
            check=lambda record: "" if int(_member(record, "count") or 0) > 1 else _odd(record),
            outcome=lambda record: tr(
                f"{len(_PARAGRAPH) * 400:,} characters cut into {_member(record, 'count')} pieces",
                f"{len(_PARAGRAPH) * 400:,} 个字符切成 {_member(record, 'count')} 段",
            ),
        ),
        DemoTask(
            "test.fail",
            tr("fails once, is retried", "失败一次后重试"),
            {"kind": "retryable", "times": 1, "message": tr("failing on purpose", "故意失败")},
            expected=1.5,
            check=lambda record: "" if record.get("attempt") == 2 else _odd(record),  # noqa: PLR2004
            outcome=lambda record: tr(
                f"succeeded at attempt {record.get('attempt')}",
                f"第 {record.get('attempt')} 次执行成功",
            ),
            extra={"retry_policy": {"max_attempts": 3, "initial_ms": 400, "jitter": False}},
        ),
    ]


def what_is_wrong(task: DemoTask, record: Mapping[str, Any] | None) -> str:
    """Return why a task did not end as it should, empty when it did."""
    if record is None:
        return tr("did not end in time", "未在时限内结束")
    if record.get("state") == "Succeeded":
        return task.check(record)
    error = record.get("error") or {}
    return f"{record.get('state')}: {error.get('message', '')} [{error.get('code', '')}]"


def _member(record: Mapping[str, Any], name: str) -> Any:
    output = record.get("output")
    return output.get(name) if isinstance(output, Mapping) else None


def _tokens(record: Mapping[str, Any]) -> int:
    return int((record.get("usage") or {}).get("completion_tokens") or 0)


def _odd(record: Mapping[str, Any]) -> str:
    output = f"{record.get('output')!r:.80}"
    return tr(f"unexpected result: {output}", f"结果异常:{output}")
