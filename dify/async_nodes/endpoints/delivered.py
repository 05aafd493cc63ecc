"""Show what was delivered about a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dify_plugin import Endpoint
from node_client import kept
from node_client.parameters import TASK_ID
from werkzeug import Request, Response


class Delivered(Endpoint):
    """Give what the callback has kept; the endpoint's own address is the secret."""

    def _invoke(
        self, r: Request, values: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Response:
        task_id = str(values.get("task_id") or "")
        known = TASK_ID.fullmatch(task_id)
        if known and (found := kept.find(self.session.storage, task_id)):
            return Response(found, 200, content_type="application/json")
        said = json.dumps({"message": "nothing was delivered about this task"})
        return Response(said, 404, content_type="application/json")
