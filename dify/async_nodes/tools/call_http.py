"""Make an HTTP request through the service."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities.tool import ToolInvokeMessage
from node_client.errors import AsyncNodesInvalidInput
from node_client.parameters import any_text, json_object, json_value, number, text
from node_client.running import run
from node_client.service import Service


class CallHttp(Tool):
    """Submit a task of the node ``http.request``."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        given, service = tool_parameters, Service(self.runtime.credentials)
        inputs: dict[str, Any] = {
            "url": text(given, "url", required=True),
            "method": text(given, "method") or "GET",
        }
        if headers := json_object(given, "headers_json"):
            inputs["headers"] = headers
        body = any_text(given, "body")
        if any_text(given, "body_json").strip():
            if body.strip():
                raise AsyncNodesInvalidInput("give body_json or body, not both")
            inputs["json"] = json_value(given, "body_json")
        elif body:
            inputs["body"] = body
        silence = number(given, "request_timeout_seconds", 60, least=1, most=3600) or 60
        inputs["timeout_ms"] = int(silence * 1000)
        yield from run(self, service, "http.request", inputs, given)
