"""Processor instructions of the functions that every task passes through, counted by callgrind.

A figure without noise: the same code takes the same number on a busy machine. Each function runs N
and 2N times; the difference over N is what one call takes, so that start-up cancels. A test holds
the figures to the budgets in ``tests/unit/instructions.json``; ``--write`` sets these anew.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import _figures
from benchmarks._callgrind import CALIBRATION, LOOP, MACHINES
from benchmarks._options import bare_parser, run
from benchmarks._processes import ROOT, BenchmarkError, clean_environment

BUDGETS: Final = ROOT / "tests" / "unit" / "instructions.json"
TOLERANCE: Final = 0.05
OTHER_BUILD: Final = 0.20
"""What another build of Python may take more, after the calibration has been allowed for."""

LIMIT: Final = 120.0
HEADS: Final = ("function", "instructions", "budget", "difference")

_LABEL: Final = re.compile(r"^desc: Trigger: Client Request: (.+): (\d+)$", re.MULTILINE)
_TOTAL: Final = re.compile(r"^totals: (\d+)", re.MULTILINE)


def why_not() -> str | None:
    """Return why instructions cannot be counted here, None where they can."""
    if platform.machine() not in MACHINES or sys.platform != "linux":
        return f"instructions are counted on Linux and x86-64, not on {platform.machine()}"
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (Debian: apt install valgrind)"
    return None


def counted() -> dict[str, int]:
    """Return the instructions of one call of each function, and of the calibration.

    Raises:
        BenchmarkError: they cannot be counted.

    """
    reason = why_not()
    if reason is not None:
        raise BenchmarkError(reason)
    with tempfile.TemporaryDirectory(prefix="an-callgrind-") as folder:
        argv = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]
        argv += [f"--callgrind-out-file={folder}/dump", sys.executable, "-P"]
        argv += ["-m", "benchmarks._callgrind"]
        # The order of sets and of what is looked up by hash would differ from run to run.
        fixed = {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "PYTHONMALLOC": "pymalloc"}
        try:
            done = subprocess.run(
                argv,
                env={**clean_environment(), **fixed},
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"valgrind took more than {LIMIT:.0f} s") from None
        if done.returncode:
            raise BenchmarkError(f"valgrind ended with {done.returncode}: {done.stderr[-1000:]}")
        # dump.1, dump.2, … in the order of counting; the one without a number is of the end.
        dumps = sorted(Path(folder).glob("dump.*"), key=lambda path: int(path.suffix[1:]))
        return per_call(path.read_text(encoding="utf-8") for path in dumps)


def per_call(dumps: Iterable[str]) -> dict[str, int]:
    """Return the instructions per call from callgrind's dumps, whose labels are NAME: TIMES."""
    totals: dict[str, dict[int, int]] = {}
    for dump in dumps:
        label, total = _LABEL.search(dump), _TOTAL.search(dump)
        if label and total:
            totals.setdefault(label[1], {})[int(label[2])] = int(total[1])
    return {
        name: round((of[2 * LOOP] - of[LOOP]) / LOOP)
        for name, of in totals.items()
        if of.keys() == {LOOP, 2 * LOOP}
    }


# -- budgets ---------------------------------------------------------------------------------------


def build() -> str:
    """Return which build of Python this is."""
    return f"{platform.python_version()}, {platform.python_compiler()}"


def minor() -> str:
    """Return the minor version of Python, which has budgets of its own."""
    return ".".join(platform.python_version_tuple()[:2])


def budgets() -> dict[str, Any]:
    """Return what the file of budgets says, by minor version of Python."""
    if not BUDGETS.exists():
        return {}
    found: dict[str, Any] = json.loads(BUDGETS.read_text(encoding="utf-8"))
    return found


def allowed(of_version: Mapping[str, Any], found: Mapping[str, int]) -> dict[str, float]:
    """Return how many instructions each function may take here.

    Args:
        of_version: what the file says of this minor version.
        found: what was counted, the calibration among it. A build that takes more for the same
            plain Python may take more for everything.

    """
    known = of_version["instructions"]
    scale = found[CALIBRATION] / known[CALIBRATION]
    more = 1 + (TOLERANCE if of_version["build"] == build() else OTHER_BUILD)
    room = 1 + of_version.get("room", 0.0)
    return {
        name: number * scale * more * room for name, number in known.items() if name != CALIBRATION
    }


def grown(of_version: Mapping[str, Any], found: Mapping[str, int]) -> list[str]:
    """Return a sentence for every function that takes more than it may."""
    return [
        f"{name}: {found[name]:,} instructions a call, {of_version['instructions'][name]:,} at"
        f" the last count, {most:,.0f} allowed"
        for name, most in allowed(of_version, found).items()
        if found.get(name, 0) > most
    ]


def write(found: Mapping[str, int], room: float) -> None:
    """Make what was counted the budgets of this minor version of Python."""
    new = {"build": build(), "room": room, "instructions": dict(found)}
    whole = dict(sorted({**budgets(), minor(): new}.items()))
    BUDGETS.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    _figures.say(f"{BUDGETS.relative_to(ROOT)} has new budgets for Python {minor()}")


def rows(found: Mapping[str, int], known: Mapping[str, int]) -> list[list[str]]:
    """Return the table: what was counted, what the file has, the difference."""
    shown = []
    for name, number in found.items():
        before = known.get(name)
        change = "new" if before is None else f"{(number - before) / before:+.1%}"
        shown.append([name, f"{number:,}", "" if before is None else f"{before:,}", change])
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Count; print what differs from the budgets; return 1 when something has grown."""
    made = bare_parser(__doc__)
    made.add_argument("--write", action="store_true", help="make these the budgets")
    made.add_argument(
        "--room", type=float, default=0.0, metavar="SHARE", help="of a budget, to grow into"
    )
    given = made.parse_args(arguments)
    found = counted()
    of_version = budgets().get(minor(), {"instructions": {}})
    print(_figures.table(HEADS, rows(found, of_version["instructions"])))
    figures = {"build": build(), "instructions": found, "budgets": of_version["instructions"]}
    _figures.write_report(given.json, "instructions", figures)
    _figures.draw(given.plot, "instructions", figures)
    if given.write:
        write(found, given.room)
        return 0
    if not of_version["instructions"]:
        _figures.say(f"there are no budgets for Python {minor()}: --write makes them")
        return 0
    more = grown(of_version, found)
    for sentence in more:
        print(f"grown: {sentence}", file=sys.stderr)
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(run(main))
