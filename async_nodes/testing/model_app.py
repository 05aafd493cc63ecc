"""The simulated model, answering: routes, slots, faults and statistics."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from async_nodes.testing import model_wire as wire
from async_nodes.testing.model_http import Peer, Request
from async_nodes.testing.model_request import (
    MODEL,
    RefusedError,
    checked_body,
    key_of,
    script_of,
    text_of,
)
from async_nodes.testing.model_script import (
    ModelConfig,
    Plan,
    draw,
    tokenise,
)

CONVERSATIONS = 10_000
DISCONNECTS = 1_000
FOREVER = 24 * 3600.0
SPLIT_PAUSE = 0.01


@dataclass(slots=True)
class Stats:
    """Count what has happened since the start or the last reset."""

    requests: int = 0
    completed: int = 0
    live: int = 0
    queued: int = 0
    tokens: int = 0
    most_live: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    disconnects: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=DISCONNECTS))

    def to_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object; times are epoch seconds."""
        names = ("requests", "completed", "live", "queued", "tokens", "most_live")
        return {
            **{name: getattr(self, name) for name in names},
            "statuses": dict(self.statuses),
            "faults": dict(self.faults),
            "disconnects": list(self.disconnects),
        }


@dataclass(slots=True)
class _Chat:
    """Follow one request for a completion."""

    key: str
    nth: int
    plan: Plan
    answer: wire.Answer
    prompt_tokens: int
    stream: bool
    include_usage: bool
    started: float
    sent: int = 0

    @property
    def usage(self) -> dict[str, int]:
        return wire.usage(self.prompt_tokens, len(self.plan.pieces))

    @property
    def finish_reason(self) -> str:
        return "length" if self.plan.cut_short else "stop"


class ModelApp:
    """Answer the requests of all peers; lives on one event loop."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.stats = Stats()
        self._slots = asyncio.Semaphore(config.slots)
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._serial = 0

    async def __call__(self, request: Request, peer: Peer) -> None:
        """Answer one request."""
        if request.path == "/v1/chat/completions":
            await self._chat(request, peer)
            return
        await peer.send(self._small(request))

    def _small(self, request: Request) -> bytes:
        match (request.method, request.path):
            case ("GET", "/healthz"):
                return wire.plain(200, {"status": "ok"})
            case ("GET", "/stats"):
                return wire.plain(200, self.stats.to_json())
            case ("POST", "/reset"):
                self._reset()
                return wire.plain(200, {"status": "ok"})
            case ("GET", "/v1/models"):
                card = {"id": MODEL, "object": "model", "created": 0, "owned_by": "async_nodes"}
                return wire.plain(200, {"object": "list", "data": [card]})
        message = f"there is no {request.method} {request.path}"
        return wire.plain(404, wire.error(404, message, code="unknown_url"))

    def _reset(self) -> None:
        live, queued = self.stats.live, self.stats.queued
        self.stats = Stats(live=live, queued=queued)
        self._seen.clear()

    async def _chat(self, request: Request, peer: Peer) -> None:
        self.stats.requests += 1
        try:
            chat = self._open(request)
            self._refuse_by_plan(chat.plan)
        except RefusedError as refusal:
            self.stats.statuses[str(refusal.status)] += 1
            await peer.send(refusal.encode())
            return
        try:
            await self._serve(chat, peer)
        except asyncio.CancelledError:
            self._note_disconnect(chat)
            raise

    def _open(self, request: Request) -> _Chat:
        if request.method != "POST":
            raise RefusedError(405, "use POST")
        self._checkkey_of(request)
        body = checked_body(request)
        name, _, suffix = body["model"].partition(":")
        script = script_of(",".join((suffix, request.headers.get("x-sim", ""))))
        key = key_of(request, body)
        nth = self._count(key)
        messages = body["messages"]
        asked = [text_of(item) for item in messages if item.get("role") == "user"]
        self._serial += 1
        return _Chat(
            key=key,
            nth=nth,
            plan=draw(
                self.config,
                script,
                key=key,
                nth=nth,
                prompt=asked[-1] if asked else "",
                max_tokens=body.get("max_tokens"),
            ),
            answer=wire.Answer(f"chatcmpl-{self._serial:08d}", name, int(time.time())),
            prompt_tokens=sum(len(tokenise(text_of(item))) + 4 for item in messages),
            stream=body.get("stream") is True,
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            started=time.time(),
        )

    def _checkkey_of(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        wanted = f"Bearer {self.config.api_key}".encode()
        if self.config.api_key and not hmac.compare_digest(given, wanted):
            raise RefusedError(401, "Incorrect API key provided")

    def _count(self, key: str) -> int:
        self._seen[key] = self._seen.pop(key, 0) + 1
        if len(self._seen) > CONVERSATIONS:
            self._seen.popitem(last=False)
        return self._seen[key]

    def _refuse_by_plan(self, plan: Plan) -> None:
        if plan.fault is not None:
            self.stats.faults[plan.fault] += 1
        if plan.fault is not None and plan.fault.isdigit():
            message = f"simulated error {plan.fault}"
            raise RefusedError(int(plan.fault), message, retry_after=plan.retry_after)

    async def _serve(self, chat: _Chat, peer: Peer) -> None:
        self.stats.queued += 1
        try:
            await self._slots.acquire()
        finally:
            self.stats.queued -= 1
        self.stats.live += 1
        self.stats.most_live = max(self.stats.most_live, self.stats.live)
        try:
            if chat.plan.fault == "hang":
                await asyncio.sleep(FOREVER)
            busy = self.stats.live / self.config.slots
            await asyncio.sleep(chat.plan.ttft * (1 + self.config.load * busy))
            await (self._stream(chat, peer) if chat.stream else self._whole(chat, peer))
        finally:
            self.stats.live -= 1
            self._slots.release()

    async def _whole(self, chat: _Chat, peer: Peer) -> None:
        await asyncio.sleep(sum(chat.plan.gaps))
        if chat.plan.fault is not None:
            # Without a stream there is no middle: every stream fault breaks the connection.
            peer.reset()
            return
        self._done(chat, len(chat.plan.pieces))
        text = "".join(chat.plan.pieces)
        document = chat.answer.completion(text, chat.finish_reason, chat.usage)
        await peer.send(wire.plain(200, document))

    async def _stream(self, chat: _Chat, peer: Peer) -> None:
        headers = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-cache",
            "Transfer-Encoding": "chunked",
        }
        first = chat.answer.chunk({"role": "assistant", "content": ""})
        await peer.send(wire.head(200, headers) + wire.frame(wire.event(first)))
        for number, piece in enumerate(chat.plan.pieces):
            if number:
                await asyncio.sleep(chat.plan.gaps[number - 1])
            if chat.plan.fault is not None and number == chat.plan.at:
                await self._strike(chat.plan.fault, peer)
                return
            await self._event(peer, chat.answer.chunk({"content": piece}), split=chat.plan.split)
            chat.sent += 1
            self.stats.tokens += 1
        if chat.plan.fault is not None:
            await self._strike(chat.plan.fault, peer)
            return
        await self._ending(chat, peer)

    async def _ending(self, chat: _Chat, peer: Peer) -> None:
        self._done(chat, 0)
        last = wire.event(chat.answer.chunk({}, chat.finish_reason))
        if chat.include_usage:
            last += wire.event(chat.answer.usage_chunk(chat.usage))
        await peer.send(wire.frame(last + b"data: [DONE]\n\n") + wire.frame(b""))

    async def _event(self, peer: Peer, document: dict[str, Any], *, split: bool) -> None:
        data = wire.event(document)
        at = wire.inside_character(data) if split else 0
        if at:
            await peer.send(wire.frame(data[:at]))
            await asyncio.sleep(SPLIT_PAUSE)
        await peer.send(wire.frame(data[at:]))

    async def _strike(self, fault: str, peer: Peer) -> None:
        match fault:
            case "stall":
                await asyncio.sleep(FOREVER)
            case "cut":
                peer.reset()
            case "eof":
                await peer.send(wire.frame(b""))
            case "malformed":
                broken = b'data: {"id": "chatcmpl-broken", "choices": [{"delta"\n\n'
                await peer.send(wire.frame(broken) + wire.frame(b""))

    def _done(self, chat: _Chat, tokens: int) -> None:
        self.stats.tokens += tokens
        self.stats.completed += 1
        self.stats.statuses["200"] += 1

    def _note_disconnect(self, chat: _Chat) -> None:
        self.stats.disconnects.append(
            {
                "key": chat.key,
                "nth": chat.nth,
                "started_at": chat.started,
                "noticed_at": time.time(),
                "tokens": chat.sent,
            }
        )
