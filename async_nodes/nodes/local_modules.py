"""Steps 1 and 3: find the node modules of the person who starts us, beside where they stand.

So ``ASYNC_NODES_IMPORTS`` may name a module of the current directory, and a ``settings.py`` there
does not stand in for an installed one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class LocalModules:
    """Find modules of one folder, after everybody else has failed to find them.

    The end of sys.path would not be enough: what is installed in development mode is found by a
    finder that comes after sys.path.
    """

    def __init__(self, folder: str) -> None:
        self._path = [folder]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a top-level module is."""
        return PathFinder.find_spec(name, self._path, target) if path is None else None


def find_local_modules() -> None:
    """Let the modules of the current directory be imported, last of all."""
    if not any(isinstance(finder, LocalModules) for finder in sys.meta_path):
        sys.meta_path.append(LocalModules(os.getcwd()))  # noqa: PTH109 - pathlib is slow to import
