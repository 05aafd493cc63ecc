"""Read a node's inputs from the command line: ``key=text``, ``key:=json``, ``key=@path``. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from async_nodes.core.errors import AsyncNodesError

_SHOWN = 40
_ITEM = re.compile(r"(?P<key>[^=:]+)(?P<kind>:?=)(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Upload:
    """Stand for a file that is to be uploaded, and then for its id."""

    path: Path


def parse(items: Iterable[str]) -> dict[str, Any]:
    """Return the inputs that ``items`` spell.

    ``key=value`` is text as it stands, ``key:=value`` is JSON (a number, a list, ``null``, …),
    ``key=@path`` an `Upload`.

    Raises:
        Failure: an item is neither, its JSON is wrong, or a key comes twice.

    """
    inputs: dict[str, Any] = {}
    for item in items:
        found = _ITEM.fullmatch(item)
        if found is None:
            raise Failure(
                tr(f"{item!r} is not an input", f"{item!r} 不是输入"),
                tr(
                    "Write key=text, key:=json or key=@path.",
                    "请写成 键=文本、键:=JSON 或 键=@路径。",
                ),
            )
        key, kind, text = found["key"], found["kind"], found["value"]
        if key in inputs:
            raise Failure(tr(f"the input {key!r} is given twice", f"输入 {key!r} 重复"))
        inputs[key] = _json(key, text) if kind == ":=" else _text_or_file(key, text)
    return inputs


def advised(error: AsyncNodesError, inputs: Mapping[str, Any]) -> AsyncNodesError | Failure:
    """Return a server's refusal, with the other spelling where a text stands for a JSON value."""
    faults = error.extra.get("errors")
    for fault in faults if isinstance(faults, list) else []:
        key = str(fault.get("pointer", "")).removeprefix("/inputs/")
        if isinstance(inputs.get(key), str) and "got `str`" in str(fault.get("detail")):
            value = "…" if len(inputs[key]) > _SHOWN else inputs[key]
            spelt = f"{key}:={value}"
            hint = tr(
                f"{key}=… is text; for a number, true or a list write {spelt}",
                f"{key}=… 是文本;数字、true 或列表请写成 {spelt}",
            )
            return Failure(f"{error.detail} [{error.code}]", hint)
    return error


def _json(key: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        detail = tr(f"the value of {key!r} is not JSON: {error}", f"{key!r} 的值不是 JSON:{error}")
        hint = tr(f"For text write {key}=… instead.", f"文本请写成 {key}=…。")
        raise Failure(detail, hint) from error


def _refuse(name: str) -> NoReturn:
    message = f"{name} is no JSON number"
    raise ValueError(message)


def _text_or_file(key: str, text: str) -> str | Upload:
    return Upload(Path(text[1:])) if text.startswith("@") else _text(key, text)


def _text(key: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Failure(tr(f"the value of {key!r} is not UTF-8", f"{key!r} 的值不是 UTF-8")) from None
    return text
