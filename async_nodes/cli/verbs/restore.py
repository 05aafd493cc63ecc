"""``async-nodes restore``: see `backup`."""

from async_nodes.cli.verbs.backup import restore as command

__all__ = ["command"]
