"""Step 1, submit: the whole story of a task from a request's bytes to the store's transaction.

Checks the request, gives it an id, composes what is stored (once, in the form in which it will be
served) and hands it to the store. Knows nothing of HTTP or Redis.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core import strict_json
from async_nodes.core.context import current
from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Accepted, Submission, Tasks
from async_nodes.core.priority import list_of
from async_nodes.core.states import NodeState
from async_nodes.dispatch import again
from async_nodes.dispatch.file_inputs import keep_files
from async_nodes.dispatch.request import MAX_TIMEOUT_MS, SubmitRequest, parse, parse_item
from async_nodes.telemetry import task_lines
from async_nodes.telemetry.task_lines import LINES
from async_nodes.telemetry.tracing import TRACING, Submit, given_to

if TYPE_CHECKING:
    from async_nodes.core.files import Files
    from async_nodes.core.ids import IdSource
    from async_nodes.nodes import NodeSpec
    from async_nodes.settings import Settings
    from async_nodes.storage.layout import Document

IDEMPOTENCY_DIGITS: Final = 32
_WITHOUT_PAUSE: Final = 0.005
"""Seconds for which a batch is read without letting others have their turn."""

_PAUSE: Final = 0.001
"""Seconds of a turn for others. With none, gevent would resume before it looks at its sockets."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Tell what became of a request.

    Attributes:
        task_id: the task, an earlier one when `replayed`.
        version, state: of its record now.
        created_ms: milliseconds since 1970, by the store's clock.
        replayed: an earlier request with the same key had made it.

    """

    task_id: str
    version: int
    state: NodeState
    created_ms: int
    replayed: bool

    @property
    def created_at(self) -> str:
        """Return the time of creation as the record shows it."""
        seconds, rest = divmod(self.created_ms, 1000)
        return f"{_to_the_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=8)
def _to_the_second(seconds: int) -> str:
    """Return a time without its milliseconds: thousands of tasks have it in common."""
    return iso(seconds * 1000).partition(".")[0]


def _anything(_list_name: str, _node: str) -> None:
    return None


class Submitter:
    """Accept tasks.

    Args:
        store: where they go.
        ids: makes their ids.
        registry: the nodes by name.
        settings: for the default time-out.
        clock: seconds since 1970; what a deadline is compared with.
        base: what the links of a record begin with, for an app that is mounted elsewhere than at
            the root.
        admit: refuses what is not let in, by its list and its node.
        files: a tenant's files; without it nobody looks whether those that inputs name are there.

    """

    def __init__(
        self,
        store: Tasks,
        ids: IdSource,
        registry: Mapping[str, NodeSpec],
        settings: Settings,
        clock: Callable[[], float] = time.time,
        *,
        base: str = "",
        admit: Callable[[str, str], None] = _anything,
        files: Callable[[str], Files] | None = None,
    ) -> None:
        self._store = store
        self._ids = ids
        self._registry = registry
        self._default_timeout_ms = round(settings.soft_time_limit * 1000)
        self._clock = clock
        self._base = base
        self._admit = admit
        self._files = files

    def submit(
        self,
        raw: bytes,
        *,
        tenant: str,
        idempotency_key: str = "",
        traceparent: str | None = None,
        scope: Mapping[str, Any] | None = None,
    ) -> Submitted:
        """Accept the task that a request's body asks for; when it returns, the task is stored.

        Args:
            raw: the body, JSON.
            tenant: whose task it is.
            idempotency_key: the client's own name for this request, empty for none.
            traceparent: the caller's trace (W3C).
            scope: values that travel with the task; those in force here when None.

        Raises:
            AsyncNodesError: ``not_json``, ``invalid_request``, ``invalid_inputs``,
                ``unknown_node``, ``idempotency_mismatch``, ``draining``; ``store_unavailable``
                when nothing was accepted; ``outcome_unknown`` with ``task_id``.

        """
        now_ms = int(self._clock() * 1000)
        request = parse(raw, self._registry, now_ms=now_ms)
        self._let_in(request, tenant, now_ms)
        trace = None if TRACING.spans is None else _trace(traceparent, request)
        submission = self._composed(
            request,
            self._ids.make(now_ms),
            tenant=tenant,
            key=idempotency_key,
            traceparent=given_to(trace, traceparent),
            scope=current().to_headers() if scope is None else scope,
        )
        return submitted(self._sent(submission, trace, request))

    def submit_many(
        self,
        items: Sequence[bytes],
        *,
        tenant: str,
        idempotency_key: str = "",
        traceparent: str | None = None,
        scope: Mapping[str, Any] | None = None,
    ) -> list[Submitted | AsyncNodesError]:
        """Accept many tasks, each by itself; return for each what `submit` would.

        Args:
            items: the requests, JSON; each may bring its own ``idempotency_key``.
            tenant: whose tasks they are.
            idempotency_key: the client's name for the whole; item i without a key of its own gets
                ``<key>/<i>``.
            traceparent: the caller's trace (W3C).
            scope: values that travel with the tasks; those in force here when None.

        Raises:
            AsyncNodesError: ``store_unavailable``: nothing was accepted.

        """
        now_ms = int(self._clock() * 1000)
        travelling = current().to_headers() if scope is None else scope
        # Of one millisecond, in order: lists go by time and then by id.
        ids = iter(sorted(self._ids.make(now_ms) for _ in items))
        answers: list[Submitted | AsyncNodesError | None] = []
        asked: list[Submission] = []
        traces: list[Submit | None] = []
        requests: list[SubmitRequest] = []
        paused = time.perf_counter()
        for index, raw in enumerate(items):
            if time.perf_counter() - paused > _WITHOUT_PAUSE:
                time.sleep(_PAUSE)
                paused = time.perf_counter()
            try:
                request, own_key = parse_item(raw, self._registry, now_ms=now_ms)
                self._let_in(request, tenant, now_ms)
            except AsyncNodesError as error:
                answers.append(error)
                continue
            answers.append(None)
            traces.append(_trace(traceparent, request))
            requests.append(request)
            key = own_key or (idempotency_key and f"{idempotency_key}/{index}")
            asked.append(
                self._composed(
                    request,
                    next(ids),
                    tenant=tenant,
                    key=key,
                    traceparent=given_to(traces[-1], traceparent),
                    scope=travelling,
                )
            )
        replies = self._store.submit_many(asked)
        for trace, reply in zip(traces, replies, strict=True):
            if trace is not None:
                trace.end(getattr(reply, "task_id", ""), getattr(reply, "code", ""))
        if LINES.on:
            for reply, sent, request in zip(replies, asked, requests, strict=True):
                _note(reply, sent, request)
        said = iter(replies)
        return [_answer(next(said)) if answer is None else answer for answer in answers]

    def retry(
        self,
        document: Document,
        raw: bytes = b"{}",
        *,
        tenant: str,
        idempotency_key: str = "",
        traceparent: str | None = None,
    ) -> Submitted:
        """Accept a new task that does again what an ended one was asked to do.

        Args:
            document: the ended task.
            raw: what is to be different, JSON; see `again`.
            tenant: whose task it is.
            idempotency_key: the client's own name for this request, empty for none.
            traceparent: the caller's trace (W3C).

        Raises:
            AsyncNodesError: ``task_not_finished``, and what `submit` raises.

        """
        now_ms = int(self._clock() * 1000)
        original = again.original_of(document)
        request = again.revised(original, raw, self._registry, now_ms=now_ms)
        self._let_in(request, tenant, now_ms)
        trace = _trace(traceparent, request)
        submission = self._composed(
            request,
            self._ids.make(now_ms),
            tenant=tenant,
            key=idempotency_key,
            traceparent=given_to(trace, traceparent),
            scope=original.scope,
            retry_of=original.task_id,
        )
        return submitted(self._sent(submission, trace, request))

    def _sent(
        self, submission: Submission, trace: Submit | None, request: SubmitRequest
    ) -> Accepted:
        """Send a task to the store; end its span and write its line where there is to be one."""
        try:
            said = self._store.submit(submission)
        except AsyncNodesError as error:
            if trace is not None:
                trace.end(code=error.code)
            raise
        if trace is not None:
            trace.end(said.task_id)
        if LINES.on:
            _note(said, submission, request)
        return said

    def _let_in(self, request: SubmitRequest, tenant: str, now_ms: int) -> None:
        spec = request.spec
        self._admit(list_of(spec.kind, request.priority), spec.name)
        if spec.inputs.takes_files and self._files is not None:
            keep_files(
                request,
                self._files(tenant),
                now_ms=now_ms,
                default_timeout_ms=self._default_timeout_ms,
            )

    def _composed(
        self, request: SubmitRequest, task_id: str, *, tenant: str, key: str, **more: Any
    ) -> Submission:
        return compose(
            request,
            task_id=task_id,
            tenant=tenant,
            default_timeout_ms=self._default_timeout_ms,
            idempotency=digest_of_key(tenant, key) if key else "",
            base=self._base,
            **more,
        )


def _note(said: Accepted | AsyncNodesError, submission: Submission, request: SubmitRequest) -> None:
    """Write the line of a task that is in the store since now."""
    if isinstance(said, Accepted) and not said.replayed:
        task_lines.accepted(said.task_id, request.spec.name, submission)


def _trace(traceparent: str | None, request: SubmitRequest) -> Submit | None:
    """Return the span of a submit, where it is traced."""
    if TRACING.spans is None:
        return None
    spec = request.spec
    return TRACING.spans.submit(traceparent, spec.name, list_of(spec.kind, request.priority))


def submitted(said: Accepted) -> Submitted:
    """Return what became of a request, from what the store has said."""
    return Submitted(said.task_id, said.version, said.state, said.created_ms, said.replayed)


def _answer(said: Accepted | AsyncNodesError) -> Submitted | AsyncNodesError:
    return said if isinstance(said, AsyncNodesError) else submitted(said)


def compose(  # noqa: PLR0913 - all that a task begins with
    request: SubmitRequest,
    *,
    task_id: str,
    tenant: str,
    default_timeout_ms: int,
    idempotency: str = "",
    traceparent: str | None = None,
    scope: Mapping[str, Any] | None = None,
    retry_of: str | None = None,
    base: str = "",
) -> Submission:
    """Return what the store keeps of a request, byte for byte.

    Redacted inputs stand in the public part as ``[redacted]`` and only the worker's part has
    them; otherwise the inputs are stored once, as the client's own bytes.
    """
    spec = request.spec
    timeout_ms = request.timeout_ms or _timeout_of(spec, default_timeout_ms)
    hidden, shown = b"", request.raw_inputs
    if spec.redact:
        redacted = spec.redacted(request.inputs)
        if redacted != request.inputs:
            hidden, shown = request.raw_inputs, strict_json.dumps(redacted)
    link = f"{base}/v1/tasks/{task_id}"
    before = _tail(request, link, timeout_ms, traceparent, retry_of)
    return Submission(
        task_id=task_id,
        tenant=tenant,
        list_name=list_of(spec.kind, request.priority),
        private=_private(request, traceparent, scope, hidden),
        tail=b"".join((before, shown, b",")),
        inputs_at=len(before),
        inputs_len=0 if hidden else len(shown),
        timeout_ms=timeout_ms,
        ttl_ms=request.ttl_ms,
        delay_ms=request.delay_ms,
        deadline_ms=request.deadline_ms,
        idempotency=idempotency,
        fingerprint=fingerprint(request, retry_of) if idempotency else "-",
    )


def digest_of_key(tenant: str, key: str) -> str:
    """Return what stands for a client's Idempotency-Key in the store; keys may hold secrets."""
    text = f"{tenant}\0{key}".encode()
    return hashlib.sha256(text).hexdigest()[:IDEMPOTENCY_DIGITS]


def fingerprint(request: SubmitRequest, retry_of: str | None = None) -> str:
    """Return a digest of what a request asks for: equal for requests that mean the same.

    Neither the layout of the JSON nor a default that is spelt out makes a difference. Defaults of
    the node are left out, because a deploy may change them between two sendings.
    """
    meaning = {
        "node": request.spec.name,
        "inputs": request.inputs,
        "priority": request.priority,
        "timeout_ms": request.timeout_ms,
        "deadline_ms": request.deadline_ms,
        "retry": request.retry.to_json() if request.retry else None,
        "delay_ms": request.delay_ms,
        "ttl_ms": request.ttl_ms,
        "tags": request.tags,
        "metadata": request.metadata,
    }
    if retry_of is not None:
        meaning["retry_of"] = retry_of
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _timeout_of(spec: NodeSpec, default_ms: int) -> int:
    wanted = default_ms if spec.timeout is None else round(spec.timeout * 1000)
    return min(max(wanted, 1), MAX_TIMEOUT_MS)


_NULL: Final = "null"
_json: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode  # made once: json.dumps would make it each time
_quoted: Final[Callable[[str], str]] = json.encoder.encode_basestring
"""The JSON of a text, as `_json` makes it."""


def _private(
    request: SubmitRequest,
    traceparent: str | None,
    scope: Mapping[str, Any] | None,
    hidden: bytes,
) -> bytes:
    """Return the worker's part; `hidden` are inputs that only it may see, as JSON."""
    text = (
        f'{{"node":{_quoted(request.spec.name)}'
        f',"retry":{_json(request.retry.to_json()) if request.retry else _NULL}'
        f',"scope":{_json(dict(scope)) if scope else _NULL}'
        f',"traceparent":{_quoted(traceparent) if traceparent else _NULL}'
    )
    if hidden:
        return b"".join((text.encode("utf-8"), b',"inputs":', hidden, b"}"))
    return (text + "}").encode("utf-8")


def links_of(link: str) -> str:
    """Return the ``links`` of the task at an address, as JSON."""
    return (
        f'{{"self":"{link}","events":"{link}/events","result":"{link}/result"'
        f',"logs":"{link}/logs","cancel":"{link}/cancel"}}'
    )


def _tail(
    request: SubmitRequest,
    link: str,
    timeout_ms: int,
    traceparent: str | None,
    retry_of: str | None,
) -> bytes:
    """Return the immutable part of the document up to the inputs."""
    text = (
        f'"node":{_quoted(request.spec.name)},"priority":{request.priority}'
        f',"timeout_ms":{timeout_ms}'
        f',"deadline":{_json(iso(request.deadline_ms)) if request.deadline_ms else _NULL}'
        f',"trace_id":{_quoted(traceparent.split("-")[1]) if traceparent else _NULL}'
        f',"parent_id":null,"retry_of":{_quoted(retry_of) if retry_of else _NULL}'
        f',"tags":{_json(request.tags) if request.tags else "[]"}'
        f',"metadata":{_json(request.metadata) if request.metadata else "{}"}'
        f',"links":{links_of(link)}'
        ',"inputs":'
    )
    return text.encode("utf-8")
