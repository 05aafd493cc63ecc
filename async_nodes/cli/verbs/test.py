"""``async-nodes test``: the checkout's tests, by way of ``./run test``."""

from __future__ import annotations

import os
import sys

import click

from async_nodes.cli.checkout import checkout
from async_nodes.cli.language import tr


@click.command(
    help=tr("Run the tests of the checkout.", "运行源码目录中的测试。"),
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Become ``./run test``, which also installs what the tests need."""
    runner = str(checkout("run") / "run")
    sys.stdout.flush()
    os.execv(runner, [runner, "test", *arguments])  # noqa: S606 - no shell is meant
