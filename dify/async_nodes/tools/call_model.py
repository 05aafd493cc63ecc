"""Call a language model through the service."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities.tool import ToolInvokeMessage
from node_client.parameters import json_object, number, text
from node_client.running import run
from node_client.service import Service


class CallModel(Tool):
    """Submit a task of the node ``llm.chat``."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        given, service = tool_parameters, Service(self.runtime.credentials)
        messages = [{"role": "user", "content": text(given, "prompt", required=True)}]
        if system := text(given, "system"):
            messages.insert(0, {"role": "system", "content": system})
        most = number(given, "max_tokens", None, least=1, most=1_000_000)
        inputs = {
            "model": text(given, "model", required=True),
            "messages": messages,
            "provider": text(given, "provider"),
            "base_url": text(given, "base_url"),
            "api_key": text(given, "model_api_key"),
            "temperature": number(given, "temperature", None, least=0, most=2),
            "max_tokens": None if most is None else int(most),
            "schema": json_object(given, "schema_json"),
        }
        wanted = {name: value for name, value in inputs.items() if value not in (None, "", {})}
        yield from run(self, service, "llm.chat", wanted, given)
