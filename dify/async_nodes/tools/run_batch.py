"""Run a node for each of many items."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities import ParameterOption
from dify_plugin.entities.tool import ToolInvokeMessage
from gevent.pool import Pool
from node_client import batch, outcome
from node_client.choices import node_options
from node_client.errors import (
    AsyncNodesNotFound,
    AsyncNodesOverloaded,
    AsyncNodesTaskFailed,
    AsyncNodesTimeout,
    AsyncNodesUnavailable,
)
from node_client.parameters import Manner, json_items, manner, text
from node_client.running import STREAM, common, result_within, seconds_left
from node_client.service import Service

A_CANCEL = 0.02
"""Seconds for which each task that may have to be cancelled shortens the longest wait."""

CANCELS = Pool(50)
"""Time is up when tasks are cancelled: one after the other, a thousand would take too long."""


class RunBatch(Tool):
    """Submit a task for each item and give their outcomes in the items' order."""

    def _invoke(self, tool_parameters: dict[str, Any]) -> Generator[ToolInvokeMessage]:
        given, how = tool_parameters, manner({"on_failure": "return", **tool_parameters})
        service = Service(self.runtime.credentials)
        answers = service.submit_many(_requests(given, how), text(given, "idempotency_key"))
        records = {
            one["task_id"]: {"state": "Pending", **one} for one in answers if one.get("task_id")
        }
        if how.mode == "wait":
            yield from self._await(service, records, how)
        results = _results(service, answers, records)
        values = batch.variables(results)
        if how.on_failure == "fail" and values["failed"]:
            first = next(one for one in results if one["status"] in ("failed", "cancelled"))
            message = (
                f"{values['failed']} of {len(results)} tasks have failed, the first: "
                f"{first['error_message']} [{first['error_code']}] (task {first['task_id']})"
            )
            raise AsyncNodesTaskFailed(message)
        yield self.create_text_message(
            f"{values['succeeded']} succeeded, {values['failed']} failed, "
            f"{values['unfinished']} unfinished"
        )
        yield self.create_json_message(values)
        for name, value in values.items():
            yield self.create_variable_message(name, value)

    def _await(
        self, service: Service, records: dict[str, dict[str, Any]], how: Manner
    ) -> Generator[ToolInvokeMessage]:
        """Read the tasks until all have ended or time is up; keep what was read in `records`."""
        spare = A_CANCEL * len(records) if how.on_timeout == "cancel" else 0.0
        until = time.monotonic() + seconds_left(service, how, spare)
        pause, said = 0.3, -1
        while not batch.is_over(records.values()):
            self._look(service, records)
            over = sum(batch.is_over([one]) for one in records.values())
            if over != said:
                yield self.create_stream_variable_message(STREAM, f"{over}/{len(records)}\n")
                said = over
            else:
                yield self.create_log_message("run_batch", {"ended": over, "of": len(records)})
            left = until - time.monotonic()
            if left <= 0:
                self._late(service, records, how)
                return
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, 3.0)

    def _look(self, service: Service, records: dict[str, dict[str, Any]]) -> None:
        """Read those that have not ended; a service that is away is asked again later."""
        waiting = [name for name, one in records.items() if not batch.is_over([one])]
        try:
            found, missing = service.read_many(waiting)
        except (AsyncNodesOverloaded, AsyncNodesUnavailable):
            return
        records.update((record["task_id"], record) for record in found)
        records.update((name, batch.gone(name)) for name in missing)

    def _late(self, service: Service, records: dict[str, dict[str, Any]], how: Manner) -> None:
        waiting = [name for name, one in records.items() if not batch.is_over([one])]
        if how.on_timeout == "fail" and waiting:
            message = f"{len(waiting)} of {len(records)} tasks need longer than {how.seconds:g} s"
            raise AsyncNodesTimeout(message)
        if how.on_timeout == "cancel":
            cancelled = CANCELS.map(lambda name: _cancelled(service, name), waiting)
            records.update(zip(waiting, cancelled, strict=True))

    def _fetch_parameter_options(self, parameter: str) -> list[ParameterOption]:
        return node_options(self.runtime.credentials) if parameter == "node" else []


def _cancelled(service: Service, task_id: str) -> dict[str, Any]:
    try:
        return service.cancel(task_id, wait=0)
    except AsyncNodesNotFound:
        return batch.gone(task_id)


def _results(
    service: Service, answers: list[dict[str, Any]], records: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return what each item has become, with the outputs as long as there is room for them."""
    room = outcome.INLINE
    results = []
    for answer in answers:
        if not answer.get("task_id"):
            results.append(batch.refused(answer))
            continue
        try:
            record = result_within(service, records[answer["task_id"]], room)
        except AsyncNodesNotFound:
            record = batch.gone(answer["task_id"])
        room = max(0, room - int(record.get("output_bytes") or 0))
        results.append(batch.result_of(record))
    return results


def _requests(given: dict[str, Any], how: Manner) -> list[dict[str, Any]]:
    shared = {**common(given, how), "node": text(given, "node", required=True)}
    return [{**shared, "inputs": item} for item in json_items(given, "items_json", batch.MOST)]
