"""``async-nodes model-server``: the simulated model."""

from __future__ import annotations

import click

from async_nodes.cli.language import tr


@click.command(
    help=tr("Run the simulated model server.", "启动模拟的模型服务。"),
    # Its options, --help included, are its own.
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Hand the arguments over to the server's own command line."""
    from async_nodes.testing.model_server import main

    try:
        return main(arguments)
    except SystemExit as ending:  # argparse ends that way after --help and after a wrong option
        return ending.code if isinstance(ending.code, int) else 1
