"""Check the service's address and key when somebody enters them."""

from __future__ import annotations

from typing import Any

from dify_plugin import ToolProvider
from dify_plugin.errors.tool import ToolProviderCredentialValidationError
from node_client.errors import AsyncNodesError
from node_client.service import Service


class AsyncNodesProvider(ToolProvider):
    """Hold the credentials of all tools."""

    def _validate_credentials(self, credentials: dict[str, Any]) -> None:
        try:
            Service(credentials, patience=0).nodes()
        except AsyncNodesError as error:
            raise ToolProviderCredentialValidationError(str(error)) from error
