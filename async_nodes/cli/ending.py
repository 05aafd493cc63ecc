"""How a process ended, in words. Pure."""

from __future__ import annotations

import signal

from async_nodes.cli.language import tr


def how_it_ended(status: int) -> str:
    """Return an exit status in words."""
    if status >= 0:
        return tr(f"ended with status {status}", f"以状态 {status} 退出")
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = str(-status)
    return tr(f"was ended by {name}", f"被 {name} 终止")
