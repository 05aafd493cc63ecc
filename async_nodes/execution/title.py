"""The name a process shows in ps and top."""

from __future__ import annotations

import contextlib


def set_title(title: str) -> None:
    """Show a title, where the platform can."""
    with contextlib.suppress(ImportError):
        import setproctitle

        setproctitle.setproctitle(title)
