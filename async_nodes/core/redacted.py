"""What may be shown of settings, addresses and texts: everything but the secrets.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

SECRET: Final = re.compile(r"(api_key|password|secret|secret_access_key|security_key|token)$")


SHORTEST: Final = 6
"""Characters of a secret that is looked for in texts: shorter ones would be found everywhere."""


def hider(values: Iterable[Any], mark: str) -> Callable[[str], str]:
    """Return what puts a mark in the place of secrets, wherever they stand in a text.

    Args:
        values: the secrets: texts, or JSON that holds them.
        mark: what is seen instead.

    """
    secrets = {text for value in values for text in _texts(value) if len(text) >= SHORTEST}
    if not secrets:
        return str
    longest_first = sorted(secrets, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: pattern.sub(lambda _found: mark, text)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def masked(url: str) -> str:
    """Return an address without its passwords, for logs and messages."""
    url = re.sub(r"([?&]\w*password=)[^&#\s]*", r"\1***", url)
    return re.sub(r"(://[^/?#@:]*):[^@/]*(?:/[^@]*)?@", r"\1:***@", url)


def without_secrets(value: Any, name: str = "") -> Any:
    """Return a copy of ``value``, of the setting ``name``, in JSON types and without passwords."""
    if isinstance(value, Mapping):
        return {key: without_secrets(item, str(key)) for key, item in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item, name) for item in value]
    if value is not None and SECRET.search(name):
        return "***"
    return masked(value) if isinstance(value, str) else value
