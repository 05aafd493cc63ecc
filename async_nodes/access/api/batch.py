"""Step 5, expose: ``POST /v1/tasks/batch``, many submits in one request, each by itself."""

from __future__ import annotations

from collections import Counter
from typing import Final

from flask import Blueprint, Response, g, request

from async_nodes.access import negotiate, problems
from async_nodes.access.api.answers import JSON, body_of_request, idempotency_key, link
from async_nodes.access.guard import check_content_type
from async_nodes.access.services import Provider, Services
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.strict_json import dumps
from async_nodes.dispatch.batch import MAX_BATCH, split
from async_nodes.dispatch.submit import Submitted, links_of
from async_nodes.telemetry import metrics

_ACCEPTED: Final = (
    '{"index":%d,"status":202,"task_id":"%s","state":"%s","version":%d,"created_at":"%s",'
    '"links":%s,"replayed":%s}'
)


def blueprint(provider: Provider) -> Blueprint:
    """Return the route."""
    made = Blueprint("batch", __name__)

    @made.post("/v1/tasks/batch")
    def submit_tasks() -> Response:
        return submit(provider())

    return made


def submit(services: Services) -> Response:
    """Accept many tasks: 200 with what became of each, in their order."""
    check_content_type(request.content_type)
    key = idempotency_key()
    answers = services.submitter.submit_many(
        split(body_of_request(MAX_BATCH)),
        tenant=g.tenant,
        idempotency_key=key,
        traceparent=g.traceparent,
    )
    for outcome, count in Counter(map(_outcome, answers)).items():
        metrics.submits(outcome).inc(count)
    tongue = negotiate.language(request.headers.get("Accept-Language"))
    results = [
        _accepted(index, answer)
        if isinstance(answer, Submitted)
        else _refused(index, answer, tongue)
        for index, answer in enumerate(answers)
    ]
    accepted = sum(isinstance(answer, Submitted) for answer in answers)
    text = (
        f'{{"accepted":{accepted},"refused":{len(answers) - accepted}'
        f',"results":[{",".join(results)}]}}'
    )
    response = Response(text, content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    return response


def _outcome(answer: Submitted | AsyncNodesError) -> str:
    if isinstance(answer, AsyncNodesError):
        return answer.code
    return "replayed" if answer.replayed else "accepted"


def _accepted(index: int, done: Submitted) -> str:
    return _ACCEPTED % (
        index,
        done.task_id,
        done.state.value,
        done.version,
        done.created_at,
        links_of(link(done.task_id)),
        "true" if done.replayed else "false",
    )


def _refused(index: int, error: AsyncNodesError, tongue: str) -> str:
    """Return what became of an item; places in it are told as places in the whole body."""
    place = f"/tasks/{index}"
    problem = problems.document(error, language=tongue, base=g.base)
    if "pointer" in problem:
        problem["pointer"] = place + problem["pointer"]
    for fault in problem.get("errors", ()):
        fault["pointer"] = place + fault["pointer"]
    members = {"index": index, "status": error.status, "error": problem}
    if error.retry_after is not None:
        members["retry_after"] = error.retry_after
    return dumps(members).decode()
