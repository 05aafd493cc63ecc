"""Take the news that a task has ended."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from dify_plugin import Endpoint
from node_client.parameters import TASK_ID
from node_client.webhooks import Refused, verified
from werkzeug import Request, Response

MOST = 256 << 10
"""Bytes of a message; what Dify stores for a plugin is little."""


class Callback(Endpoint):
    """Keep what was delivered, and start a workflow with it."""

    def _invoke(
        self, r: Request, values: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Response:
        if (r.content_length or 0) > MOST:
            return _answer(413, "a message may have 256 KiB")
        body = r.get_data()
        try:
            verified(r.headers, body, str(settings.get("webhook_secret") or ""), time.time())
            said = json.loads(body)
            data = said["data"]
            task_id = data["task_id"]
        except Refused as error:
            return _answer(403, str(error))
        except (ValueError, KeyError, TypeError):
            return _answer(400, "the body must be JSON with data.task_id")
        if not isinstance(task_id, str) or not TASK_ID.fullmatch(task_id):
            return _answer(400, "data.task_id is no id of a task")
        self.session.storage.set(task_id, json.dumps(data).encode())
        self._start(settings, data)
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
