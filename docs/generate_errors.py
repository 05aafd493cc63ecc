"""Write docs/errors.md from the catalogue: ``.venv/bin/python docs/generate_errors.py``.

Outside the way of a task. Reads `core/errors.py` and nothing else; a test compares the page with
what this makes of the catalogue.
"""  # noqa: INP001 - a script beside the pages, no package

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from async_nodes.core.errors import CATALOGUE, ErrorKind

PAGE = Path(__file__).with_name("errors.md")

INTRODUCTION = """\
    # Errors · 错误码

    <!-- Made by docs/generate_errors.py from async_nodes/core/errors.py: edit the catalogue. -->

    Every error has one `code`, the same in an HTTP answer, in a task's record and on the command
    line. A client decides by `code`; `title`, `detail` and `hint` are for people and may change.

    * **HTTP**: a problem document ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) with
      `Content-Type: application/problem+json`. `Accept-Language: zh` gives title and hint in
      Chinese. `pointer` is the JSON pointer of the offending place; `errors` lists every fault of
      a request, so that it can be mended in one go.
    * **Record**: `error` of a task that has failed, and of each of its `attempts`, is
      `{code, type, message, retryable}`; `type` is the class of the exception.
    * **Command line**: `error: <detail>`, the hint, and the code in brackets; exit status 1.
    * A running server explains a code at `/problems/<code>` and lists all at `/problems`.

    *Retryable* tells whether the same request may succeed later without a change. Inside a task it
    decides whether the retry policy tries an error again, unless the node raised `TerminalError`
    (never) or `RetryableError` (always); a time-out ends the task in any case. *Status* is that of
    an HTTP answer; a code that only ever stands in a record keeps the one that fits it.

    每个错误只有一个 `code`,在 HTTP 应答、任务记录和命令行中相同。程序应按 `code` 判断;
    `title`、`detail`、`hint` 供人阅读,可能改变。中文说明见下方第二张表。
"""


def document() -> str:
    """Return the page."""
    kinds = list(CATALOGUE.values())
    parts = [
        textwrap.dedent(INTRODUCTION),
        "## Codes\n",
        table(
            ("code", "status", "retryable", "what happened", "what to do"),
            ((f"`{k.code}`", k.status, answer(k), k.title, k.hint) for k in kinds),
        ),
        "\n## 错误码说明\n",
        table(
            ("code", "含义", "处理方法"),
            ((f"`{k.code}`", k.title_zh, k.hint_zh) for k in kinds),
        ),
    ]
    return "\n".join(parts)


def answer(kind: ErrorKind) -> str:
    """Return whether an error is worth another try, as a word."""
    return "yes" if kind.retryable else "no"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; in a cell a bar would end it and ``<key>`` would be a tag."""
    lines = [list(heads)]
    lines.append(["---"] * len(lines[0]))
    lines += [[str(c).replace("|", "\\|").replace("<", "&lt;") for c in row] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
