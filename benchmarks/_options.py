"""What every benchmark can be told, and how each ends."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks._processes import BenchmarkError

INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Hold the choices.

    Attributes:
        rounds: per side and number of connections.
        tasks: tasks, or reads, per round.
        connections: numbers of keep-alive connections; none where one is used at a time.
        limit: seconds a round may take.
        transport: that of our worker; the product's default when None.
        json: where the figures go.
        plot: where the chart (SVG) goes.

    """

    rounds: int
    tasks: int
    connections: tuple[int, ...] = ()
    limit: float = 60.0
    transport: str | None = None
    json: Path | None = None
    plot: Path | None = None

    @classmethod
    def of(cls, made: argparse.ArgumentParser, arguments: Sequence[str] | None) -> Self:
        """Read the command line."""
        return cls(**vars(made.parse_args(arguments)))

    def environment(self) -> dict[str, str]:
        """Return the settings of our side."""
        return {} if self.transport is None else {"ASYNC_NODES_TRANSPORT": self.transport}

    def shown(self) -> dict[str, Any]:
        """Return what the figures depend on."""
        chosen = asdict(self)
        return {name: chosen[name] for name in ("rounds", "tasks", "connections", "transport")}


def parser(
    about: str | None,
    *,
    tasks: int,
    rounds: int,
    connections: str | None = "4,8,64",
) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's options with its own defaults."""
    made = bare_parser(about)
    made.add_argument("--rounds", type=positive, default=rounds, help="per side")
    made.add_argument("--tasks", type=positive, default=tasks, help="per round")
    if connections is not None:
        made.add_argument(
            "--connections",
            type=_numbers,
            default=_numbers(connections),
            metavar="N,N",
            help="kept alive at once",
        )
    made.add_argument(
        "--transport", choices=("stock", "fast"), help="of our worker (default: the product's)"
    )
    made.add_argument("--limit", type=float, default=60.0, help="seconds a round may take")
    return made


def bare_parser(about: str | None) -> argparse.ArgumentParser:
    """Return the parser of what every benchmark takes: where figures and chart go."""
    made = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    made.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    made.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw a chart")
    return made


def sides_of(
    made: argparse.ArgumentParser, names: Sequence[str], *, default: Sequence[str]
) -> None:
    """Let some of these sides be chosen."""

    def chosen(text: str) -> tuple[str, ...]:
        wanted = tuple(names) if text == "all" else tuple(text.split(","))
        for name in wanted:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise argparse.ArgumentTypeError(f"there is no side {name!r}{hint}")
        return tuple(dict.fromkeys(wanted))

    made.add_argument(
        "--sides",
        type=chosen,
        default=tuple(default),
        metavar="A,B",
        help=f"all, or some of {', '.join(names)} (default: {', '.join(default)})",
    )


def positive(text: str) -> int:
    """Read a whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(positive(each) for each in text.split(","))


def run(main: Callable[[], int]) -> int:
    """Run a benchmark's main: what went wrong is one sentence on stderr and status 1."""
    try:
        return main()
    except BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
