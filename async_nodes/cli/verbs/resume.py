"""``async-nodes resume QUEUE|NODE``: tasks go on."""

from __future__ import annotations

from async_nodes.cli.control import verb
from async_nodes.cli.language import tr

command = verb(
    "resume",
    tr("End the pause or drain of a queue or a node.", "解除队列或节点的暂停或排空。"),
)
