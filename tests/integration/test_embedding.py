"""The node ``embedding`` against the simulated server."""

from __future__ import annotations

import http.server
import math
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes.embedding import embed
from async_nodes.nodes.registry import registry
from async_nodes.testing import ModelConfig, ModelServer, Outcome, run_node
from async_nodes.testing.model_vectors import vector

PROVIDERS = ("openai", "azure", "ollama", "vllm")
TEXTS = [f"text number {number} 你好" for number in range(10)]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(ModelConfig(ttft_ms=1.0)) as running:
        yield running


def ask(server: ModelServer, provider: str = "openai", **more: Any) -> Outcome:
    root = server.url if provider in ("openai", "vllm") else f"http://{server.netloc}"
    given = {"provider": provider, "base_url": root, "model": "sim", "input": TEXTS, **more}
    task = given.pop("task_id", f"t_{time.monotonic_ns()}")
    return run_node("embedding", given, allow=frozenset({server.netloc}), task_id=task)


def failure(server: ModelServer, provider: str = "openai", **more: Any) -> AsyncNodesError:
    with pytest.raises(AsyncNodesError) as caught:
        ask(server, provider, **more)
    return caught.value


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_every_text_gets_its_vector(server: ModelServer, provider: str, encoding: str) -> None:
    """Batches that run at once come back in the order of the texts, usage is summed."""
    outcome = ask(server, provider, batch_size=3, encoding=encoding)

    assert outcome.output["model"] == "sim"
    assert outcome.output["dimensions"] == 256
    assert outcome.output["embeddings"] == [vector(text) for text in TEXTS]
    alone = sum(ask(server, provider, input=text).usage["prompt_tokens"] for text in TEXTS)
    assert outcome.usage == {"prompt_tokens": alone, "total_tokens": alone}
    assert len(outcome.progress) == 4
    assert outcome.progress[-1] == (1.0, "10 of 10 texts")


def test_one_text_is_a_list_of_one(server: ModelServer) -> None:
    """The output has one shape."""
    assert ask(server, input="hello").output["embeddings"] == [vector("hello")]


def test_vectors_can_be_short_and_of_length_one(server: ModelServer) -> None:
    """Their number reaches the server; the length is made here."""
    output = ask(server, dimensions=8, normalise=True).output

    assert (output["dimensions"], len(output["embeddings"][0])) == (8, 8)
    assert all(math.hypot(*one) == pytest.approx(1.0) for one in output["embeddings"])


def test_no_more_requests_run_at_once_than_asked_for() -> None:
    """The bound holds, and it is used."""
    with ModelServer(ModelConfig(ttft_ms=50.0, ttft_sigma=0.0, slots=16)) as slow:
        ask(slow, batch_size=1, parallel=3)

        assert slow.stats()["requests"] == 10
        assert slow.stats()["most_live"] == 3


def test_no_texts_make_no_request(server: ModelServer) -> None:
    """The function takes an empty list; the node refuses one before the task is stored."""
    ctx = Outcome().context("test")
    assert embed(ctx, [], model="sim", base_url=server.url) == ([], {})
    with pytest.raises(AsyncNodesError) as caught:
        registry()["embedding"].validate({"model": "sim", "input": []})
    assert caught.value.code == "invalid_inputs"


def test_the_function_reports_nothing_itself(server: ModelServer) -> None:
    """Other nodes decide what becomes of usage and progress."""
    outcome, done = Outcome(), []
    ctx = outcome.context("test", allow=frozenset({server.netloc}))

    vectors, usage = embed(
        ctx, TEXTS, model="sim", base_url=server.url, batch_size=5, on_done=done.append
    )

    assert len(vectors) == 10
    assert usage["total_tokens"] > 10
    assert (done, outcome.usage, outcome.progress) == ([5, 10], {}, [])


@pytest.mark.parametrize("provider", ["openai", "azure", "ollama"])
@pytest.mark.parametrize(
    ("model", "kind", "code"),
    [
        ("sim:429,retry_after=2", RetryableError, "model_rate_limited"),
        ("sim:500", RetryableError, "model_error"),
        ("sim:400", TerminalError, "model_refused"),
        ("unknown", TerminalError, "model_refused"),
        ("sim:malformed", RetryableError, "model_bad_chunk"),
        ("sim:cut", RetryableError, "egress_failed"),
        ("sim:hang", RetryableError, "egress_failed"),
        ("sim:misfit", RetryableError, "model_bad_output"),
    ],
)
def test_failures_have_the_codes_of_a_chat(
    server: ModelServer, provider: str, model: str, kind: type[Exception], code: str
) -> None:
    """What is tried again and what is final is decided as for llm.chat."""
    error = failure(server, provider, model=model, timeout_ms=300)

    assert type(error) is kind
    assert error.code == code
    assert error.retry_after == (2.0 if "429" in model else None)


def test_a_failed_batch_fails_the_attempt_and_the_next_one_succeeds(server: ModelServer) -> None:
    """Each batch is a conversation of its own with the server; usage is counted once."""
    model, task = "sim:503x1", "t_batches"

    error = failure(server, model=model, task_id=task, batch_size=5, parallel=1)
    assert error.code == "model_error"
    assert failure(server, model=model, task_id=task, batch_size=5, parallel=1).retryable
    outcome = ask(server, model=model, task_id=task, batch_size=5, parallel=1)
    assert outcome.usage == ask(server).usage


def test_the_key_is_sent_and_never_shown() -> None:
    """Azure's key has its own header; a server that repeats a key does not leak it."""
    with ModelServer(ModelConfig(api_key="sk-secret", ttft_ms=1)) as closed:
        for provider in ("openai", "azure"):
            assert ask(closed, provider, api_key="sk-secret").output["dimensions"] == 256
            assert failure(closed, provider, api_key="sk-wrong").code == "model_refused"
            named = failure(closed, provider, model="sk-secret", api_key="sk-secret")
            assert "'***' does not exist" in named.detail
    assert registry()["embedding"].redacted({"api_key": "k"}) == {"api_key": "[redacted]"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"provider": "anthropic"}, "no embeddings"),
        ({"provider": "vllm", "base_url": ""}, "needs a base_url"),
        ({"api_key": "k\n"}, "api_key holds"),
    ],
)
def test_what_cannot_be_asked_is_named(
    server: ModelServer, more: dict[str, Any], words: str
) -> None:
    """A wrong input is final and says what it should be."""
    error = failure(server, **more)

    assert (type(error), error.code) == (TerminalError, "invalid_inputs")
    assert words in error.detail


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"data": [{"embedding": "x"}]}'])
def test_an_answer_without_vectors_names_the_address(body: bytes) -> None:
    """A base_url that leads elsewhere is the usual reason."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Stay quiet."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        netloc = f"127.0.0.1:{other.server_address[1]}"
        given = {"base_url": f"http://{netloc}", "model": "m", "input": "a"}
        with pytest.raises(TerminalError, match="check base_url") as caught:
            run_node("embedding", given, allow=frozenset({netloc}))
        other.shutdown()

    assert caught.value.code == "model_refused"


@pytest.mark.parametrize("script", ["hang", "stall"])
def test_cancel_from_another_thread_closes_every_socket(server: ModelServer, script: str) -> None:
    """All batches that wait end at once, and none of those behind them starts."""
    outcome = Outcome()
    ctx = outcome.context("embedding", allow=frozenset({server.netloc}), task_id=f"t_{script}")
    before = server.stats()["requests"]
    cancelled: list[float] = []

    def cancel() -> None:
        cancelled.append(time.time())
        ctx.cancel()

    threading.Timer(0.3, cancel).start()
    with pytest.raises(RetryableError):
        embed(ctx, TEXTS, model=f"sim:{script}", base_url=server.url, batch_size=1, parallel=3)

    assert time.time() - cancelled[0] < 0.2
    assert max(seen - cancelled[0] for seen in _disconnects(server, 3, since=cancelled[0])) < 0.2
    assert server.stats()["requests"] == before + 3


def test_killing_the_greenlet_closes_every_socket(server: ModelServer) -> None:
    """Under gevent the batches are greenlets; a kill and the attempt's end take all along."""
    script = """
        from gevent import monkey; monkey.patch_all()
        import sys, time, gevent
        from async_nodes.nodes.embedding import embed
        from async_nodes.testing.harness import Outcome

        netloc, outcome = sys.argv[1], Outcome()
        ctx = outcome.context("embedding", allow=frozenset({netloc}), task_id="t_kill")
        def attempt():
            with ctx.http:  # as every attempt does
                embed(ctx, [str(n) for n in range(9)], model="sim:hang", batch_size=1, parallel=3,
                      base_url=f"http://{netloc}/v1")
        job = gevent.spawn(attempt)
        gevent.sleep(0.5)
        print(time.time(), flush=True)
        job.kill()
        gevent.sleep(0.5)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), server.netloc],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout, done.stderr
    killed = float(done.stdout)
    assert max(seen - killed for seen in _disconnects(server, 3, since=killed)) < 0.2


def _disconnects(server: ModelServer, count: int, *, since: float) -> list[float]:
    end = time.monotonic() + 5
    seen: list[float] = []
    while time.monotonic() < end:
        noticed = (one["noticed_at"] for one in server.stats()["disconnects"])
        seen = [at for at in noticed if at >= since]
        if len(seen) >= count:
            return seen
        time.sleep(0.005)
    raise AssertionError((seen, server.stats()))
