"""``llm.chat`` over every wire, against the simulated server in each of its dialects."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes import invoke
from async_nodes.nodes.registry import registry
from async_nodes.testing import ModelConfig, ModelServer, Outcome, run_node

WIRES = ("openai", "azure", "anthropic", "ollama")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"name": "weather", "description": "Tell the weather.", "parameters": SCHEMA}
ODD = "a\u2028b\u2029c\u0085d\x0b e\r\nf\rdata: x\n\n\ufeff 👩‍👩‍👧 你好 \x00 end\n"

pytestmark = pytest.mark.parametrize("provider", WIRES)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(ModelConfig(ttft_ms=1.0, gap_ms=0.5, tokens=8)) as running:
        yield running


def inputs(server: ModelServer, provider: str, model: str = "sim", **more: Any) -> dict[str, Any]:
    text = more.pop("text", "hi")
    root = server.url if provider == "openai" else f"http://{server.netloc}"
    return {
        "provider": provider,
        "base_url": root,
        "model": model,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
        **more,
    }


def chat(server: ModelServer, provider: str, model: str = "sim", **more: Any) -> Outcome:
    task = more.pop("task_id", f"t_{time.monotonic_ns()}")
    given = inputs(server, provider, model, **more)
    return run_node("llm.chat", given, allow=frozenset({server.netloc}), task_id=task)


def failure(server: ModelServer, provider: str, model: str, **more: Any) -> AsyncNodesError:
    with pytest.raises(AsyncNodesError) as caught:
        chat(server, provider, model, **more)
    return caught.value


@pytest.mark.parametrize("stream", [True, False])
def test_text_and_usage_are_the_same_everywhere(
    server: ModelServer, provider: str, *, stream: bool
) -> None:
    """One answer, one set of names for its tokens, whoever gave it."""
    outcome = chat(server, provider, "sim:think=2,cached=3", stream=stream)

    text = [chunk for chunk in outcome.chunks if isinstance(chunk, str)]
    assert outcome.output == "".join(text)
    assert len(text) == (8 if stream else 1)
    assert len(text) == len(outcome.chunks)  # reasoning is left out unless asked for
    more = {"cached_tokens": 3, "reasoning_tokens": 2}
    told = {"ollama": (), "anthropic": ("cached_tokens",)}.get(provider, tuple(more))
    assert outcome.usage == {
        "prompt_tokens": 12,
        "completion_tokens": 10,
        "total_tokens": 22,
        **{name: more[name] for name in told},
    }


def test_odd_characters_are_exact(server: ModelServer, provider: str) -> None:
    """Separators, emoji families and characters cut by the network come out as they went in."""
    assert chat(server, provider, "sim:echo,split", text=ODD).output == ODD
    assert chat(server, provider, "sim:echo", text=ODD, stream=False).output == ODD


def test_reasoning_streams_when_it_is_asked_for(server: ModelServer, provider: str) -> None:
    """It comes as data chunks before the text and is no part of the output."""
    outcome = chat(server, provider, "sim:think=2,split", show_reasoning=True)

    assert [set(chunk) for chunk in outcome.chunks[:2]] == [{"reasoning_delta"}] * 2
    assert outcome.output == "".join(outcome.chunks[2:])


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_is_called_and_its_result_answered(
    server: ModelServer, provider: str, *, stream: bool
) -> None:
    """The call streams as data chunks; its output goes back in the next request as it is."""
    first = chat(server, provider, tools=[TOOL], stream=stream)

    (call,) = first.output["tool_calls"]
    assert call["name"] == "weather"
    assert set(call["arguments"]) == {"city", "days"}
    assert first.output["finish_reason"] == "tool_calls"
    deltas = [chunk["tool_call"] for chunk in first.chunks]
    assert {(delta["index"], delta["id"]) for delta in deltas} == {(0, call["id"])}
    turn = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
    ]
    second = chat(server, provider, messages=turn, tools=[TOOL], stream=stream)
    assert second.output["tool_calls"] == []
    assert second.output["text"] == "".join(second.chunks)
    assert second.output["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_fits_its_schema(server: ModelServer, provider: str, *, stream: bool) -> None:
    """The JSON streams as text and the output is the object."""
    outcome = chat(server, provider, schema=SCHEMA, stream=stream)
    wanted = '{"city": "你好 🚀", "days": 3}'
    echoed = chat(server, provider, "sim:echo,split", text=wanted, schema=SCHEMA, stream=stream)

    assert set(outcome.output) == {"city", "days"}
    assert all(isinstance(chunk, str) for chunk in outcome.chunks)
    assert outcome.usage["total_tokens"] > 12
    assert echoed.output == {"city": "你好 🚀", "days": 3}


def test_a_misfit_is_tried_again(server: ModelServer, provider: str) -> None:
    """The attempt fails with what does not fit, and the next one may succeed."""
    model, task = "sim:misfitx1", f"t_misfit_{provider}"

    error = failure(server, provider, model, schema=SCHEMA, task_id=task)

    assert isinstance(error, RetryableError)
    assert error.code == "model_bad_output"
    assert "does not fit the schema" in error.detail
    assert set(chat(server, provider, model, schema=SCHEMA, task_id=task).output) == set(
        SCHEMA["required"]
    )


def test_an_object_cut_by_its_limit_says_so(server: ModelServer, provider: str) -> None:
    """max_tokens that is too small is named in the error."""
    error = failure(server, provider, "sim", schema=SCHEMA, max_tokens=2)

    assert (error.code, "max_tokens" in error.detail) == ("model_bad_output", True)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("model", "kind", "code", "after"),
    [
        ("sim:429,retry_after=2", RetryableError, "model_rate_limited", 2.0),
        ("sim:503,retry_after=4", RetryableError, "model_error", 4.0),
        ("sim:500", RetryableError, "model_error", None),
        ("sim:529", RetryableError, "model_error", None),
        ("sim:400", TerminalError, "model_refused", None),
        ("unknown", TerminalError, "model_refused", None),
    ],
)
def test_a_refusal_is_final_or_not_by_its_status(
    server: ModelServer,
    provider: str,
    *,
    stream: bool,
    model: str,
    kind: type[Exception],
    code: str,
    after: float | None,
) -> None:
    """Every provider's errors get the same codes, with its own words."""
    error = failure(server, provider, model, stream=stream)

    assert type(error) is kind
    assert (error.code, error.retry_after) == (code, after)
    assert "'unknown' does not exist" in error.detail or "simulated error" in error.detail


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("cut", "model_stream_cut"),
        ("eof", "model_stream_cut"),
        ("stall", "model_stream_cut"),
        ("malformed", "model_bad_chunk"),
        ("hang", "egress_failed"),
    ],
)
def test_a_broken_stream_is_tried_again(
    server: ModelServer, provider: str, fault: str, code: str
) -> None:
    """Half an answer never passes for a whole one, and its usage is not counted."""
    error = failure(server, provider, f"sim:{fault}", timeout_ms=200)

    assert isinstance(error, RetryableError)
    assert error.code == code


def test_an_answer_that_comes_broken_at_once_is_tried_again(
    server: ModelServer, provider: str
) -> None:
    """A body that calls itself JSON and is none was damaged on its way."""
    error = failure(server, provider, "sim:malformed", stream=False)

    assert isinstance(error, RetryableError)
    assert error.code == "model_bad_chunk"


def test_the_key_is_sent_in_its_header_and_never_shown(provider: str) -> None:
    """Each provider wants its own header; a server that repeats a key does not leak it."""
    with ModelServer(ModelConfig(api_key="sk-secret", ttft_ms=1, gap_ms=1, tokens=1)) as closed:
        assert chat(closed, provider, api_key="sk-secret").usage["completion_tokens"] == 1
        wrong = failure(closed, provider, "sim", api_key="sk-wrong")
        named = failure(closed, provider, "sk-secret", api_key="sk-secret")
    assert (wrong.code, "sk-wrong" in wrong.detail) == ("model_refused", False)
    assert "'***' does not exist" in named.detail


def test_closing_the_body_closes_the_models_socket(server: ModelServer, provider: str) -> None:
    """A generator that is closed at token 3 ends the request on the server at once."""
    outcome, spec = Outcome(), registry()["llm.chat"]
    ctx = outcome.context("llm.chat", allow=frozenset({server.netloc}), task_id="t_close")
    checked = spec.validate(inputs(server, provider, "sim:gap_ms=5,tokens=999"))
    stream = spec.function(ctx, **checked)
    for _ in range(3):
        next(stream)

    left = time.time()
    stream.close()

    assert _disconnect(server, since=left)["noticed_at"] - left < 0.2


@pytest.mark.parametrize("model", ["sim:stall,at=2", "sim:hang"])
def test_cancel_from_another_thread_closes_the_models_socket(
    server: ModelServer, provider: str, model: str
) -> None:
    """A cancel while the model is silent ends the wait and the request at once."""
    outcome, spec = Outcome(), registry()["llm.chat"]
    ctx = outcome.context("llm.chat", allow=frozenset({server.netloc}), task_id="t_cancel")
    checked = spec.validate(inputs(server, provider, model))
    cancelled: list[float] = []

    def cancel() -> None:
        cancelled.append(time.time())
        ctx.cancel()

    threading.Timer(0.2, cancel).start()
    with pytest.raises(RetryableError):
        invoke(spec, ctx, checked)

    assert time.time() - cancelled[0] < 0.2
    assert _disconnect(server, since=cancelled[0])["noticed_at"] - cancelled[0] < 0.2


def test_killing_the_greenlet_closes_the_models_socket(server: ModelServer, provider: str) -> None:
    """Under gevent, a killed body ends the request on the server within 200 ms."""
    script = """
        from gevent import monkey; monkey.patch_all()
        import json, sys, time, gevent
        from async_nodes.nodes import invoke
        from async_nodes.nodes.registry import registry
        from async_nodes.testing.harness import Outcome

        netloc, spec, outcome = sys.argv[1], registry(())["llm.chat"], Outcome()
        ctx = outcome.context("llm.chat", allow=frozenset({netloc}), task_id="t_kill")
        job = gevent.spawn(invoke, spec, ctx, spec.validate(json.loads(sys.argv[2])))
        while len(outcome.chunks) < 20:
            gevent.sleep(0.005)
        print(time.time())
        job.kill()
        sys.stdout.flush()
        gevent.sleep(0.5)  # the process lives on: only the kill can have closed the socket
    """
    given = json.dumps(inputs(server, provider, "sim:stall,tokens=100,at=20"))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), server.netloc, given],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout, done.stderr
    killed = float(done.stdout)
    seen = _disconnect(server, since=killed)
    assert seen["tokens"] == 20
    assert seen["noticed_at"] - killed < 0.2


def _disconnect(server: ModelServer, *, since: float) -> dict[str, Any]:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        for seen in server.stats()["disconnects"]:
            if seen["noticed_at"] >= since:
                return seen  # type: ignore[no-any-return]
        time.sleep(0.005)
    raise AssertionError(server.stats())
