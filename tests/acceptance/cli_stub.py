"""A server that answers like ours, from memory: what the command line is tested against alone.

Each task's life is a script of (seconds, event, data); the record is what they add up to.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = list[tuple[float, str, dict[str, Any]]]


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def problem(code: str, detail: str) -> dict[str, Any]:
    return {"type": f"/problems/{code}", "title": code, "detail": detail, "code": code}


RUNNING = (0.03, "state", {"state": "Running", "attempt": 1})
AGAIN = (0.3, "state", {"state": "Running", "attempt": 2})
BACKOFF = (0.05, "state", {"state": "Pending", "reason": "backoff", "attempt": 1})
HALF = (0.05, "progress", {"fraction": 0.5, "text": "", "attempt": 1})
ERROR = {"code": "node_failed", "message": "no", "type": "Error", "retryable": False}
SCRIPTS: dict[str, Script] = {
    "http.request": [RUNNING, (0.05, "done", {"output": {"status": 200}})],
    "text.chunk": [RUNNING, HALF, (0.05, "done", {"output": {"count": 7}})],
    "test.fail": [RUNNING, BACKOFF, AGAIN, (0.05, "done", {"output": {}, "attempt": 2})],
    "terminal": [RUNNING, (0.0, "done", {"state": "Failed", "error": ERROR})],
    "forever": [RUNNING, (60.0, "done", {})],
}


def script_for(node: str, inputs: dict[str, Any]) -> Script:
    """Return the events of a task; what the real nodes would do, without doing it."""
    if node == "llm.chat":
        text = inputs["messages"][0]["content"]
        pieces = [text[n : n + 5] for n in range(0, len(text), 5)]
        chunks = [(0.01, "chunk", {"text": piece, "attempt": 1}) for piece in pieces]
        done = {"output": text, "usage": {"completion_tokens": 9}}
        return [RUNNING, *chunks, (0.0, "done", done)]
    return SCRIPTS.get(node, [RUNNING, (0.0, "done", {"output": inputs})])


class Task:
    """A task whose life is a script."""

    def __init__(
        self, number: int, node: str, inputs: dict[str, Any], *, delay: float = 0.0
    ) -> None:
        self.id = f"t_{number:026d}"
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.changed = threading.Condition()
        self.record: dict[str, Any] = {
            "task_id": self.id,
            "node": node,
            "state": "Pending",
            "reason": "",
            "attempt": 0,
            "created_at": stamp(time.time()),
            "attempts": [],
            "output": None,
            "error": None,
            "usage": {},
        }
        self._script = script_for(node, inputs)
        self._delay = delay
        self.add("state", {"state": "Pending", "reason": "", "attempt": 0})
        threading.Thread(target=self._live, daemon=True).start()

    def add(self, kind: str, data: dict[str, Any]) -> None:
        """Let an event happen."""
        with self.changed:
            if self.record.get("finished_at"):
                return
            self._note(kind, data)
            self.events.append((kind, dict(self.record) if kind == "done" else data))
            self.changed.notify_all()

    def _note(self, kind: str, data: dict[str, Any]) -> None:
        now = stamp(time.time())
        attempts = self.record["attempts"]
        if kind == "state":
            self.record |= {"state": data["state"], "reason": data.get("reason", "")}
            self.record["attempt"] = data["attempt"]
            if data["state"] == "Running":
                queued = attempts[-1]["finished_at"] if attempts else self.record["created_at"]
                attempts.append({"queued_at": queued, "started_at": now, "finished_at": None})
        if kind == "done":
            self.record |= {"state": "Succeeded", "reason": "", **data, "finished_at": now}
        if (kind == "done" or data.get("reason") == "backoff") and attempts:
            attempts[-1]["finished_at"] = now

    def _live(self) -> None:
        time.sleep(self._delay)
        for seconds, kind, data in self._script:
            time.sleep(seconds)
            self.add(kind, data)

    def follow(self, after: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Yield the events behind a position as they happen."""
        for number in range(after, 10**9):
            with self.changed:
                while len(self.events) <= number:
                    if not self.changed.wait(20):
                        return
                kind, data = self.events[number]
            yield number + 1, kind, data
            if kind == "done":
                return


class StubServer(ThreadingHTTPServer):
    """Answer on a free port of 127.0.0.1.

    Attributes:
        missing: what /readyz says is missing.
        cut_after: events after which each stream is cut, None for never.
        holds_events: keep events back until the last, as a buffering proxy does.
        requests: the lines of all requests.
        api_key: required as a Bearer token when set.

    """

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.tasks: dict[str, Task] = {}
        self.missing: list[str] = []
        self.cut_after: int | None = None
        self.holds_events = False
        self.requests: list[str] = []
        self.keys: dict[str, str] = {}
        self.api_key: str | None = None

    @property
    def url(self) -> str:
        """Return its root."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about clients that went away."""


class Handler(BaseHTTPRequestHandler):
    """The routes that the command line uses."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: StubServer

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def answer(self, status: int, document: Any = None, kind: str = "application/json") -> None:
        """Send an answer."""
        raw = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def refuse(self, status: int, code: str, detail: str) -> None:
        """Send a problem."""
        self.answer(status, problem(code, detail), "application/problem+json")

    def is_let_in(self) -> bool:
        """Check the key, and refuse a request without it."""
        self.server.requests.append(f"{self.command} {self.path}")
        key = self.server.api_key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.refuse(401, "unauthorized", "a valid API key is required")
        return False

    def do_GET(self) -> None:
        """Answer a read."""
        path = self.path.partition("?")[0]
        if path == "/readyz":
            missing = self.server.missing
            self.answer(503 if missing else 200, {"missing": missing})
        elif path in {"/healthz", "/openapi.json"}:
            self.answer(200, {"title": "async_nodes"})
        elif path == "/broken":
            self.answer(502, None, "text/html")
        elif self.is_let_in():
            self._task(path)

    def _task(self, path: str) -> None:
        task_id, _, rest = path.removeprefix("/v1/tasks/").partition("/")
        task = self.server.tasks.get(task_id)
        if task is None:
            self.refuse(404, "task_not_found", f"there is no task {task_id}")
        elif rest == "events":
            self._events(task)
        else:
            self.answer(200, task.record)

    def _events(self, task: Task) -> None:
        after = int(self.headers.get("Last-Event-ID") or 0)
        if task.record.get("finished_at") and after >= len(task.events):
            self.answer(204)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"retry: 20\n\n")
        if self.server.holds_events:
            for _ in task.follow(0):
                pass
        with contextlib.suppress(OSError):
            for sent, (number, kind, data) in enumerate(task.follow(after), 1):
                text = f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
                self.wfile.write(text.encode())
                if sent == self.server.cut_after:
                    break
        self.close_connection = True

    def do_POST(self) -> None:
        """Answer a submit or a cancel."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if not self.is_let_in():
            return
        path = self.path.partition("?")[0]
        if path == "/v1/tasks":
            self._submit(body)
            return
        task_id = path.removeprefix("/v1/tasks/").removesuffix("/cancel")
        task = self.server.tasks.get(task_id)
        if task is None:
            self.refuse(404, "task_not_found", f"there is no task {task_id}")
        elif task.record.get("finished_at"):
            self.refuse(409, "task_finished", "the task has already ended")
        else:
            task.add("done", {"state": "Cancelled"})
            self.answer(200, {"task_id": task.id, "state": "Cancelled", "stopped": True})

    def _submit(self, body: dict[str, Any]) -> None:
        if body["node"] == "ecoh":
            self.refuse(422, "unknown_node", "there is no node 'ecoh'; did you mean 'echo'?")
            return
        key = self.headers.get("Idempotency-Key", "")
        task_id = self.server.keys.get(key)
        if task_id is None:
            number, delay = len(self.server.tasks) + 1, body.get("delay", 0.0)
            task = Task(number, body["node"], body["inputs"], delay=delay)
            self.server.tasks[task.id] = task
            task_id = task.id
            if key:
                self.server.keys[key] = task_id
        if "wait=" in self.path:
            for _ in self.server.tasks[task_id].follow(0):
                pass
            self.answer(200, self.server.tasks[task_id].record)
            return
        self.answer(202, {"task_id": task_id, "state": "Pending", "version": 1})


@contextlib.contextmanager
def stub_server(port: int = 0) -> Iterator[StubServer]:
    """Run a stub on threads of this process."""
    server = StubServer(port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
