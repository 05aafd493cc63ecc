"""Spans of the five steps of a task's way, sent by OTLP, where ASYNC_NODES_TRACE_SAMPLE is set.

    submit    the request's task goes to the store           child of the client's span
    dispatch  from there until a worker claims it            child of submit
    execute   the body; what it calls carries this span on   child of dispatch
    store     the end is written                             child of execute
    expose    an HTTP request is answered                    child of its client's span

The flag in a ``traceparent`` decides, once: a client's own, else the share that the setting names,
by the trace's id. What is not sampled costs a look at that flag. Names and attributes are those of
OpenTelemetry's conventions for messaging, HTTP and generative AI. The libraries are an extra,
imported here and nowhere else; where the spans go is told by their own variables, such as
``OTEL_EXPORTER_OTLP_ENDPOINT``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import NULL
from async_nodes.core.states import EventType
from async_nodes.version import __version__

if TYPE_CHECKING:
    from async_nodes.core.ports import Claim, Ending, Finished

_ODD: Final = frozenset("13579bdf")
NOTHING: Final = ""
_HEX: Final = 8
_TOKENS: Final[Mapping[str, str]] = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "input_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
}
_OPERATIONS: Final[Mapping[str, str]] = {
    "llm.chat": "chat",
    "embedding": "embeddings",
    "rag.answer": "chat",
}
"""Nodes that call models, by the operation that the conventions name."""


class Tracing:
    """Say whether and what this process traces.

    Attributes:
        bound: traces whose id begins below these hexadecimal digits are sampled; empty for none.
        spans: makes the spans, None where nothing is traced.

    """

    def __init__(self) -> None:
        self.bound = NOTHING
        self.spans: Spans | None = None


TRACING: Final = Tracing()
"""Of this process."""


def start(sample: float | None, service: str) -> None:
    """Begin to trace, where that is asked for; again does nothing.

    Args:
        sample: the share of requests without a trace of their own that are traced, 0 to 1.
        service: the name of this kind of process.

    Raises:
        AsyncNodesError: ``invalid_setting``: the extra is not installed.

    """
    if sample is None or TRACING.spans is not None:
        return
    TRACING.spans = Spans(service)
    TRACING.bound = bound_of(sample)


def stop() -> None:
    """Send what is left, and trace no more."""
    spans, TRACING.spans, TRACING.bound = TRACING.spans, None, NOTHING
    if spans is not None:
        spans.close()


def bound_of(sample: float) -> str:
    """Return the hexadecimal digits below which an id is sampled; all ids are below ``g``."""
    if sample >= 1:
        return "g"
    return f"{int(sample * 16**_HEX):0{_HEX}x}" if sample > 0 else NOTHING


def flags_of(trace_id: str) -> str:
    """Return the flags of a trace that begins here."""
    return "01" if trace_id[:_HEX] < TRACING.bound else "00"


def is_sampled(traceparent: str | None) -> bool:
    """Tell whether somebody keeps a trace: by the last bit of its flags."""
    return traceparent is not None and traceparent[-1:] in _ODD


class Spans:
    """Make spans and send them.

    Args:
        service: the name of this kind of process.

    """

    def __init__(self, service: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
        except ImportError as error:
            message = f"needs the extra: pip install 'async_nodes[otel]' ({error})"
            raise AsyncNodesError(
                "invalid_setting", f"ASYNC_NODES_TRACE_SAMPLE {message}"
            ) from error
        self._api = trace
        # An operator's own words about the service win: the SDK reads them from the environment.
        named = {"service.name": f"async-nodes-{service}", "service.version": __version__}
        if os.environ.get("OTEL_SERVICE_NAME"):
            del named["service.name"]
        self._provider = TracerProvider(
            resource=Resource.create(named), sampler=ParentBased(ALWAYS_OFF)
        )
        delay = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else 1000
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=delay)
        )
        self._tracer = self._provider.get_tracer("async_nodes", __version__)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def begin(
        self,
        name: str,
        traceparent: str,
        kind: str,
        attributes: Mapping[str, Any],
        *,
        at_ms: float | None = None,
    ) -> Any:
        """Return a span that has begun; its parent is the one that a ``traceparent`` names."""
        api = self._api
        _, trace_id, span_id, flags = traceparent.split("-")
        context = api.SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True,
            trace_flags=api.TraceFlags(int(flags, 16)),
        )  # fmt: skip
        return self._tracer.start_span(
            name,
            context=api.set_span_in_context(api.NonRecordingSpan(context)),
            kind=api.SpanKind[kind],
            attributes=attributes,
            start_time=None if at_ms is None else int(at_ms * 1e6),
        )

    def submit(self, traceparent: str | None, node: str, list_name: str) -> Submit | None:
        """Return the span of a submit, None where its trace is not sampled."""
        if traceparent is None or not is_sampled(traceparent):
            return None
        return Submit(self, traceparent, node, list_name)

    def expose(self, route: tuple[str, str], status: int, traceparent: str, seconds: float) -> None:
        """Make the span of a request that was just answered.

        Args:
            route: the route and the method.
            status: of the answer.
            traceparent: of the request.
            seconds: it took.

        """
        if not is_sampled(traceparent):
            return
        path, method = route
        attributes = {
            "http.request.method": method,
            "http.route": path,
            "http.response.status_code": status,
        }
        begun = time.time() - seconds
        span = self.begin(f"{method} {path}", traceparent, "SERVER", attributes, at_ms=begun * 1000)
        if status >= 500:  # noqa: PLR2004 - of the server
            span.set_attribute("error.type", str(status))
            self.fail(span, "")
        span.end()

    def fail(self, span: Any, why: str) -> None:
        """Note that what a span stands for went wrong."""
        span.set_status(self._api.StatusCode.ERROR, why)


def carried(span: Any) -> str:
    """Return the ``traceparent`` of what a span causes."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _messaging(operation: str, kind: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "celery",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


class Submit:
    """Trace a submit.

    Attributes:
        traceparent: what goes with the task.

    """

    def __init__(self, spans: Spans, traceparent: str, node: str, list_name: str) -> None:
        self._spans = spans
        attributes = _messaging("submit", "send", list_name) | {"async_nodes.node": node}
        self._span = spans.begin(f"submit {list_name}", traceparent, "PRODUCER", attributes)
        self.traceparent = carried(self._span)

    def end(self, task_id: str = "", code: str = "") -> None:
        """End the span: with the task's id, or with the code of the error."""
        if task_id:
            self._span.set_attribute("messaging.message.id", task_id)
        else:
            self._span.set_attribute("error.type", code)
            self._spans.fail(self._span, code)
        self._span.end()


def given_to(trace: Submit | None, traceparent: str | None) -> str | None:
    """Return the ``traceparent`` that goes with a task: of the submit's span, if it has one."""
    return traceparent if trace is None else trace.traceparent


class Untraced:
    """Trace nothing of an attempt."""

    traceparent = ""

    def ran(self, ending: Ending, inputs: bytes) -> None:
        """Do nothing at the body's end."""

    def stored(self, finished: Finished) -> None:
        """Do nothing once the end is written."""

    def given_up(self) -> None:
        """Do nothing about an attempt that belongs to another worker by now."""


_UNTRACED: Final = Untraced()


def attempt(claim: Claim, traceparent: str, node: str) -> Untraced:
    """Return what traces an attempt, which does nothing where its trace is not sampled."""
    if TRACING.spans is None or not is_sampled(traceparent):
        return _UNTRACED
    return Attempt(TRACING.spans, claim, traceparent, node)


class Attempt(Untraced):
    """Trace an attempt: that it was dispatched, its body, and the writing of its end.

    Attributes:
        traceparent: what the body's calls carry.

    """

    def __init__(self, spans: Spans, claim: Claim, traceparent: str, node: str) -> None:
        self._spans = spans
        self._node = node
        self._queue = claim.list_name or "cpu"  # a child of the CPU pool is not told which
        self._common = {
            "messaging.message.id": claim.task_id,
            "async_nodes.node": node,
            "async_nodes.attempt": claim.attempt,
        }
        dispatch = self._begin(
            "dispatch", "receive", traceparent, "CONSUMER", at_ms=claim.queued_ms
        )
        dispatch.end(end_time=int(claim.started_ms * 1e6))
        self._execute = self._begin("execute", "process", carried(dispatch), "CONSUMER")
        self._store: Any = None
        self.traceparent = carried(self._execute)

    def _begin(
        self, step: str, kind: str, parent: str, role: str, *, at_ms: float | None = None
    ) -> Any:
        attributes = _messaging(step, kind, self._queue) | self._common
        return self._spans.begin(f"{step} {self._queue}", parent, role, attributes, at_ms=at_ms)

    def ran(self, ending: Ending, inputs: bytes) -> None:
        """End the body's span and begin that of the store."""
        span = self._execute
        for name, value in _of_model(self._node, inputs, ending.usage).items():
            span.set_attribute(name, value)
        if ending.event is not EventType.COMPLETE:
            error = json.loads(ending.error) or {}
            code = str(error.get("code") or ending.event.value)
            span.set_attribute("error.type", code)
            self._spans.fail(span, code)
        span.end()
        self._store = self._begin("store", "settle", self.traceparent, "CLIENT")

    def stored(self, finished: Finished) -> None:
        """End the store's span."""
        state = finished.state.value if finished.state is not None else ""
        self._store.set_attribute("async_nodes.state", state)
        self._store.set_attribute("async_nodes.applied", finished.applied)
        self._store.end()

    def given_up(self) -> None:
        """End the body's span of an attempt that belongs to another worker by now."""
        self._spans.fail(self._execute, "fence_lost")
        self._execute.end()


def _of_model(node: str, inputs: bytes, usage: bytes) -> dict[str, Any]:
    """Return what the conventions of generative AI want to know of a model's call."""
    operation = _OPERATIONS.get(node)
    if operation is None:
        return {}
    found: dict[str, Any] = {"gen_ai.operation.name": operation}
    given = json.loads(inputs or b"{}")
    if isinstance(given.get("model"), str):
        found["gen_ai.request.model"] = given["model"]
    if isinstance(given.get("provider"), str):
        found["gen_ai.provider.name"] = given["provider"]
    if usage != NULL:
        for unit, number in json.loads(usage).items():
            if unit in _TOKENS:
                found[_TOKENS[unit]] = number
    return found
