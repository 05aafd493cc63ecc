"""What a person sees when something goes wrong: a sentence, what to do, the code. No traceback."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from async_nodes.cli.language import is_chinese, tr

if TYPE_CHECKING:
    from async_nodes.core.errors import AsyncNodesError


class Failure(Exception):
    """End the command with a sentence that needs no entry in the catalogue.

    Args:
        detail: what happened, already in the person's language.
        hint: what to do about it.

    """

    def __init__(self, detail: str, hint: str = "") -> None:
        self.detail = detail
        self.hint = hint
        super().__init__(detail)


def explain(error: AsyncNodesError | Failure) -> str:
    """Return the lines that tell a person about an error."""
    if isinstance(error, Failure):
        return _lines(error.detail, error.hint, "")
    kind = error.kind
    detail, hint = error.detail, kind.hint
    if is_chinese():
        hint = kind.hint_zh
        detail = kind.title_zh if detail == kind.title else f"{kind.title_zh}: {detail}"
    wrong = error.extra.get("errors")
    parts = [detail, *_field_lines(wrong if isinstance(wrong, list) else [])]
    return _lines("\n".join(parts), hint, error.code)


def report(error: AsyncNodesError | Failure) -> None:
    """Write an error to stderr."""
    sys.stderr.write(explain(error) + "\n")


def _lines(detail: str, hint: str, code: str) -> str:
    first = f"{tr('error', '错误')}: {detail}"
    second = " ".join(part for part in (hint, f"[{code}]" if code else "") if part)
    return f"{first}\n  {second}" if second else first


def _field_lines(errors: list[object]) -> list[str]:
    """Return one line per wrong field; a single one is in the detail already."""
    fields = [item for item in errors if isinstance(item, dict)]
    if len(fields) < 2:  # noqa: PLR2004 - see above
        return []
    return [f"  {item.get('pointer', '')}: {item.get('detail', '')}" for item in fields]
