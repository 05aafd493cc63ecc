"""Wait for a task."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities.tool import ToolInvokeMessage
from node_client.parameters import manner, task_id
from node_client.running import await_end
from node_client.service import Service


class WaitTask(Tool):
    """Give a task's outcome once it has ended."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        wanted, how = task_id(tool_parameters), manner(tool_parameters)
        yield from await_end(self, Service(self.runtime.credentials), wanted, how)
