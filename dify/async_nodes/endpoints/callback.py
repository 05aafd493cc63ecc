"""Take the news that a task has ended."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from dify_plugin import Endpoint
from node_client import kept
from node_client.parameters import TASK_ID
from node_client.webhooks import Refused, verified
from werkzeug import Request, Response

MOST = 256 << 10
"""Bytes of a message."""

_being_taken: set[str] = set()


class Callback(Endpoint):
    """Keep what was delivered, and start a workflow with it."""

    def _invoke(
        self, r: Request, values: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Response:
        if (r.content_length or 0) > MOST:
            return _answer(413, "a message may have 256 KiB")
        body = r.get_data()
        try:
            secret = str(settings.get("webhook_secret") or "")
            message = verified(r.headers, body, secret, time.time())
            said = json.loads(body)
            data = said["data"]
            task_id = data["task_id"]
        except Refused as error:
            return _answer(403, str(error))
        except (ValueError, KeyError, TypeError):
            return _answer(400, "the body must be JSON with data.task_id")
        if not isinstance(task_id, str) or not TASK_ID.fullmatch(task_id):
            return _answer(400, "data.task_id is no id of a task")
        return self._take(message, data, settings)

    def _take(self, message: str, data: dict[str, Any], settings: Mapping[str, Any]) -> Response:
        """Take a message once: a sender that hears nothing in its time sends it again."""
        if message in _being_taken:
            return _answer(409, "this message is being taken")
        _being_taken.add(message)
        try:
            if kept.knows(self.session.storage, message):
                return _answer(200, "taken before")
            self._start(settings, data)
            kept.keep(self.session.storage, message, data)
        finally:
            _being_taken.discard(message)
        return _answer(200, "taken")

    def _start(self, settings: Mapping[str, Any], data: dict[str, Any]) -> None:
        app = settings.get("app")
        if not isinstance(app, dict) or not app.get("app_id"):
            return
        inputs = {
            "task_id": data["task_id"],
            "status": str(data.get("state") or "").lower(),
            "result": json.dumps(data.get("output"), ensure_ascii=False),
        }
        self.session.app.workflow.invoke(
            app_id=app["app_id"], inputs=inputs, response_mode="blocking"
        )


def _answer(status: int, text: str) -> Response:
    return Response(json.dumps({"message": text}), status, content_type="application/json")
