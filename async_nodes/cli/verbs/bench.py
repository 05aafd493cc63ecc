"""``async-nodes bench NAME``: one of the checkout's benchmarks."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import click

from async_nodes.cli.checkout import checkout
from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr


@click.command(
    help=tr("Run a benchmark of the checkout.", "运行源码目录中的基准测试。"),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True},
)
@click.argument("name", required=False)
@click.option(
    "--json",
    "report",
    type=click.Path(dir_okay=False, path_type=Path),
    help=tr("Write the figures to this file.", "将结果写入此文件。"),
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(name: str | None, report: Path | None, arguments: tuple[str, ...]) -> int:
    """Run the benchmark in a process of its own."""
    root = checkout("benchmarks")
    known = benchmarks(root)
    if name is None:
        click.echo("\n".join(known))
        return 0
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = tr(f"; did you mean {near[0]!r}?", f";是否想用 {near[0]!r}?") if near else ""
        raise Failure(
            tr(f"there is no benchmark {name!r}{hint}", f"没有基准测试 {name!r}{hint}"),
            tr(f"There are: {', '.join(known)}", f"可用:{', '.join(known)}"),
        )
    options = [] if report is None else ["--json", str(report)]
    argv = [sys.executable, "-P", "-m", f"benchmarks.{known[name]}", *options, *arguments]
    # The checkout is put on the path instead of gone to, so that files are where they are named.
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    return subprocess.call(argv, env={**os.environ, "PYTHONPATH": path})


def benchmarks(root: Path) -> dict[str, str]:
    """Return the benchmarks of a checkout, by name, with their modules.

    A benchmark is a module of ``benchmarks/``, or a folder there with a ``__main__.py``; its name
    is written with hyphens. What begins with an underscore is not one.
    """
    folder = root / "benchmarks"
    modules = [path.stem for path in folder.glob("*.py")]
    modules += [path.parent.name for path in folder.glob("*/__main__.py")]
    names = sorted(name for name in modules if not name.startswith("_"))
    return {name.replace("_", "-"): name for name in names}
