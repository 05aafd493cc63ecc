"""Make the demo happen: wait, submit side by side, show what comes, add it up."""

from __future__ import annotations

import json
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from async_nodes.cli.demo import plain, report
from async_nodes.cli.demo.blocking import BlockingCalls
from async_nodes.cli.demo.frame import frame, rows
from async_nodes.cli.demo.tasks import DemoTask, demo_tasks, what_is_wrong
from async_nodes.cli.demo.view import TaskView, accepted, advance, failed
from async_nodes.cli.following import with_output
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.cli.console import Console

_FRAMES_PER_SECOND = 15
#: The tasks take 3 to 5 seconds; beyond this something is wrong.
_DEADLINE = 30.0

#: What happened to which task: its number, the kind of event, the data, when.
Happening = tuple[int, str, dict[str, Any], float]


@dataclass(slots=True, kw_only=True)
class Director:
    """Run the tasks of the demo against a server that is ready.

    Args:
        console: where it is shown.
        url, api_key: of the server.
        model_url: of the simulated model.
        clock: seconds since the person asked for the demo.
        ending: set when the processes are being stopped.

    """

    console: Console
    url: str
    api_key: str | None
    model_url: str
    clock: Callable[[], float]
    ending: threading.Event
    tasks: list[DemoTask] = field(init=False)
    views: list[TaskView] = field(init=False)
    _news: queue.SimpleQueue[Happening] = field(init=False, default_factory=queue.SimpleQueue)
    _texts: list[plain.TextLines] = field(init=False)
    _blocking: BlockingCalls = field(init=False)

    def __post_init__(self) -> None:
        """Prepare one view per task."""
        self.tasks = demo_tasks(self.model_url)
        self.views = [
            TaskView(
                node=task.node,
                purpose=task.purpose,
                expected=task.expected,
                text_rows=task.text_rows,
            )
            for task in self.tasks
        ]
        self._texts = [plain.TextLines() for _ in self.tasks]
        self._blocking = BlockingCalls(self.model_url)

    def run(self) -> bool:
        """Submit, show, add up; return whether every task ended as it should."""
        deadline = self.clock() + _DEADLINE
        self._blocking.start()
        self._submit_all()
        while not all(view.is_over for view in self.views):
            if self.ending.is_set():
                return False
            if self.clock() > deadline:
                break
            self._take_news()
            self._draw()
        self._blocking.wait(max(0.0, deadline - self.clock()))
        self._draw()
        self.console.keep()
        return self._add_up()

    # -- submitting ----------------------------------------------------------------------------

    def _submit_all(self) -> None:
        with Client(self.url, self.api_key) as client:
            client.get("/healthz")  # so that no answer's time holds the opening of a connection
            for number, task in enumerate(self.tasks):
                try:
                    answer = client.post("/v1/tasks", task.request)
                except AsyncNodesError as error:
                    at = self.clock()
                    self._see(number, failed(self.views[number], error.detail, at=at), at=at)
                    continue
                milliseconds = answer.seconds * 1000
                task_id = str(answer.document["task_id"])
                at = self.clock()
                view = accepted(self.views[number], task_id, answered_ms=milliseconds, at=at)
                self._see(number, view, at=at)
                threading.Thread(target=self._follow, args=(number, task_id), daemon=True).start()

    def _follow(self, number: int, task_id: str) -> None:
        """Put a task's events into the queue, on a thread of its own."""
        try:
            with Client(self.url, self.api_key) as client:
                for message in client.events(task_id):
                    event = json.loads(message.data)
                    if message.type == "done":
                        event = with_output(client, event)
                    self._news.put((number, message.type, event, self.clock()))
        except AsyncNodesError as error:
            self._news.put((number, "trouble", {"detail": error.detail}, self.clock()))

    # -- showing -------------------------------------------------------------------------------

    def _take_news(self) -> None:
        """Take what happened until the next frame is due."""
        due = time.monotonic() + 1 / _FRAMES_PER_SECOND
        while (left := due - time.monotonic()) > 0:
            try:
                number, kind, data, at = self._news.get(timeout=left)
            except queue.Empty:
                return
            view = self.views[number]
            if kind == "trouble":
                view = failed(view, str(data["detail"]), at=at)
            else:
                view = advance(view, kind, data, at=at)
            if view.record is not None and view.state == "Succeeded":
                view = replace(view, note=self.tasks[number].outcome(view.record))
            self._see(number, view, at=at)

    def _see(self, number: int, view: TaskView, *, at: float) -> None:
        before, self.views[number] = self.views[number], view
        if self._is_drawn:
            return
        terminal = self.console.terminal
        lines = plain.changes(before, view, at=at, terminal=terminal)
        texts = self._texts[number].take(view.text, is_over=view.is_over)
        said = [plain.line(view.node, f"> {text}", at=at, terminal=terminal) for text in texts]
        if said or lines:
            self.console.lines([*said, *lines] if view.is_over else [*lines, *said])

    def _draw(self) -> None:
        if self._is_drawn:
            terminal = self.console.terminal
            told = self._blocking.told()
            self.console.draw(frame(self.views, blocking=told, now=self.clock(), terminal=terminal))

    @property
    def _is_drawn(self) -> bool:
        """Tell whether the terminal has room for a frame that is drawn over itself."""
        terminal = self.console.terminal
        return terminal.live and terminal.rows >= rows(self.views)

    # -- adding up -----------------------------------------------------------------------------

    def _add_up(self) -> bool:
        wrong = [
            (view.node, view.trouble or what_is_wrong(task, view.record))
            for task, view in zip(self.tasks, self.views, strict=True)
        ]
        wrong = [(node, why) for node, why in wrong if why]
        table = [
            report.row_of(
                view.record,
                answered_ms=view.answered_ms or 0.0,
                blocking_ms=self._blocking.milliseconds(view.node),
                outcome=view.note,
            )
            for view in self.views
            if view.record is not None
        ]
        terminal = self.console.terminal
        lines = ["", *report.table(table, terminal)] if table else []
        if not wrong:
            lines += ["", terminal.paint(report.verdict(table), "bold green")]
        for node, why in wrong:
            lines.append(terminal.paint(f"{node}: {why}", "bold red"))
        self.console.lines(lines)
        return not wrong

    @property
    def first_token_at(self) -> float | None:
        """Return when the first streamed text came, on the demo's clock."""
        times = [view.first_text_at for view in self.views if view.first_text_at is not None]
        return min(times, default=None)


def first_token(seconds: float, set_up: float) -> str:
    """Return the sentence about the time to the first token.

    Args:
        seconds: from the start of the program.
        set_up: what was done before it, by ``./run``.

    """
    before = ""
    if set_up >= 1:
        before = tr(f", after {set_up:.1f} s of set-up", f",此前安装用时 {set_up:.1f} 秒")
    return tr(
        f"First token {seconds:.1f} s after the start{before}.",
        f"启动后 {seconds:.1f} 秒得到首个 token{before}。",
    )
