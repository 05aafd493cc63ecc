"""The first lines of every process: decide on gevent, then become the command line.

gevent must patch the standard library before anything heavy is imported, so this module looks at
the bare arguments and imports nothing of the package at its top.
"""

import os
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from itertools import pairwise
from types import ModuleType

INTERRUPTED = 130
STARTED_AT = time.monotonic()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``async-nodes ARGUMENTS`` and return its exit status.

    0 is success, 1 a failure that was explained in one sentence, 2 a wrong use, 130 Ctrl-C.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if needs_gevent(arguments):
            from gevent import monkey

            monkey.patch_all()
        find_local_modules()
        from async_nodes.cli.program import run

        return run(arguments)
    except KeyboardInterrupt:  # in the middle of the imports
        return INTERRUPTED


def needs_gevent(arguments: Sequence[str]) -> bool:
    """Tell whether these arguments start a process that lives on gevent: the web, the I/O pool."""
    words = list(arguments)
    while words and words[0].startswith("-"):  # options of the program itself take no value
        words.pop(0)
    if not words:
        return False
    verb, options = words[0], words[1:]
    if verb != "worker":
        return verb == "serve"
    given = [value for name, value in pairwise(options) if name == "--pool"]
    given += [word.removeprefix("--pool=") for word in options if word.startswith("--pool=")]
    return given[-1:] == ["io"]


class LocalModules:
    """Find modules of the current directory, after everybody else has failed to find them.

    So ``ASYNC_NODES_IMPORTS`` may name a module beside the person, and a ``settings.py`` there
    does not stand in for an installed one. The end of sys.path would not be enough: what is
    installed in development mode is found by a finder that comes after sys.path.
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
