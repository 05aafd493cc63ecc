"""The same work done the old way, beside the demo: a caller that waits. Measured, not invented."""

from __future__ import annotations

import threading
import time
from typing import Any

from async_nodes.cli.demo.tasks import messages
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.core.errors import AsyncNodesError

#: Far above what the simulated model takes.
_SECONDS = 60.0


class BlockingCalls:
    """Call the model and the HTTP server directly, and measure how long each call holds its caller.

    Args:
        url: root of the simulated model.

    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._began = 0.0
        self._measured: dict[str, float] = {}
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin, on a thread of its own."""
        self._began = time.monotonic()
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until both calls have ended."""
        self._thread.join(seconds)

    def milliseconds(self, node: str) -> float | None:
        """Return what the call in place of a node took, None when it was not made."""
        return self._measured.get(node)

    def told(self) -> str:
        """Return what the caller of the model has so far."""
        took = self.milliseconds("llm.chat")
        if self._trouble:
            return tr(f"a blocking call failed: {self._trouble}", f"阻塞调用失败:{self._trouble}")
        if took is not None:
            return tr(
                f"the same model called the blocking way: one answer after {took / 1000:.1f} s",
                f"以阻塞方式调用同一模型:{took / 1000:.1f} 秒后一次性得到结果",
            )
        waited = time.monotonic() - self._began if self._began else 0.0
        return tr(
            f"the same model called the blocking way: waiting {waited:.1f} s, nothing to show yet",
            f"以阻塞方式调用同一模型:已等待 {waited:.1f} 秒,尚无结果",
        )

    def _run(self) -> None:
        chat: dict[str, Any] = {"model": "sim:echo", "messages": messages(), "stream": False}
        try:
            with Client(self._url, timeout=_SECONDS) as client:
                self._measured["http.request"] = client.get("/v1/models").seconds * 1000
                seconds = client.post("/v1/chat/completions", chat).seconds
                self._measured["llm.chat"] = seconds * 1000
        except AsyncNodesError as error:
            self._trouble = error.detail
