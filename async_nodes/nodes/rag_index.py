"""An index over the pieces of a few documents: their words and, if wanted, their vectors.

It lives in memory; as bytes it is kept among a tenant's blobs (see `rag_kept`), so that
``rag.answer`` need not cut and embed the documents again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from async_nodes.core.errors import RetryableError, TerminalError
from async_nodes.nodes.breathing import breathing
from async_nodes.nodes.rag_search import Bm25, cosine, fused, rows, top_k

MAX_BYTES = 12 << 20
"""Bytes of an index as it is kept."""

FORM = 1
RANKED = 50
"""Places of each ranking that count, at least, when two are joined."""

Found = list[tuple[int, float]]
"""Numbers of pieces with their scores, best first."""


class Piece(msgspec.Struct, array_like=True, frozen=True):
    """Hold a piece of a document: the document's number, where it starts there, its text."""

    document: int
    start: int
    text: str


class _Kept(msgspec.Struct, array_like=True):
    form: int
    documents: list[tuple[str, dict[str, Any]]]
    pieces: list[Piece]
    model: str
    asked: int | None
    width: int
    vectors: bytes


@dataclass(slots=True)
class Index:
    """Find pieces of documents.

    Attributes:
        documents: id and metadata of each.
        pieces: in the order of the documents.
        model: what has made the vectors; empty without vectors.
        asked: the length of vectors that the model was asked for, if it was.
        width: numbers of a vector.
        vectors: of length 1, one piece's after the other's.
        words: the pieces' words.

    """

    documents: list[tuple[str, dict[str, Any]]]
    pieces: list[Piece]
    model: str = ""
    asked: int | None = None
    width: int = 0
    vectors: array[float] = field(default_factory=lambda: array("f"))
    words: Bm25 = field(default_factory=Bm25)

    def read_words(self) -> None:
        """Make the pieces findable by their words."""
        for piece in breathing(self.pieces):
            self.words.add(piece.text)

    def take_vectors(
        self, vectors: Iterable[Sequence[float]], *, model: str, asked: int | None
    ) -> None:
        """Make the pieces findable by vectors.

        Args:
            vectors: of length 1, one a piece; not all are taken when they will not fit.
            model: what makes them.
            asked: the length that it was asked for.

        Raises:
            TerminalError: ``output_too_large``.
            RetryableError: ``model_bad_output`` when they differ in length.

        """
        self.model, self.asked, self.width, self.vectors = model, asked, 0, array("f")
        for vector in breathing(vectors):
            if not self.width:
                self.width = len(vector)
                self._check_room()
            if len(vector) != self.width:
                message = "the model server sent vectors of different lengths"
                raise RetryableError(message, code="model_bad_output")
            self.vectors.extend(vector)

    def _check_room(self) -> None:
        size = len(self.pieces) * self.width * self.vectors.itemsize
        if size > MAX_BYTES:
            message = (
                f"{len(self.pieces):,} vectors of {self.width:,} numbers have {size:,} bytes; "
                f"{MAX_BYTES:,} are allowed: ask for fewer dimensions or larger pieces"
            )
            raise TerminalError(message, code="output_too_large")

    def by_words(self, question: str, count: int) -> Found:
        """Return the best pieces' numbers by BM25."""
        return top_k(self.words.scores(question), count)

    def by_vector(self, vector: Sequence[float], count: int) -> Found:
        """Return the best pieces' numbers by cosine.

        Args:
            vector: of length 1.
            count: how many.

        Raises:
            TerminalError: ``invalid_inputs`` for a vector with more or fewer numbers.

        """
        if len(vector) != self.width:
            message = f"the question's vector has {len(vector)} numbers, the index's {self.width}"
            raise TerminalError(message, code="invalid_inputs")
        found = breathing(rows(self.vectors, self.width))
        return top_k({number: cosine(vector, row) for number, row in enumerate(found)}, count)

    def by_both(self, question: str, vector: Sequence[float], count: int) -> Found:
        """Return the best pieces' numbers by both rankings together."""
        most = max(count, RANKED)
        both = (self.by_words(question, most), self.by_vector(vector, most))
        return top_k(fused([number for number, _ in found] for found in both), count)

    def to_bytes(self) -> bytes:
        """Return what `of_bytes` reads.

        Raises:
            TerminalError: ``output_too_large``.

        """
        kept = _Kept(
            FORM,
            self.documents,
            self.pieces,
            self.model,
            self.asked,
            self.width,
            self.vectors.tobytes(),
        )
        data = msgspec.msgpack.encode(kept)
        if len(data) > MAX_BYTES:
            message = f"the index has {len(data):,} bytes; {MAX_BYTES:,} are allowed"
            raise TerminalError(message, code="output_too_large")
        return data

    @classmethod
    def of_bytes(cls, data: bytes | memoryview) -> Index:
        """Return the index that `to_bytes` has made bytes of.

        Raises:
            ValueError: another version has made them, or somebody else.

        """
        kept = msgspec.msgpack.decode(data, type=_Kept)
        vectors = array("f")
        vectors.frombytes(kept.vectors)
        if kept.form != FORM or len(vectors) != kept.width * len(kept.pieces):
            raise ValueError("not an index of this version")
        index = cls(kept.documents, kept.pieces, kept.model, kept.asked, kept.width, vectors)
        index.read_words()
        return index
