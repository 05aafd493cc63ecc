"""Step 1 and 3: every node by its name.

Names come from the built-in nodes, from installed packages (entry points of the group
``async_nodes.nodes``) and from the modules of the setting ``ASYNC_NODES_IMPORTS``, in this order.
"""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from async_nodes.core.errors import AsyncNodesError
from async_nodes.nodes.local_modules import find_local_modules
from async_nodes.nodes.spec import NodeSpec

ENTRY_POINTS = "async_nodes.nodes"
SETTING = "ASYNC_NODES_IMPORTS"
BUILT_IN = (
    "async_nodes.nodes.echo",
    "async_nodes.nodes.embedding",
    "async_nodes.nodes.file_text",
    "async_nodes.nodes.http_request",
    "async_nodes.nodes.llm_chat",
    "async_nodes.nodes.rag",
    "async_nodes.nodes.template_render",
    "async_nodes.nodes.text_chunk",
)

logger = logging.getLogger(__name__)


class UnknownNodeError(AsyncNodesError, KeyError):
    """Answer for a name that no node has; a KeyError too, so that mappings work."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        close = difflib.get_close_matches(name, list(known), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        more: dict[str, Any] = {"suggestion": close[0]} if close else {}
        message = f"there is no node {name!r}{hint}"
        super().__init__("unknown_node", message, pointer="/node", **more)

    def __str__(self) -> str:
        return self.detail


class Registry(Mapping[str, NodeSpec]):
    """Find a node by its name."""

    def __init__(self) -> None:
        self._specs: dict[str, NodeSpec] = {}

    def __getitem__(self, name: str) -> NodeSpec:
        """Return the node of a name.

        Raises:
            UnknownNodeError: ``unknown_node`` with a suggestion.

        """
        try:
            return self._specs[name]
        except KeyError:
            raise UnknownNodeError(name, self._specs) from None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._specs))

    def __len__(self) -> int:
        return len(self._specs)

    def add(self, spec: NodeSpec) -> None:
        """Take in a node.

        Raises:
            AsyncNodesError: ``invalid_node`` when another function has the name already.

        """
        known = self._specs.get(spec.name)
        if known is not None and _place(known) != _place(spec):
            message = f"{spec.name!r} is declared twice: {_place(known)} and {_place(spec)}"
            raise AsyncNodesError("invalid_node", message)
        self._specs[spec.name] = spec


_registry = Registry()
_loaded: set[str] = set()


def add(spec: NodeSpec) -> None:
    """Put a node into the process's registry: what `@node` does."""
    _registry.add(spec)


def registry(imports: Iterable[str] | None = None) -> Registry:
    """Return every node of this process, loading what has not been loaded yet.

    Args:
        imports: modules to import for their nodes; when omitted those of the settings, which
            are read once per process, so a call costs next to nothing.

    Raises:
        AsyncNodesError: ``invalid_node`` for a module that cannot be imported.

    """
    for module in BUILT_IN:
        _once(module, _import)
    _once(ENTRY_POINTS, _load_entry_points)
    if imports is None:
        _once(SETTING, _load_configured)
    for module in imports or ():
        _once(module, _import)
    return _registry


def _load_configured(_: str) -> None:
    from async_nodes.settings import Settings

    for module in Settings.load().imports:
        _once(module, _import)


def _once(key: str, load: Callable[[str], None]) -> None:
    if key not in _loaded:
        load(key)
        _loaded.add(key)


def _import(module: str) -> None:
    find_local_modules()  # the setting may name a module beside the person
    try:
        importlib.import_module(module)
    except AsyncNodesError:
        raise
    except Exception as error:  # whatever the module's own code raises
        message = f"the module {module!r} could not be imported: {type(error).__name__}: {error}"
        raise AsyncNodesError("invalid_node", message) from error


def _load_entry_points(group: str) -> None:
    for entry in entry_points(group=group):
        try:
            entry.load()
        except Exception:
            # One broken package of many must not take the whole service down.
            logger.exception(
                "The nodes of an installed package could not be loaded",
                extra={"action": "entry_point_failed", "entry_point": entry.value},
            )


def _place(spec: NodeSpec) -> str:
    return f"{spec.function.__module__}.{spec.function.__qualname__}"
