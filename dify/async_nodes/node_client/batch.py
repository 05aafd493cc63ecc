"""Many tasks at once: what is sent, when they have ended, how they are counted. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from node_client import outcome
from node_client.following import ENDED

MOST = 1_000


def result_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a task of a batch has become."""
    shown = outcome.variables(record, record.get("output"))
    kept = ("task_id", "status", "result", "error_code", "error_message")
    return {name: shown[name] for name in kept}


def refused(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the same of an item that was not accepted."""
    error = answer.get("error") or {}
    return {
        "task_id": "",
        "status": "failed",
        "result": {"value": None},
        "error_code": error.get("code") or "refused",
        "error_message": error.get("detail") or error.get("title") or "",
    }


def gone(task_id: str) -> dict[str, Any]:
    """Return what stands for the record of a task that was removed meanwhile."""
    error = {"code": "gone", "message": "the record was removed before it was read"}
    return {"task_id": task_id, "state": "Failed", "error": error}


def is_over(records: Iterable[dict[str, Any]]) -> bool:
    """Tell whether every task has ended."""
    return all(record["state"] in ENDED for record in records)


def variables(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the variables of the whole batch, the results within the bound of a line."""
    succeeded = sum(one["status"] == "succeeded" for one in results)
    failed = sum(one["status"] in ("failed", "cancelled") for one in results)
    unfinished = len(results) - succeeded - failed
    if unfinished:
        started = any(one["status"] != "pending" for one in results)
        status = "running" if started else "pending"
    else:
        status = "failed" if failed else "succeeded"
    return {
        "status": status,
        "task_ids": [one["task_id"] for one in results],
        "results": within(results),
        "succeeded": succeeded,
        "failed": failed,
        "unfinished": unfinished,
    }


def within(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return results, those beyond the bound without what they hold: get_task reads them."""
    left = outcome.INLINE
    kept = []
    for one in results:
        left -= len(json.dumps(one, ensure_ascii=False).encode())
        kept.append(one if left >= 0 else {**one, "result": {"left_out": True}})
    return kept
