# ruff: noqa: ARG005 - the parameters of the lambdas are what is tested
from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import RetryPolicy
from async_nodes.nodes import NodeContext, UnknownNodeError, invoke, invoke_async
from async_nodes.nodes.registry import Registry, registry
from async_nodes.nodes.spec import REDACTED, NodeSpec, node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., NodeSpec]:
    """Return a function that declares a node in a registry of this test only."""
    own = Registry()
    monkeypatch.setattr("async_nodes.nodes.registry._registry", own)

    def declare(function: Callable[..., Any], name: str = "t.node", **options: Any) -> NodeSpec:
        assert node(name, **options)(function) is function
        return own[name]

    return declare


def context(**given: Any) -> NodeContext:
    return NodeContext(**{"task_id": "t_1", "node": "t.node", **given})


def invalid(spec: NodeSpec, inputs: bytes | dict[str, Any]) -> AsyncNodesError:
    with pytest.raises(AsyncNodesError) as caught:
        spec.validate(inputs)
    return caught.value


def add(a: int, b: int = 2, tags: list[str] = ["x"]) -> int:  # noqa: B006 - copied per call
    """Add two numbers.

    More that no list shows.
    """
    return a + b + len(tags)


def test_annotations_give_validation_and_defaults(declare: Callable[..., NodeSpec]) -> None:
    """Inputs become keyword arguments, defaults filled in, mutable ones fresh each time."""
    spec = declare(add)

    assert spec.validate(b'{"a": 1}') == {"a": 1, "b": 2, "tags": ["x"]}
    spec.validate({"a": 1})["tags"].append("y")
    assert spec.validate({"a": 1})["tags"] == ["x"]
    assert spec.description == "Add two numbers."
    assert spec.schema["required"] == ["a"]
    assert spec.schema["properties"]["b"] == {"type": "integer", "default": 2}
    assert spec.schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("inputs", "code", "pointer", "message"),
    [
        (b'{"a": "1"}', "invalid_inputs", "/inputs/a", "Expected `int`, got `str`"),
        (b'{"a": 1, "tags": ["x", 2]}', "invalid_inputs", "/inputs/tags/1", "Expected `str`"),
        (b"{}", "invalid_inputs", "/inputs/a", "'a' is missing"),
        (b'{"a": 1, "tag": []}', "invalid_inputs", "/inputs/tag", "did you mean 'tags'?"),
        (b'{"a": 1, "zz/~": 0}', "invalid_inputs", "/inputs/zz~1~0", "it takes a, b, tags"),
        (b"[]", "invalid_inputs", "/inputs", "must be a JSON object"),
        (b'{"a": NaN}', "not_json", "/inputs", "invalid"),
        (b'{"a": 1', "not_json", "/inputs", "truncated"),
        (b'{"a": 1e999}', "invalid_inputs", "/inputs", "out of range"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    declare: Callable[..., NodeSpec], inputs: bytes, code: str, pointer: str, message: str
) -> None:
    """The error says what is wrong and points at it."""
    error = invalid(declare(add), inputs)

    assert error.code == code
    assert error.pointer == pointer
    assert message in error.detail


def test_limits_of_annotated_types_hold(declare: Callable[..., NodeSpec]) -> None:
    """Msgspec constraints in annotations are part of the check and of the schema."""

    def body(n: Annotated[int, msgspec.Meta(ge=1, le=5)]) -> int:
        return n

    spec = declare(body)

    assert spec.schema["properties"]["n"]["maximum"] == 5
    assert "<= 5" in invalid(spec, {"n": 6}).detail


def test_a_node_with_kwargs_takes_any_further_input(declare: Callable[..., NodeSpec]) -> None:
    """``**kwargs`` opens the schema; its annotation checks what comes in."""

    def body(a: int = 0, **rest: int) -> int:
        return a + sum(rest.values())

    spec = declare(body)

    assert spec.validate({"b": 3}) == {"a": 0, "b": 3}
    assert spec.schema["additionalProperties"] == {"type": "integer"}
    assert invalid(spec, {"b": "x"}).pointer == "/inputs/b"


async def undo_later(_ctx: object, _record: object) -> None:
    """Be a clean-up that nobody would await."""


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda *args: 0, {}, r"\*args must be a parameter that takes a name"),
        (eval("lambda a, /: 0"), {}, "must be a parameter that takes a name"),  # noqa: S307
        (lambda a, ctx: 0, {}, "ctx must be the first parameter"),
        (lambda *, ctx: 0, {}, "ctx must be the first parameter"),
        (add, {"kind": "gpu"}, 'kind must be "io" or "cpu"'),
        (add, {"timeout": 0}, "timeout must be"),
        (add, {"timeout": float("inf")}, "timeout must be"),
        (add, {"timeout": True}, "timeout must be"),
        (add, {"retry": 3}, "retry must be a RetryPolicy"),
        (add, {"compensate": "undo"}, "compensate must be callable"),
        (add, {"compensate": undo_later}, "compensate must be a plain function"),
        (add, {"redact": ("c",)}, "redact names 'c', which is no input"),
        (add, {"redact": "a"}, "a tuple of names, not one string"),
        (add, {"name": "1st"}, "a name is"),
        (add, {"name": "a..b"}, "a name is"),
        (add, {"name": "a\n"}, "a name is"),
        (add, {"name": "a" * 101}, "a name is"),
        (int, {}, "only a function can be a node"),
    ],
)
def test_a_wrong_declaration_fails_when_it_is_made(
    declare: Callable[..., NodeSpec],
    function: Callable[..., Any],
    options: dict[str, Any],
    message: str,
) -> None:
    """What could never run is refused at import, with a sentence."""
    with pytest.raises(AsyncNodesError, match=message) as caught:
        declare(function, **options)

    assert caught.value.code == "invalid_node"


def test_annotations_that_json_cannot_fill_are_refused(declare: Callable[..., NodeSpec]) -> None:
    """A type that is no JSON, or a name unknown at run time, is an error of the declaration."""

    def foreign(a: socket.socket) -> None:  # noqa: F821 - the point of the test
        raise NotImplementedError

    def odd(a: Callable[[], int]) -> None:
        raise NotImplementedError

    def unsuitable(a: asyncio.Event) -> None:
        raise NotImplementedError

    for function in (foreign, odd, unsuitable):
        with pytest.raises(AsyncNodesError) as caught:
            declare(function)
        assert caught.value.code == "invalid_node"
        assert function.__name__ in caught.value.detail


def test_a_name_belongs_to_one_function(declare: Callable[..., NodeSpec]) -> None:
    """A second function under a name is refused; the same one again (a reload) is not."""
    declare(add)
    declare(add)

    with pytest.raises(AsyncNodesError, match="declared twice"):
        declare(lambda: 0)


def test_an_unknown_name_gets_a_suggestion() -> None:
    """The registry is a mapping, and its KeyError is an error of the catalogue."""
    nodes = registry(())

    with pytest.raises(UnknownNodeError, match=r"did you mean 'llm\.chat'") as caught:
        nodes["llm.chta"]

    assert caught.value.code == "unknown_node"
    assert caught.value.extra == {"suggestion": "llm.chat"}
    assert "llm.chta" not in nodes
    assert nodes.get("llm.chta") is None
    assert {"echo", "http.request", "llm.chat", "text.chunk"} <= set(nodes)


def test_modules_are_imported_for_their_nodes() -> None:
    """A listed module brings its nodes; one that is missing is named."""
    assert registry(["async_nodes.testing.nodes"])["test.spin"].kind == "cpu"

    with pytest.raises(
        AsyncNodesError, match=r"'no\.such\.module' could not be imported"
    ) as caught:
        registry(["no.such.module"])
    assert caught.value.code == "invalid_node"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this test load nodes as a new process would."""
    monkeypatch.setattr("async_nodes.nodes.registry._loaded", set())


@pytest.mark.usefixtures("fresh")
def test_the_settings_name_modules_with_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """ASYNC_NODES_IMPORTS brings nodes in; a module in it that is missing is named."""
    monkeypatch.setenv("ASYNC_NODES_IMPORTS", "async_nodes.testing.nodes")
    assert "test.sleep" in registry()

    monkeypatch.setattr("async_nodes.nodes.registry._loaded", set())
    monkeypatch.setenv("ASYNC_NODES_IMPORTS", "no.such.module")
    with pytest.raises(AsyncNodesError, match=r"no\.such\.module"):
        registry()


@pytest.mark.usefixtures("fresh")
def test_a_broken_package_does_not_take_the_others_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry point that cannot be loaded is logged; the next one is loaded all the same."""
    loaded: list[str] = []
    group = "async_nodes.nodes"
    entries = [
        EntryPoint("broken", "no.such.module", group),
        EntryPoint("sound", "async_nodes.testing.nodes", group),
    ]
    monkeypatch.setattr(
        "async_nodes.nodes.registry.entry_points",
        lambda *, group: loaded.append(group) or entries,
    )

    assert "test.sleep" in registry(())
    assert loaded == [group]
    assert [record.entry_point for record in caplog.records] == ["no.such.module"]  # type: ignore[attr-defined]


def test_secrets_are_kept_out(declare: Callable[..., NodeSpec]) -> None:
    """Redacted inputs are replaced for display; empty ones and the others stay."""
    spec = declare(lambda a="", key="": 0, redact=("key",))

    assert spec.redacted({"a": "x", "key": "secret"}) == {"a": "x", "key": REDACTED}
    assert spec.redacted({"key": ""}) == {"key": ""}


def test_a_function_returns_its_output(declare: Callable[..., NodeSpec]) -> None:
    """The context is injected only where it is wanted."""
    assert invoke(declare(add), context(), {"a": 1, "b": 2, "tags": []}) == 3

    def wants(ctx: NodeContext, a: int) -> str:
        return f"{ctx.task_id} {a}"

    spec = declare(wants, "t.wants", retry=RetryPolicy(max_attempts=1))
    assert spec.style == "function"
    assert spec.inputs.names == ("a",)
    assert invoke(spec, context(), {"a": 1}) == "t_1 1"


def test_a_generator_streams_and_its_text_is_joined(declare: Callable[..., NodeSpec]) -> None:
    """Text chunks are joined into the output, data chunks only streamed."""

    def body() -> Iterator[Any]:
        yield "a"
        yield {"n": 1}
        yield "b"

    chunks: list[Any] = []
    spec = declare(body)

    assert spec.style == "generator"
    assert invoke(spec, context(on_chunk=chunks.append), {}) == "ab"
    assert chunks == ["a", {"n": 1}, "b"]


def test_a_generators_return_value_is_the_output(declare: Callable[..., NodeSpec]) -> None:
    """Only None stands for the joined text."""

    def body() -> Any:
        yield "a"
        return {"done": True}

    assert invoke(declare(body), context(), {}) == {"done": True}


def test_a_generator_is_closed_when_its_reader_fails(declare: Callable[..., NodeSpec]) -> None:
    """A cancel between two pieces still runs the body's clean-up at once."""
    closed: list[str] = []

    def body() -> Iterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append("yes")

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        invoke(declare(body), context(on_chunk=stop), {})
    assert closed == ["yes"]


def test_async_bodies_give_output_and_chunks(declare: Callable[..., NodeSpec]) -> None:
    """``async def`` returns its output, an asynchronous generator its joined text."""

    async def plain(a: int) -> int:
        await asyncio.sleep(0)
        return a

    async def stream() -> AsyncIterator[str]:
        yield "a"
        await asyncio.sleep(0)
        yield "b"

    chunks: list[Any] = []
    first, second = declare(plain, "t.plain"), declare(stream, "t.stream")

    assert (first.style, second.style) == ("async", "asyncgen")
    assert asyncio.run(invoke_async(first, context(), {"a": 1})) == 1
    assert asyncio.run(invoke_async(second, context(on_chunk=chunks.append), {})) == "ab"
    assert chunks == ["a", "b"]


def test_a_hidden_coroutine_is_named(declare: Callable[..., NodeSpec]) -> None:
    """A plain function that returns a coroutine fails with what to do about it."""

    async def inner() -> None:
        raise NotImplementedError

    with pytest.raises(AsyncNodesError, match="async def") as caught:
        invoke(declare(lambda: inner()), context(), {})  # noqa: PLW0108 - not a coroutine function

    assert caught.value.code == "invalid_node"


def test_the_idempotency_key_is_the_tasks_own() -> None:
    """Attempts share the key; tasks and tenants do not."""
    key = context(attempt=1).idempotency_key

    assert key == context(attempt=2).idempotency_key
    assert {key, context(task_id="t_2").idempotency_key, context(tenant="b").idempotency_key}


def test_progress_is_kept_in_bounds() -> None:
    """Fractions outside are moved to the nearer end; NaN is an error; text is cut."""
    seen: list[tuple[float, str]] = []
    ctx = context(on_progress=lambda fraction, text: seen.append((fraction, text)))

    ctx.progress(-1)
    ctx.progress(7, "x" * 2000)

    assert seen == [(0.0, ""), (1.0, "x" * 1000)]
    with pytest.raises(ValueError, match="NaN"):
        ctx.progress(float("nan"))


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3"])
def test_usage_is_whole_numbers(wrong: object) -> None:
    """Anything that cannot be summed as a count is refused."""
    with pytest.raises(ValueError, match="whole number"):
        context().usage(tokens=wrong)


def test_cancel_is_seen_and_closes_the_network() -> None:
    """A cancelled context says so, and its client sends nothing more."""
    ctx = context()
    ctx.cancel()

    assert ctx.cancelled
    with pytest.raises(AsyncNodesError, match="closed"):
        ctx.http.request("GET", "http://203.0.113.1/")


def test_log_records_carry_the_task(caplog: pytest.LogCaptureFixture) -> None:
    """What a node logs can be found by its task."""
    with caplog.at_level(logging.INFO, logger="async_nodes.node"):
        context(attempt=2).log.info("hello", extra={"detail": 1})

    record = caplog.records[0]
    assert (record.task_id, record.attempt, record.detail) == ("t_1", 2, 1)  # type: ignore[attr-defined]
    assert record.action == "node_log"  # type: ignore[attr-defined]


def test_declaring_nodes_is_cheap() -> None:
    """Whoever lists or validates nodes loads neither an HTTP client nor gevent."""
    script = """if True:
        import sys
        from async_nodes.nodes.registry import registry
        registry(())["llm.chat"].validate({"base_url": "u", "model": "m", "messages": [{}]})
        print({"urllib3", "ssl", "gevent"} & set(sys.modules))
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )

    assert done.stdout.strip() == "set()", done.stderr
