"""Call a language model through the service."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities.tool import ToolInvokeMessage
from node_client.errors import AsyncNodesInvalidInput
from node_client.parameters import any_text, json_object, number, text, whole_number
from node_client.running import run
from node_client.service import Service


class CallModel(Tool):
    """Submit a task of the node ``llm.chat``."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        given, service = tool_parameters, Service(self.runtime.credentials)
        if not (prompt := any_text(given, "prompt").strip()):
            raise AsyncNodesInvalidInput("prompt is empty")
        messages = [{"role": "user", "content": prompt}]
        if system := any_text(given, "system").strip():
            messages.insert(0, {"role": "system", "content": system})
        inputs = {
            "model": text(given, "model", required=True),
            "messages": messages,
            "provider": text(given, "provider"),
            "base_url": text(given, "base_url"),
            "api_key": text(given, "model_api_key"),
            "temperature": number(given, "temperature", None, least=0, most=2),
            "max_tokens": whole_number(given, "max_tokens", least=1, most=1_000_000),
            "schema": json_object(given, "schema_json"),
        }
        wanted = {name: value for name, value in inputs.items() if value not in (None, "", {})}
        yield from run(self, service, "llm.chat", wanted, given)
