"""What may be shown of settings and addresses: everything but the secrets.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

SECRET: Final = re.compile(r"(api_key|password|secret|secret_access_key|security_key|token)$")


def masked(url: str) -> str:
    """Return an address without its password, for logs and messages."""
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
