"""``async-nodes test``: the checkout's tests, by way of ``./run test``."""

from __future__ import annotations

import os
import sys

import click

from async_nodes.cli.checkout import checkout
from async_nodes.cli.language import tr


@click.command(
    help=tr(
        "Run the tests of the checkout: without ARGUMENTS the checks and every tier,"
        " otherwise pytest alone with these, such as -k settings.",
        "运行源码目录中的测试:不带参数时运行检查和各级测试,"
        "否则仅以这些参数运行 pytest,如 -k settings。",
    ),
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Become ``./run test``, which also installs what the tests need."""
    runner = str(checkout("run") / "run")
    sys.stdout.flush()
    os.execv(runner, [runner, "test", *arguments])  # noqa: S606 - no shell is meant
