"""Step 1 and 3: the declaration of a node.

`@node` reads a function, checks that it can be a node and puts its `NodeSpec` into the registry.
The function itself stays what it was, to be called and tested like any other. Knows nothing about
storage or Celery.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from async_nodes.core.breaker import Breaker
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import RetryPolicy
from async_nodes.nodes.files import File
from async_nodes.nodes.inputs import Inputs, inputs_of, takes_context
from async_nodes.nodes.protection import NO_FALLBACK, Hedge, Protection, protection

Kind = Literal["io", "cpu"]
Style = Literal["function", "generator", "async", "asyncgen"]
Compensation = Callable[..., Any]
Function = TypeVar("Function", bound=Callable[..., Any])

REDACTED = "[redacted]"

_KINDS = ("io", "cpu")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """Describe one node.

    Attributes:
        name: what a request says to get it.
        kind: ``io`` waits for others and shares a process with hundreds of its like; ``cpu``
            computes and gets a process. Work that computes under ``io`` cannot be detected
            beforehand: it holds up its neighbours until the worker names and replaces itself.
        style: how the body gives its output.
        function: the body.
        timeout: seconds an attempt may take, or None for the worker's default.
        retry: how failures are tried again, or None for the default policy.
        compensate: called with ``(ctx, record)`` after the task has failed or was cancelled.
        redact: inputs that no record shows.
        description: one sentence for people; the docstring's first line when not given.
        coalesce: seconds within which text chunks are joined into one; 0 sends each by itself.
        inputs: validation and schema of the inputs.
        injects_context: whether the body takes ``ctx``.
        protection: what it declares against a dependency that does badly, None for nothing.

    """

    name: str
    kind: Kind
    style: Style
    function: Callable[..., Any]
    timeout: float | None
    retry: RetryPolicy | None
    compensate: Compensation | None
    redact: frozenset[str]
    description: str
    coalesce: float
    inputs: Inputs
    injects_context: bool
    protection: Protection | None = None

    @property
    def schema(self) -> Mapping[str, Any]:
        """Return the JSON schema of the inputs object."""
        return self.inputs.schema

    def validate(
        self, inputs: bytes | Mapping[str, Any], found: list[File] | None = None
    ) -> dict[str, Any]:
        """Return keyword arguments for the body, as `Inputs.validate` does."""
        return self.inputs.validate(inputs, found)

    def redacted(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return inputs fit to be shown: the values under `redact` are replaced."""
        return {
            name: REDACTED if name in self.redact and value not in (None, "") else value
            for name, value in inputs.items()
        }


def node(  # noqa: PLR0913 - a declaration, by name
    name: str,
    *,
    kind: Kind = "io",
    timeout: float | None = None,
    retry: RetryPolicy | None = None,
    compensate: Compensation | None = None,
    redact: tuple[str, ...] = (),
    description: str = "",
    coalesce: float = 0.0,
    breaker: Breaker | None = None,
    fallback: Any = NO_FALLBACK,
    hedge: Hedge | None = None,
) -> Callable[[Function], Function]:
    """Register a function as a node.

    The first parameter, when it is named ``ctx``, receives the `NodeContext`; all others are the
    inputs. A plain function's return value is the output. A generator streams: each ``str`` it
    yields is a text chunk, any other JSON value a data chunk; its return value is the output, or
    the joined text when that is None. ``async def`` and asynchronous generators (which cannot
    return, so theirs is always the joined text) run on an asyncio loop.

    Args:
        name: letters, digits, ``_``, ``-`` and dots, starting with a letter.
        kind: ``io`` or ``cpu``; see `NodeSpec`.
        timeout: seconds an attempt may take.
        retry: the retry policy of tasks that bring none.
        compensate: undoes what a failed or cancelled task has left.
        redact: names of inputs that are kept out of records and logs.
        description: one sentence for people.
        coalesce: seconds within which text chunks are joined into one, for bodies that yield
            many small pieces.
        breaker: when calls are no longer made because they fail or take too long.
        fallback: what answers while they are not: a JSON value, `OtherNode` or `LastGood`. The
            record's usage then has ``fallback``.
        hedge: when a second call is made beside one that is slow.

    Raises:
        AsyncNodesError: ``invalid_node``, when the node is declared, for anything that could
            not run.

    """

    def register(function: Function) -> Function:
        from async_nodes.nodes.registry import add

        add(
            _spec(
                function,
                name=name,
                kind=kind,
                timeout=timeout,
                retry=retry,
                compensate=compensate,
                redact=redact,
                description=description,
                coalesce=coalesce,
                breaker=breaker,
                fallback=fallback,
                hedge=hedge,
            )
        )
        return function

    return register


def _spec(function: Callable[..., Any], **given: Any) -> NodeSpec:
    name, redact = given["name"], given["redact"]
    if not inspect.isfunction(function):
        _refuse(name, f"only a function can be a node, not {function!r}")
    _check(**given)
    inputs = inputs_of(function)
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if takes_context(function) and (
        first is None or first.name != "ctx" or first.kind is inspect.Parameter.KEYWORD_ONLY
    ):
        _refuse(name, "ctx must be the first parameter")
    for secret in redact:
        if secret not in inputs.names and not inputs.open:
            _refuse(name, f"redact names {secret!r}, which is no input")
    document = inspect.getdoc(function) or ""
    declared = {word: given.pop(word) for word in ("breaker", "fallback", "hedge")}
    return NodeSpec(
        **{
            **given,
            "redact": frozenset(redact),
            "description": given["description"] or document.partition("\n")[0],
        },
        style=_style(function),
        protection=protection(name, _style(function), **declared),
        function=function,
        inputs=inputs,
        injects_context=takes_context(function),
    )


def _check(**given: Any) -> None:
    name, timeout, compensate = given["name"], given["timeout"], given["compensate"]
    if not isinstance(name, str) or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        _refuse(name, "a name is letters, digits, '_', '-' and dots, and starts with a letter")
    if given["kind"] not in _KINDS:
        _refuse(name, f'kind must be "io" or "cpu", not {given["kind"]!r}')
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (number and 0 < timeout < float("inf")):
        _refuse(name, f"timeout must be a number of seconds above 0, not {timeout!r}")
    if given["retry"] is not None and not isinstance(given["retry"], RetryPolicy):
        _refuse(name, "retry must be a RetryPolicy")
    if compensate is not None and not callable(compensate):
        _refuse(name, "compensate must be callable")
    if compensate is not None and _style(compensate) != "function":
        _refuse(name, "compensate must be a plain function, nobody would await or iterate it")
    if isinstance(given["redact"], str):
        _refuse(name, "redact must be a tuple of names, not one string")


def _style(function: Callable[..., Any]) -> Style:
    if inspect.isasyncgenfunction(function):
        return "asyncgen"
    if inspect.iscoroutinefunction(function):
        return "async"
    return "generator" if inspect.isgeneratorfunction(function) else "function"


def _refuse(name: object, message: str) -> NoReturn:
    raise AsyncNodesError("invalid_node", f"node {name!r}: {message}")
