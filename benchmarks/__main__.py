"""``python -m benchmarks NAME …``: run a benchmark, as ``async-nodes bench NAME …`` does.

Without a name it lists the benchmarks.
"""

from __future__ import annotations

import importlib
import sys

from async_nodes.cli.verbs.bench import benchmarks, listing
from benchmarks._options import run
from benchmarks._processes import ROOT


def main() -> int:
    """Run the benchmark that the first argument names; return the exit status."""
    if len(sys.argv) == 1:
        print(listing(ROOT))
        return 0
    name, known = sys.argv.pop(1), benchmarks(ROOT)
    if name not in known:
        print(f"there is no benchmark {name!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    return run(importlib.import_module(f"benchmarks.{known[name]}").main)


if __name__ == "__main__":
    sys.exit(main())
