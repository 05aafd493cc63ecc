"""``async-nodes drain QUEUE|NODE``: nothing new, until it is resumed."""

from __future__ import annotations

from async_nodes.cli.control import verb
from async_nodes.cli.language import tr

command = verb(
    "drain",
    tr(
        "Refuse new tasks of a queue or a node, work off the rest.",
        "队列或节点不再接受新任务,并处理完已有任务。",
    ),
)
