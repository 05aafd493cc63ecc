"""The first lines of every process: decide on gevent, then become the command line.

gevent must patch the standard library before anything heavy is imported, so this module looks at
the bare arguments and imports nothing of the package at its top.
"""

import sys
import time
from collections.abc import Sequence
from itertools import pairwise

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
    if verb == "serve":  # one that looks after several processes starts them and does no more
        return not any(word.partition("=")[0] == "--processes" for word in options)
    if verb != "worker":
        return False
    given = [value for name, value in pairwise(options) if name == "--pool"]
    given += [word.removeprefix("--pool=") for word in options if word.startswith("--pool=")]
    return given[-1:] == ["io"]


def is_patched() -> bool:
    """Tell whether gevent has patched this process, without importing it."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("socket"))
