"""Beside the providers: a stream's lines become documents, and documents an answer's pieces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from async_nodes.core.errors import RetryableError
from async_nodes.nodes.providers.answer import Answer, bad

if TYPE_CHECKING:
    from async_nodes.nodes.providers.exchange import Piece

DONE = b"[DONE]"


class Reader(Protocol):
    """Understand one provider's documents.

    Attributes:
        answer: where the pieces are collected.
        complete: whether the answer has come to its end.
        ended: whether nothing more will follow.

    """

    answer: Answer
    complete: bool
    ended: bool

    def read(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces that a document of a stream holds."""

    def read_whole(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces of an answer that came at once.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: for what is no answer.

        """


class Stream:
    """Read a streamed answer line by line: server-sent events, or one document a line.

    Args:
        reader: understands the documents.

    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._data: list[bytes] = []

    @property
    def ended(self) -> bool:
        """Tell whether nothing more will follow."""
        return self._reader.ended

    def feed(self, line: bytes) -> list[Piece]:
        """Return the pieces that a line completes, mostly none.

        Raises:
            RetryableError: ``model_bad_chunk`` for what is no document of the provider in UTF-8
                JSON, ``model_error`` or ``model_rate_limited`` for an error that the server
                reports half-way.

        """
        if line.startswith(b"{"):  # no field of an event begins like this
            return self._document(line)
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            return []
        if line or not self._data:
            return []  # a comment, another field, or a blank line between events
        data, self._data = b"\n".join(self._data), []
        if data.strip() == DONE:
            self._reader.complete = self._reader.ended = True
            return []
        return self._document(data)

    def finish(self) -> list[Piece]:
        """Return the pieces that are left when the stream has ended.

        Raises:
            RetryableError: ``model_stream_cut`` when the model had not stopped yet.

        """
        pieces = self.feed(b"")  # an event whose blank line was lost with the connection
        if not self._reader.complete:
            raise RetryableError("the model's stream ended half-way", code="model_stream_cut")
        return pieces + self._reader.answer.rest()

    def _document(self, data: bytes) -> list[Piece]:
        try:
            document = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            bad(f"not JSON in UTF-8 ({error})")
        if not isinstance(document, dict):
            bad("not an object")
        return self._reader.read(document)
