"""Which language the person reads, from the locale: English, or Chinese for ``zh…``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# In the order in which POSIX looks at them for messages.
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")


def is_chinese(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the locale asks for Chinese."""
    chosen = next((environ[name] for name in VARIABLES if environ.get(name)), "")
    return chosen.lower().startswith("zh")


def tr(english: str, chinese: str) -> str:
    """Return the text in the person's language."""
    return chinese if is_chinese() else english
