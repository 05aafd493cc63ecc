"""Documents as a request brings them, and the pieces that they are cut into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from async_nodes.core.errors import TerminalError
from async_nodes.core.files import TAG
from async_nodes.core.ids import well_formed
from async_nodes.nodes.breathing import breathing
from async_nodes.nodes.file_text import part_of
from async_nodes.nodes.files import File
from async_nodes.nodes.rag_index import Index, Piece
from async_nodes.nodes.text_chunk import spans

if TYPE_CHECKING:
    from async_nodes.nodes.context import NodeContext

MAX_DOCUMENTS = 2_000
MAX_PIECES = 10_000


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """Hold a document as a request brings it: its text, or a file of text."""

    text: str | None = None
    file: File | None = None
    id: str = ""
    metadata: dict[str, Any] = {}


Documents = (
    str | Annotated[list[str | Document], msgspec.Meta(min_length=1, max_length=MAX_DOCUMENTS)]
)


def cut(
    ctx: NodeContext,
    documents: str | Sequence[str | Document],
    *,
    size: int,
    overlap: int,
    most: int,
) -> Index:
    """Return an index of documents, cut into pieces, without words and vectors yet.

    Args:
        ctx: the attempt's context, for files.
        documents: one or several; a text that is the id of a file stands for that file. What has
            no id is called by its file's name or, from 1, by its position.
        size: most characters of a piece.
        overlap: most characters that a piece repeats of the one before; at most half of `size`.
        most: characters of all documents together.

    Raises:
        TerminalError: ``invalid_inputs``, ``file_gone``.

    """
    if overlap > size // 2:
        raise TerminalError("overlap must be at most half of size", code="invalid_inputs")
    index = Index([], [])
    names: set[str] = set()
    left = most
    for number, given in enumerate([documents] if isinstance(documents, str) else documents):
        name, text = _read(ctx, given, number=number, most=left)
        left -= len(text)
        if left < 0:
            message = f"the documents have more than {most:,} characters together"
            raise TerminalError(message, code="invalid_inputs")
        if name in names:
            message = f"two documents have the id {name[:100]!r}"
            raise TerminalError(message, code="invalid_inputs")
        names.add(name)
        index.documents.append((name, given.metadata if isinstance(given, Document) else {}))
        _add_pieces(index, number, text, size=size, overlap=overlap)
    return index


def _add_pieces(index: Index, number: int, text: str, *, size: int, overlap: int) -> None:
    for start, end in breathing(spans(text, size=size, overlap=overlap)):
        piece = text[start:end]
        if piece.isspace():
            continue
        if len(index.pieces) == MAX_PIECES:
            message = f"the documents make more than {MAX_PIECES:,} pieces; raise size"
            raise TerminalError(message, code="invalid_inputs")
        index.pieces.append(Piece(number, start, piece))


def _read(ctx: NodeContext, given: str | Document, *, number: int, most: int) -> tuple[str, str]:
    """Return a document's name and its text, or more characters of it than `most`."""
    document = _document_of(ctx, given)
    if (document.text is None) == (document.file is None):
        message = f"document {number + 1} must have a text or a file"
        raise TerminalError(message, code="invalid_inputs")
    if document.file is None:
        return document.id or str(number + 1), document.text or ""
    text, _ = part_of(document.file, length=most + 1)
    return document.id or document.file.name, text


def _document_of(ctx: NodeContext, given: str | Document) -> Document:
    if isinstance(given, Document):
        return given
    if well_formed(given, TAG):
        return Document(file=ctx.files.open(given))
    return Document(text=given)
