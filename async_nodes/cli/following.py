"""Follow one task in the terminal: its text on stdout, all that is said about it on stderr.

So ``async-nodes run llm.chat ... --follow > answer.txt`` holds the answer and nothing else.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from async_nodes.cli import symbols
from async_nodes.cli.http import path_of
from async_nodes.cli.language import tr
from async_nodes.cli.log_lines import log_line
from async_nodes.cli.terminal import Terminal, clip, printable
from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from typing import TextIO

    from async_nodes.cli.http import Answer, Client
    from async_nodes.cli.sse import Message

_BAR = 24
_LONGEST_RESULT = 500
"""Columns of a result that is shown beside what was streamed; `async-nodes result` has it all."""
_LAST_LINES = 2.0
"""Seconds that the lines of a task's log may come later than its end."""


@dataclass(slots=True)
class Follower:
    """Show the events of one task as they come.

    Args:
        out: takes the text; control characters are kept out of it where it is a terminal.
        notes: takes the lines about the task.
        is_live: show what comes; otherwise only how it ended.

    """

    out: TextIO
    notes: TextIO
    is_live: bool = True
    _attempt: int = 0
    _open: bool = False  # the last line of text has no end yet
    _wrote: bool = False
    _turn: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def here(cls) -> Follower:
        """Return one for this process's stdout and stderr."""
        return cls(sys.stdout, sys.stderr)

    def show(self, message: Message) -> dict[str, Any] | None:
        """Show one event and return the record when it was the last."""
        with self._turn:
            return self._show(message)

    def log(self, data: dict[str, Any]) -> None:
        """Show a line of the task's log dimly; from any thread."""
        with self._turn:
            self._note("  " + log_line(data, self._terminal, is_dim=True))

    def _show(self, message: Message) -> dict[str, Any] | None:
        data = json.loads(message.data)
        if message.type == "done":
            return dict(data)
        if not self.is_live:
            return None
        if message.type == "chunk":
            self._chunk(data)
        elif message.type == "progress":
            self._note(progress_line(data, self._terminal))
        elif message.type in {"state", "reset"}:
            self._begin(int(data.get("attempt") or 0))
            self._note(state_line(data, self._terminal))
        return None

    @property
    def _terminal(self) -> Terminal:
        return Terminal.of(self.notes)

    def _safe(self, text: str) -> str:
        return printable(text, keep="\n\t") if self.out.isatty() else text

    def _chunk(self, data: dict[str, Any]) -> None:
        attempt = int(data.get("attempt") or 0)
        if attempt < self._attempt:
            return  # superseded before it arrived
        self._begin(attempt)
        if "text" not in data:
            self._close()
            self.out.write(self._safe(as_text(data.get("data"))) + "\n")
        else:
            text = str(data["text"])
            shown = self._safe(text)
            self.out.write(shown)
            self._open = not shown.endswith("\n")
        self._wrote = True
        self.out.flush()

    def _begin(self, attempt: int) -> None:
        """Note a new attempt, and say so where it makes text on the screen worthless."""
        if self._wrote and attempt > self._attempt:
            self._note(
                tr(
                    f"the text of attempt {self._attempt} is superseded by attempt {attempt}",
                    f"第 {self._attempt} 次的文本已被第 {attempt} 次取代",
                )
            )
            self._wrote = False
        self._attempt = attempt

    def end(self, record: dict[str, Any]) -> int:
        """Show how a task ended and its output; return the exit status.

        What was streamed is on stdout already, so what the body returned besides is a note.
        """
        self._note(state_line(record, self._terminal))
        if record.get("state") != "Succeeded":
            return 1
        output = record.get("output")
        if not self._wrote:
            self.out.write(self._safe(as_text(output)) + "\n")
            self.out.flush()
        elif output is not None and not isinstance(output, str):
            said = clip(json.dumps(output, ensure_ascii=False), _LONGEST_RESULT)
            self._note(f"  {tr('result', '结果')}: {printable(said)}")
        return 0

    def _note(self, text: str) -> None:
        self._close()
        self.notes.write(text + "\n")
        self.notes.flush()

    def _close(self) -> None:
        if self._open:
            self.out.write("\n")
            self.out.flush()
            self._open = False


def accepted(client: Client, answer: Answer, mode: str | None) -> int:
    """Tell of a task that was accepted just now; return the exit status.

    Args:
        client: for the server.
        answer: to the request.
        mode: None to print the id, ``follow`` to show the task live, ``wait`` for its output.

    """
    task_id = str(answer.document["task_id"])
    if mode is None:
        click.echo(task_id)
        return 0
    said = tr("accepted in", "已接受,用时")
    click.echo(f"{task_id}  {said} {answer.seconds * 1000:.0f} ms", err=True)
    try:
        return follow(client, task_id, Follower(sys.stdout, sys.stderr, is_live=mode == "follow"))
    except KeyboardInterrupt:
        click.echo(
            tr(
                f"\nThe task goes on. Stop it with: async-nodes cancel {task_id}",
                f"\n任务仍在运行。停止它:async-nodes cancel {task_id}",
            ),
            err=True,
        )
        raise


def follow(client: Client, task_id: str, follower: Follower) -> int:
    """Show a task to its end; return 0 when it succeeded, else 1."""
    lines = _follow_log(client, task_id, follower) if follower.is_live else None
    for message in client.events(task_id):
        record = follower.show(message)
        if record is not None:
            break
    else:
        # 204: there was nothing left to tell, so the record holds it all.
        record = dict(client.get(path_of(task_id)).document)
    if lines is not None:
        lines.join(_LAST_LINES)
    return follower.end(with_output(client, record))


def with_output(client: Client, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its output, also if that is kept apart from it because of its size."""
    if record.get("output") is not None or not record.get("output_bytes"):
        return record
    output = client.get(f"{path_of(record['task_id'])}/result").document
    return {**record, "output": output}


def _follow_log(client: Client, task_id: str, follower: Follower) -> threading.Thread:
    """Show the lines of a task's log from a thread, whose stream is a connection of its own."""

    def show() -> None:
        try:
            for message in client.follow(f"{path_of(task_id)}/logs"):
                if message.type == "log":
                    follower.log(json.loads(message.data))
        except AsyncNodesError:
            return  # what is wrong with the server is told by whoever follows the task itself

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    return thread


def state_line(data: dict[str, Any], terminal: Terminal) -> str:
    """Return one line about the state that an event or a record tells."""
    state = str(data.get("state"))
    said = [
        terminal.paint(
            f"{symbols.icon(state, unicode=terminal.unicode)} {symbols.word(state)}",
            symbols.style(state),
        )
    ]
    if data.get("reason"):
        said.append(f"({data['reason']})")
    if data.get("attempt"):
        said.append(tr(f"attempt {data['attempt']}", f"第 {data['attempt']} 次"))
    if data.get("next_attempt_at"):
        said.append(
            tr(f"next try at {data['next_attempt_at']}", f"下次尝试 {data['next_attempt_at']}")
        )
    error = data.get("error")
    if isinstance(error, dict):
        said.append(printable(f"{_named(error)} [{error.get('code')}]"))
    return "  ".join(said)


def _named(error: dict[str, Any]) -> str:
    """Return an error's message, after its class where that is the node's own: KeyError: 'rain'."""
    message, kind = str(error.get("message")), str(error.get("type") or "")
    known = kind in {"", message, "TerminalError", "RetryableError"}
    return message if known or error.get("code") != "node_failed" else f"{kind}: {message}"


def progress_line(data: dict[str, Any], terminal: Terminal) -> str:
    """Return a bar and what the node says about its progress."""
    fraction = float(data.get("fraction") or 0.0)
    text = printable(str(data.get("text") or ""))
    return f"  {bar(fraction, _BAR, unicode=terminal.unicode)} {fraction:4.0%} {text}".rstrip()


def bar(fraction: float, columns: int, *, unicode: bool) -> str:
    """Return a bar that is filled to a fraction of its columns."""
    full, empty = ("━", "─") if unicode else ("#", ".")
    filled = round(max(0.0, min(1.0, fraction)) * columns)
    return full * filled + empty * (columns - filled)


def as_text(value: Any) -> str:
    """Return a result as a person reads it: a text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)
