"""Look at a task."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities.tool import ToolInvokeMessage
from node_client import outcome
from node_client.parameters import ON_FAILURE, choice, task_id
from node_client.running import show
from node_client.service import Service


class GetTask(Tool):
    """Give how far a task is, at once."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        service = Service(self.runtime.credentials)
        record = service.read(task_id(tool_parameters))
        if choice(tool_parameters, "on_failure", ON_FAILURE[::-1]) == "fail":
            outcome.check(record)
        yield from show(self, service, record)
