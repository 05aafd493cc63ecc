"""Drive a plugin as Dify's daemon does: over its pipes, or over TCP as in remote debugging."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

MAX_LINE = 5 << 20
"""Bytes of a line after which the daemon would end the plugin."""


@dataclass
class Answer:
    """Hold what a call has given so far.

    Attributes:
        messages: in their order.
        error: ``{error_type, message, args}`` where it ended with one.
        seconds: until its end.

    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    error: dict[str, Any] | None = None
    seconds: float = 0.0

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the messages of a type."""
        return [one["message"] for one in self.messages if one.get("type") == kind]

    @property
    def variables(self) -> dict[str, Any]:
        """Return the variables, those that stream put together, as a node of Dify has them."""
        found: dict[str, Any] = {}
        for one in self.of("variable"):
            name, value = one["variable_name"], one["variable_value"]
            found[name] = found.get(name, "") + value if one.get("stream") else value
        return found

    @property
    def text(self) -> str:
        """Return the output `text` of a node of Dify."""
        return "".join(one["text"] for one in self.of("text"))

    @property
    def blobs(self) -> list[tuple[dict[str, Any], bytes]]:
        """Return the files, put together from their chunks, with what is said of them."""
        import base64

        whole: dict[str, bytearray] = {}
        meta: dict[str, dict[str, Any]] = {}
        for one in self.messages:
            if one.get("type") == "blob_chunk":
                part = one["message"]
                whole.setdefault(part["id"], bytearray()).extend(base64.b64decode(part["blob"]))
                meta.setdefault(part["id"], one.get("meta") or {})
        return [(meta[key], bytes(content)) for key, content in whole.items()]


class Driver:
    """Speak the daemon's side of the protocol over any pair of streams."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._calls: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self.storage: dict[str, bytes] = {}
        self.invoked: list[dict[str, Any]] = []
        self.may_start = threading.Event()  # an app takes its time while this is not set
        self.may_start.set()
        self.heard = threading.Event()  # a heartbeat
        self.manifest: dict[str, Any] | None = None
        self.declared: list[str] = []
        self.longest = 0
        self.closed = threading.Event()

    def _send(self, line: bytes) -> None:
        raise NotImplementedError

    def listen(self, stream: IO[bytes]) -> None:
        """Take in what the plugin says, until it says no more."""
        with stream, contextlib.suppress(OSError, ValueError):
            for line in stream:
                if line.strip():
                    self.longest = max(self.longest, len(line))
                    self._take(json.loads(line))
        self.closed.set()
        for waiting in list(self._calls.values()):
            waiting.put({"type": "error", "data": {"error_type": "Gone", "message": "closed"}})
            waiting.put({"type": "end"})

    def _take(self, said: dict[str, Any]) -> None:
        event = said.get("event")
        if event == "heartbeat":
            self.heard.set()
        elif event == "session":
            data = said["data"]
            if data["type"] == "invoke":
                asked = (said["session_id"], data["data"])
                threading.Thread(target=self._serve, args=asked, daemon=True).start()
            elif (waiting := self._calls.get(said["session_id"])) is not None:
                waiting.put(data)
        elif event is None and "meta" in said:
            self.manifest = said
        elif event is None:
            self.declared.append(said["type"])

    def _serve(self, session: str, asked: dict[str, Any]) -> None:
        """Answer a plugin's own call: its storage, or an app to start."""
        request = asked["request"]
        if asked["type"] == "storage":
            answer = self._stored(request)
        else:
            self.invoked.append({"type": asked["type"], **request})
            self.may_start.wait(30)
            answer = {"data": {}}
        for event, data in (("response", answer), ("end", None)):
            self._say(
                {
                    "session_id": session,
                    "event": "backwards_response",
                    "data": {
                        "backwards_request_id": asked["backwards_request_id"],
                        "event": event,
                        "message": "",
                        "data": data,
                    },
                }
            )

    def _stored(self, request: dict[str, Any]) -> dict[str, Any]:
        key = request["key"]
        if request["opt"] == "set":
            self.storage[key] = bytes.fromhex(request["value"])
            return {"data": "ok"}
        if request["opt"] == "del":
            self.storage.pop(key, None)
            return {"data": "ok"}
        if request["opt"] == "exist":
            return {"data": key in self.storage}
        return {"data": self.storage.get(key, b"").hex()}

    def _say(self, said: dict[str, Any]) -> None:
        with self._lock:
            self._send(json.dumps(said).encode() + b"\n")

    def start(self, **data: Any) -> str:
        """Begin a call; return its session."""
        session = f"s{next(self._numbers)}"
        self._calls[session] = queue.Queue()
        self._say(
            {"session_id": session, "event": "request", "data": {"user_id": "somebody", **data}}
        )
        return session

    def collect(self, session: str, seconds: float = 60) -> Answer:
        """Return a call's answer once it has ended."""
        answer, began = Answer(), time.monotonic()
        for said in self.pieces(session, seconds):
            if said["type"] == "stream":
                answer.messages.append(said["data"])
            elif said["type"] == "error":
                answer.error = said["data"]
        answer.seconds = time.monotonic() - began
        return answer

    def pieces(self, session: str, seconds: float = 60) -> Iterator[dict[str, Any]]:
        """Yield what a call says until its end."""
        until = time.monotonic() + seconds
        try:
            while (said := self._calls[session].get(timeout=until - time.monotonic()))[
                "type"
            ] != "end":
                yield said
        finally:
            del self._calls[session]

    def call(self, seconds: float = 60, **data: Any) -> Answer:
        """Make a call and wait for its end."""
        return self.collect(self.start(**data), seconds)

    def tool(
        self, name: str, credentials: dict[str, Any], seconds: float = 60, **parameters: Any
    ) -> Answer:
        """Call a tool."""
        return self.call(seconds, **tool_call(name, credentials, **parameters))


def tool_call(name: str, credentials: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """Return the request that calls a tool."""
    return {
        "type": "tool",
        "action": "invoke_tool",
        "provider": "async_nodes",
        "tool": name,
        "credentials": credentials,
        "credential_type": "api-key",
        "tool_parameters": parameters,
    }


class Piped(Driver):
    """A plugin as a child whose pipes are the connection."""

    def __init__(self, python: Path, folder: Path, log: Path) -> None:
        super().__init__()
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [python, "-m", "main"],
                cwd=folder,
                env=environment(INSTALL_METHOD="local"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        assert self.process.stdout is not None
        threading.Thread(target=self.listen, args=(self.process.stdout,), daemon=True).start()

    def _send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def close(self) -> None:
        """End the plugin, which would not notice that its input has ended."""
        self.process.kill()
        self.process.wait(10)
        self.closed.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Remote(Driver):
    """A plugin that is run elsewhere and connects to us, as in remote debugging."""

    def __init__(self, python: Path, folder: Path, log: Path) -> None:
        super().__init__()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        port = self._listener.getsockname()[1]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [python, "-m", "main"],
                cwd=folder,
                env=environment(
                    INSTALL_METHOD="remote",
                    REMOTE_INSTALL_URL=f"127.0.0.1:{port}",
                    REMOTE_INSTALL_KEY="test-key",
                ),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self._socket: socket.socket | None = None
        self.accept()

    def accept(self) -> None:
        """Take the plugin's connection."""
        self._socket, _ = self._listener.accept()
        self.closed.clear()
        stream = self._socket.makefile("rb")
        threading.Thread(target=self.listen, args=(stream,), daemon=True).start()

    def cut(self) -> None:
        """Cut the connection."""
        assert self._socket is not None
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send(self, line: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(line)

    def close(self) -> None:
        """End the plugin and the connection."""
        self.process.kill()
        self.process.wait(10)
        self.cut()
        self._listener.close()


def environment(**more: str) -> dict[str, str]:
    """Return what the daemon gives a plugin: little of its own environment."""
    import os

    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **more}
