"""Run any node of the service."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities import ParameterOption
from dify_plugin.entities.tool import ToolInvokeMessage
from node_client.choices import node_options
from node_client.parameters import any_text, json_object, text
from node_client.running import run, uploaded
from node_client.service import Service


class RunTask(Tool):
    """Submit a task of a chosen node and give its outcome."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        service = Service(self.runtime.credentials)
        node = text(tool_parameters, "node", required=True)
        inputs = json_object(tool_parameters, "inputs_json")
        if given := any_text(tool_parameters, "text"):
            inputs[text(tool_parameters, "text_input") or "text"] = given
        if tool_parameters.get("files"):
            name = text(tool_parameters, "file_input") or "file"
            inputs[name] = uploaded(service, tool_parameters["files"], node, name)
        yield from run(self, service, node, inputs, tool_parameters)

    def _fetch_parameter_options(self, parameter: str) -> list[ParameterOption]:
        return node_options(self.runtime.credentials) if parameter == "node" else []
