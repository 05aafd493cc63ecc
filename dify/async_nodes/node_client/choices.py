"""The list of nodes that a panel shows."""

from __future__ import annotations

from typing import Any

from dify_plugin.entities import I18nObject, ParameterOption

from node_client.service import Service


def node_options(credentials: dict[str, Any]) -> list[ParameterOption]:
    """Return an option for each node of the service, by name."""
    names = sorted(str(node["name"]) for node in Service(credentials, patience=0).nodes())
    return [ParameterOption(value=name, label=I18nObject(en_US=name)) for name in names]
