"""Vectors of pieces and questions for the nodes of `rag`, asked for bit by bit."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from async_nodes.nodes.breathing import breathing
from async_nodes.nodes.rag_search import unit

if TYPE_CHECKING:
    from async_nodes.nodes.context import NodeContext
    from async_nodes.nodes.providers.exchange import Server

AT_ONCE = 256
"""Texts whose vectors are in memory as Python's own numbers at one time."""


@dataclass(kw_only=True, slots=True)
class Embedder:
    """Make vectors of texts with one model.

    Attributes:
        ctx: the attempt's context, for its HTTP client.
        server: where the model is.
        model: its name.
        dimensions: length of the vectors, for models that can shorten theirs.
        timeout: seconds of the longest silence of one request.
        usage: what all requests have used, to be reported when the attempt succeeds.

    """

    ctx: NodeContext
    server: Server
    model: str
    dimensions: int | None = None
    timeout: float = 60.0
    usage: dict[str, int] = field(default_factory=dict)

    def vectors(
        self, texts: Sequence[str], *, on_done: Callable[[int], None] | None = None
    ) -> Iterator[array[float]]:
        """Yield a vector of length 1 for each text, in their order.

        Args:
            texts: none of them empty.
            on_done: told how many texts are done.

        Raises:
            AsyncNodesError: as `embed`.

        """
        from async_nodes.nodes.embedding import embed

        for start in range(0, len(texts), AT_ONCE):
            vectors, usage = embed(
                self.ctx,
                texts[start : start + AT_ONCE],
                model=self.model,
                provider=self.server.provider,
                base_url=self.server.base_url,
                api_key=self.server.api_key,
                deployment=self.server.deployment,
                api_version=self.server.api_version,
                dimensions=self.dimensions,
                timeout=self.timeout,
                first=start,
            )
            total = usage.get("total_tokens", 0)
            for name in ("embedding_tokens", "total_tokens"):
                self.usage[name] = self.usage.get(name, 0) + total
            yield from map(unit, breathing(vectors))
            if on_done is not None:
                on_done(start + len(vectors))
