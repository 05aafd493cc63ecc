"""What the tools do: submit, wait, and give the outcome to Dify."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from dify_plugin import Tool
from dify_plugin.entities.tool import ToolInvokeMessage
from dify_plugin.file.file import File

from node_client import outcome
from node_client.errors import (
    AsyncNodesInvalidInput,
    AsyncNodesNotFound,
    AsyncNodesOverloaded,
    AsyncNodesTimeout,
    AsyncNodesUnavailable,
)
from node_client.following import ENDED, follow
from node_client.parameters import LONGEST, Manner, expiry, manner, priority, tags, text
from node_client.service import LAST, Service

STREAM = "stream_text"
MOST_FILE = 50 << 20

Messages = Iterator[ToolInvokeMessage]


def run(
    tool: Tool, service: Service, node: str, inputs: dict[str, Any], given: Mapping[str, Any]
) -> Messages:
    """Submit a task and, unless told otherwise, wait for it."""
    how = manner(given)
    request = {**common(given, how), "node": node, "inputs": inputs, "metadata": _whence(tool)}
    record = service.submit(request, text(given, "idempotency_key"))
    if how.mode == "submit":
        record.setdefault("state", "Pending")
        yield from show(tool, service, record)
        return
    yield from await_end(tool, service, record["task_id"], how)


def common(given: Mapping[str, Any], how: Manner) -> dict[str, Any]:
    """Return what a request says beside its node and inputs."""
    found: dict[str, Any] = {
        "tags": ["dify", *tags(given)],
        "timeout_ms": round(how.run_seconds * 1000),
    }
    if (urgency := priority(given)) is not None:
        found["priority"] = urgency
    if (moment := expiry(how.expires, datetime.now(UTC))) is not None:
        found["deadline"] = moment
    return found


def await_end(tool: Tool, service: Service, task_id: str, how: Manner) -> Messages:
    """Wait for a task, stream what it says, and give how it ended, or how far it is in time."""
    record: dict[str, Any] | None = None
    state = ""
    for piece in follow(service, task_id, seconds_left(service, how)):
        if piece.kind == "end":
            record, state = piece.record, piece.text
        elif piece.kind == how.stream and piece.text:
            line = piece.text if how.stream == "text" else piece.text + "\n"
            yield tool.create_stream_variable_message(STREAM, line)
        else:  # agents show it, workflows drop it; either way Dify hears that the call lives
            said = {"task_id": task_id, "said": piece.text or "waiting"}
            yield tool.create_log_message(task_id, said)
    if record is None:
        record = _when_late(service, {"task_id": task_id, "state": state}, how)
    if how.on_failure == "fail":
        outcome.check(record)
    yield from show(tool, service, record)


def seconds_left(service: Service, how: Manner, spare: float = 0.0) -> float:
    """Return how long to wait: what came before counts, and what comes after takes a moment."""
    return min(how.seconds, service.left() - (LAST - LONGEST) - spare)


def _when_late(service: Service, known: dict[str, Any], how: Manner) -> dict[str, Any]:
    """Return the record of a task that needs longer, as far as `known` where nobody answers."""
    task_id, cancel = known["task_id"], how.on_timeout == "cancel"
    try:
        record = service.cancel(task_id) if cancel else service.read(task_id)
    except (AsyncNodesOverloaded, AsyncNodesUnavailable):
        if how.on_timeout != "return":
            raise
        record = known
    late = record["state"] == "Cancelled" if cancel else record["state"] not in ENDED
    if late and (how.on_timeout == "fail" or (cancel and how.on_failure == "fail")):
        what = "was cancelled" if cancel else "goes on"
        message = f"the task {task_id} needs longer than {how.seconds:g} s and {what}"
        raise AsyncNodesTimeout(message)
    return record


def show(tool: Tool, service: Service, record: dict[str, Any]) -> Messages:
    """Give a record to Dify: every variable, the text, the JSON, and files."""
    output, large = _output(service, record)
    values = outcome.variables(record, output)
    if large is not None:
        values["result_url"] = service.result_url(record["task_id"])
        meta = {"mime_type": "application/json", "filename": f"{record['task_id']}.json"}
        yield tool.create_blob_message(large, meta)
    yield from _files(tool, service, output)
    yield tool.create_text_message(outcome.as_text(record, output))
    yield tool.create_json_message(values)
    for name, value in values.items():
        yield tool.create_variable_message(name, value)


def _output(service: Service, record: dict[str, Any]) -> tuple[Any, bytes | None]:
    """Return the output as a value or, where that is too large, as a file."""
    if record.get("output") is not None or not record.get("output_bytes"):
        return record.get("output"), None
    data = service.result(record["task_id"])
    if len(data) > outcome.INLINE:
        return None, data
    return json.loads(data), None


def result_within(service: Service, record: dict[str, Any], room: int) -> dict[str, Any]:
    """Return a record with its output, where that has not more than so many bytes."""
    if int(record.get("output_bytes") or 0) > room:
        return {**record, "output": {"left_out": True}}
    return {**record, "output": _output(service, record)[0]}


def _files(tool: Tool, service: Service, output: Any) -> Messages:
    """Hand over the files that an output names; one that is gone meanwhile is passed over."""
    for place, file in enumerate(outcome.files_in(output)):
        if place == outcome.MOST_FILES:
            break
        size = file.get("size")
        if isinstance(size, int) and size > MOST_FILE:
            continue
        try:
            content = service.content(file["file_id"])
        except AsyncNodesNotFound:
            continue
        meta = {
            "mime_type": str(file.get("media_type") or "application/octet-stream"),
            "filename": str(file.get("name") or file["file_id"]),
        }
        yield tool.create_blob_message(content, meta)


def uploaded(service: Service, files: Any, node: str, name: str) -> str | list[str]:
    """Put files into the service at once, because Dify's addresses of them die after 300 s.

    Returns:
        What the node's input `name` wants: the id of a file, or a list of ids.

    """
    given = files if isinstance(files, list) else [files]
    if not all(isinstance(file, File) for file in given):
        raise AsyncNodesInvalidInput("files must hold files of Dify")
    takes_list = service.takes_list(node, name)
    if len(given) > 1 and not takes_list:
        message = f"the input {name} of {node} takes one file, {len(given)} were given"
        raise AsyncNodesInvalidInput(message)
    ids = [_uploaded(service, file) for file in given]
    return ids if takes_list else ids[0]


def _uploaded(service: Service, file: File) -> str:
    try:
        content = file.blob
    except Exception as error:  # whatever the SDK raises, no task is submitted without its file
        message = f"the file {file.filename or ''} could not be fetched from Dify: {error}"
        raise AsyncNodesInvalidInput(message) from error
    return service.upload(content, file.filename or "file", file.mime_type or "")


def _whence(tool: Tool) -> dict[str, str]:
    """Return who calls, as far as Dify tells."""
    session = tool.session
    found = {
        "user_id": tool.runtime.user_id,
        "app_id": session.app_id,
        "conversation_id": session.conversation_id,
        "message_id": session.message_id,
    }
    return {"dify": {name: str(value)[:200] for name, value in found.items() if value}}
