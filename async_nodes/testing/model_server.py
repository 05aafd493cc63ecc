"""A simulated model server, for the demo, for tests and for load.

It speaks OpenAI's chat completions and embeddings (``/v1``, and Azure's paths to deployments),
Anthropic's ``/v1/messages`` and Ollama's ``/api/chat`` and ``/api/embed``, has a limited number of
slots, log-normal delays and faults that follow a seed or a script (see `model_script`), and tells
at ``/stats`` what it has seen, each disconnect with the moment it was noticed. ``POST /reset``
forgets the counts. Run it as a program (``python -m async_nodes.testing.model_server --port N``)
or inside a plain process with `ModelServer`; it uses asyncio and refuses gevent-patched processes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from async_nodes.testing.model_app import ModelApp
from async_nodes.testing.model_http import Peer
from async_nodes.testing.model_script import FLAGS, ModelConfig, ScriptError, parse

BACKLOG = 1024


class ModelServer:
    """Run the simulated model on a thread of this process, on 127.0.0.1.

    Args:
        config: the model.
        port: where to listen; 0 picks a free port.

    Use as a context manager; `url` is what ``llm.chat`` takes as ``base_url`` and `netloc` what
    the egress allow list needs.

    """

    def __init__(self, config: ModelConfig | None = None, *, port: int = 0) -> None:
        self._config = config or ModelConfig(ttft_ms=5.0, gap_ms=1.0)
        self._asked = port
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._app: ModelApp | None = None
        self._thread = threading.Thread(target=self._run, name="model-server", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.close()

    def start(self) -> Self:
        """Start listening and return when requests are taken.

        Raises:
            RuntimeError: in a gevent-patched process.
            OSError: when the port is in use.

        """
        _refuse_gevent()
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def close(self) -> None:
        """Stop listening and break every connection."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    @property
    def netloc(self) -> str:
        """Return ``127.0.0.1:PORT``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Return the root of the API, ``http://127.0.0.1:PORT/v1``."""
        return f"http://{self.netloc}/v1"

    def stats(self) -> dict[str, Any]:
        """Return what ``/stats`` answers."""
        return self._app.stats.to_json() if self._app is not None else {}

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits in start
            self._failure = error
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()

        def listening(app: ModelApp, port: int) -> None:
            self._app, self.port = app, port
            self._ready.set()

        await serve(
            self._config, host="127.0.0.1", port=self._asked, stop=self._stop, listening=listening
        )


async def serve(
    config: ModelConfig,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    listening: Callable[[ModelApp, int], None],
) -> None:
    """Serve the simulated model until `stop` is set.

    Args:
        config: the model.
        host: the address to listen on.
        port: the port; 0 picks a free one.
        stop: ends the server.
        listening: called once with the app and the port.

    """
    app = ModelApp(config)
    peers: set[Peer] = set()

    def connected() -> Peer:
        peer = Peer(app)
        peers.add(peer)
        return peer

    server = await asyncio.get_running_loop().create_server(connected, host, port, backlog=BACKLOG)
    try:
        listening(app, server.sockets[0].getsockname()[1])
        await stop.wait()
    finally:
        server.close()
        for peer in peers:
            peer.reset()
        await asyncio.sleep(0)  # lets the resets reach the sockets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server as a program until SIGTERM or SIGINT; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        rates = _rates(options.rate)
    except ScriptError as error:
        sys.stderr.write(f"model-server: {error}\n")
        return 2
    config = ModelConfig(
        slots=options.slots,
        seed=options.seed,
        ttft_ms=options.ttft_ms,
        gap_ms=options.gap_ms,
        tokens=options.tokens,
        rates=rates,
        retry_after=options.retry_after,
        api_key=options.api_key,
    )
    try:
        asyncio.run(_until_signal(config, options.host, options.port))
    except OSError as error:
        sys.stderr.write(f"model-server: cannot listen on port {options.port}: {error}\n")
        return 1
    return 0


async def _until_signal(config: ModelConfig, host: str, port: int) -> None:
    _refuse_gevent()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def listening(_: ModelApp, at: int) -> None:
        sys.stdout.write(f"simulated model on http://{host}:{at}/v1\n")
        sys.stdout.flush()

    await serve(config, host=host, port=port, stop=stop, listening=listening)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="model-server",
        description="A simulated model server: OpenAI, Azure, Anthropic and Ollama.",
    )
    default = ModelConfig()
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port; 0 picks a free one")
    parser.add_argument("--slots", type=_count, default=default.slots, help="requests at once")
    parser.add_argument("--seed", type=int, default=default.seed, help="makes draws repeatable")
    parser.add_argument("--ttft-ms", type=float, default=default.ttft_ms, help="median")
    parser.add_argument("--gap-ms", type=float, default=default.gap_ms, help="median")
    parser.add_argument("--tokens", type=_count, default=default.tokens, help="answer length")
    parser.add_argument("--retry-after", type=float, default=default.retry_after, help="seconds")
    parser.add_argument("--api-key", default="", help="required as a Bearer token when given")
    parser.add_argument(
        "--rate",
        action="append",
        default=[],
        metavar="FAULT=P",
        help="probability of 429, 500, …, hang, stall, cut, eof or malformed; repeatable",
    )
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _rates(items: Sequence[str]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for item in items:
        name, _, text = item.partition("=")
        script = parse(name)
        try:
            rate = float(text)
        except ValueError:
            rate = -1.0
        if len(script.faults) != 1 or name in FLAGS or not 0 <= rate <= 1:
            raise ScriptError(f"--rate {item}: write FAULT=P with P from 0 to 1")
        rates[script.faults[0][0]] = rate
    return rates


def _refuse_gevent() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("socket"):
        raise RuntimeError(
            "the simulated model uses asyncio and cannot run in a gevent-patched process; start "
            "`python -m async_nodes.testing.model_server` beside it"
        )


if __name__ == "__main__":
    sys.exit(main())
