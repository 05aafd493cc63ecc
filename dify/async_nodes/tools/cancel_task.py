"""Cancel a task."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities.tool import ToolInvokeMessage
from node_client.parameters import task_id
from node_client.running import show
from node_client.service import Service


class CancelTask(Tool):
    """Stop a task and give what has become of it."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        service = Service(self.runtime.credentials)
        yield from show(self, service, service.cancel(task_id(tool_parameters)))
