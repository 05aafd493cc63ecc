"""``async-nodes pause QUEUE|NODE``: tasks wait until it is resumed."""

from __future__ import annotations

from async_nodes.cli.control import verb
from async_nodes.cli.language import tr

command = verb(
    "pause",
    tr("Hold the tasks of a queue or a node that wait.", "暂停队列或节点中等待的任务。"),
)
