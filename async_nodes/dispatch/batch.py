"""Step 1, submit: the body of a batch, split into its items without reading them.

Each item is read by itself later, so that what is wrong with one stays its own. Here is refused
what would make it unclear where an item begins or ends, and what would take too much memory.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from async_nodes.core import strict_json
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.request import MAX_REQUEST, invalid, unknown

MAX_ITEMS: Final = 1_000
MAX_BATCH: Final = 16 << 20
"""Bytes of a batch's body."""

MAX_MEMBERS: Final = 1_000_000
"""Members and elements in a batch; splitting takes some 60 bytes of memory for each at worst."""

_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_UNKNOWN: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    tasks: msgspec.Raw


_batch = msgspec.json.Decoder(_Batch)
_items = msgspec.json.Decoder(list[msgspec.Raw])


def split(raw: bytes) -> list[bytes]:
    """Return the items of ``{"tasks": […]}``, each as its own bytes.

    Raises:
        AsyncNodesError: ``not_json``, or ``invalid_request`` for a body that is no batch.

    """
    try:
        tasks = _batch.decode(raw).tasks
    except msgspec.ValidationError as error:
        raise _refused(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise AsyncNodesError("not_json", f"the text is not JSON: {error}", pointer="") from error
    whole = bytes(tasks)
    _check_around(raw, whole)
    _check_count(whole)
    try:
        items = _items.decode(whole)
    except msgspec.ValidationError as error:
        raise invalid("tasks must be a list", "/tasks") from error
    if not 1 <= len(items) <= MAX_ITEMS:
        raise invalid(f"tasks must be a list of 1 to {MAX_ITEMS}, not {len(items)}", "/tasks")
    return [bytes(item) for item in items]


def _refused(why: str) -> AsyncNodesError:
    found = _UNKNOWN.search(why)
    if found:
        return unknown(found[1], ["tasks"])
    if "missing" in why:
        return invalid("tasks is required: a list of requests", "/tasks")
    return invalid("the body must be a JSON object", "")


def _check_around(raw: bytes, tasks: bytes) -> None:
    """Refuse a key that is there twice, which only the strict reader sees."""
    before, _, after = raw.partition(tasks)
    if len(before) + len(after) > MAX_REQUEST:
        raise AsyncNodesError("body_too_large", "there is more around the tasks than in a request")
    strict_json.loads(before + b"[]" + after)


def _check_count(tasks: bytes) -> None:
    """Refuse more members than fit; commas in texts are none."""
    count = tasks.count(b",")
    if count > MAX_MEMBERS:
        count = _STRINGS.sub(b"", tasks).count(b",")
    if count > MAX_MEMBERS:
        detail = f"there are more than {MAX_MEMBERS} members and elements in all"
        raise AsyncNodesError("not_json", detail, pointer="/tasks")
