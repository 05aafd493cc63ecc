"""Wait until the whole serves: the web process answers and says that nothing is missing."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr
from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from async_nodes.cli.http import Client

_PAUSE = 0.05


def wait_until_ready(
    client: Client,
    *,
    ending: threading.Event,
    progress: Callable[[str], None],
    web_pid: Callable[[], int | None],
    seconds: float = 60.0,
) -> float | None:
    """Return the seconds it took, or None when the whole is ending instead.

    Args:
        client: asks ``/readyz``.
        ending: set when there is nothing to wait for any more.
        progress: is told what is still missing.
        web_pid: the web process that has to answer: another one may have taken the port first.
        seconds: how long to wait.

    Raises:
        Failure: it is not ready in time; names what is missing.

    """
    began = time.monotonic()
    missing = tr("the web process", "Web 进程")
    while not ending.is_set():
        waited = time.monotonic() - began
        try:
            answer = client.call("GET", "/readyz", timeout=2.0)
        except AsyncNodesError:
            pass  # it does not listen yet
        else:
            if not _is_ours(answer.document, web_pid()):
                missing = tr("the web process: another one answers", "Web 进程:端口上是另一个")
            elif answer.status == HTTPStatus.OK:
                progress("")
                return waited
            else:
                missing = what_is_missing(answer.document) or missing
        if waited > seconds:
            progress("")
            raise Failure(
                tr(
                    f"not ready after {seconds:g} s; missing: {missing}",
                    f"{seconds:g} 秒后仍未就绪;缺少:{missing}",
                )
            )
        progress(tr(f"starting … waiting for {missing}", f"正在启动 … 等待 {missing}"))
        ending.wait(_PAUSE)
    return None


def _is_ours(document: Any, pid: int | None) -> bool:
    return isinstance(document, dict) and document.get("pid") == pid


def what_is_missing(document: Any) -> str:
    """Return what a ``/readyz`` answer says is not there yet, empty when it does not say."""
    if not isinstance(document, dict):
        return ""
    missing = document.get("missing")
    if isinstance(missing, list):
        return ", ".join(str(item) for item in missing)
    return str(document.get("detail") or "")
