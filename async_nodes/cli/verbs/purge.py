"""``async-nodes purge QUEUE|NODE``: what waits is cancelled."""

from __future__ import annotations

from async_nodes.cli.control import verb
from async_nodes.cli.language import tr

command = verb(
    "purge",
    tr("Cancel the tasks of a queue or a node that wait.", "取消队列或节点中等待的任务。"),
)
