"""``async-nodes bench NAME``: one of the checkout's benchmarks."""

from __future__ import annotations

import ast
import difflib
import json
import os
import subprocess
import sys
from pathlib import Path

import click

from async_nodes.cli.checkout import checkout
from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr


@click.command(
    help=tr(
        "Run a benchmark of the checkout; without a name, list them. What follows the name goes to"
        " the benchmark: `bench NAME --help` says what it takes.",
        "运行源码目录中的基准测试;不带名称时列出全部。名称之后的参数交给该测试:"
        "`bench NAME --help` 查看其选项。",
    ),
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
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
        click.echo(listing(root))
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


def listing(root: Path) -> str:
    """Return the benchmarks of a checkout with a line about each, in the user's language."""
    known = benchmarks(root)
    wide = max(map(len, known), default=0)
    chinese = _chinese(root)
    lines = []
    for name, module in known.items():
        about = _about(root / "benchmarks", module)
        lines.append(f"{name:{wide}}  {tr(about, chinese.get(name, about))}".rstrip())
    return "\n".join(lines)


def _about(folder: Path, module: str) -> str:
    """Return the first line that a benchmark says of itself; it is read, not imported."""
    path = folder / f"{module}.py"
    path = path if path.exists() else folder / module / "__main__.py"
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return said.partition("\n")[0]


def _chinese(root: Path) -> dict[str, str]:
    try:
        text = (root / "benchmarks" / "chinese.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    found: dict[str, str] = json.loads(text)
    return found


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
