"""``python -m benchmarks NAME …``: run a benchmark, as ``async-nodes bench NAME …`` does.

Without a name it lists the benchmarks.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benchmarks._options import run


def names() -> list[str]:
    """Return the benchmarks there are."""
    found = [path.stem for path in Path(__file__).parent.glob("[!_]*.py")]
    return sorted(name.replace("_", "-") for name in found)


def main() -> int:
    """Run the benchmark that the first argument names; return the exit status."""
    if len(sys.argv) == 1:
        print("\n".join(names()))
        return 0
    name = sys.argv.pop(1)
    if name not in names():
        print(f"there is no benchmark {name!r}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    return run(importlib.import_module(f"benchmarks.{name.replace('-', '_')}").main)


if __name__ == "__main__":
    sys.exit(main())
