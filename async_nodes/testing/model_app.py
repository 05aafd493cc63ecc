"""The simulated model, answering: routes, slots, faults and statistics."""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import re
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from async_nodes.testing import model_dialects as dialects
from async_nodes.testing import model_request as reading
from async_nodes.testing import model_vectors as vectors
from async_nodes.testing import model_wire as wire
from async_nodes.testing.model_http import Peer, Request
from async_nodes.testing.model_request import MODEL, Asked, RefusedError
from async_nodes.testing.model_sample import sample
from async_nodes.testing.model_script import MISFIT, ModelConfig, Plan, Script, draw, tokenise

CONVERSATIONS = 10_000
DISCONNECTS = 1_000
FOREVER = 24 * 3600.0
SPLIT_PAUSE = 0.01

_AZURE = re.compile(r"/openai/deployments/(?P<name>[^/]+)(?P<path>/chat/completions|/embeddings)")
_CHATS: dict[str, tuple[wire.Style, Callable[[dict[str, Any], Any], Asked]]] = {
    "/v1/chat/completions": ("openai", reading.asked_openai),
    "/v1/messages": ("anthropic", reading.asked_anthropic),
    "/api/chat": ("ollama", reading.asked_ollama),
}
_EMBEDDINGS: dict[str, wire.Style] = {"/v1/embeddings": "openai", "/api/embed": "ollama"}


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


@dataclass(frozen=True, slots=True)
class _Place:
    """Say what a path serves.

    Attributes:
        path: the path, that of OpenAI's API for a deployment of Azure.
        style: whose API it is.
        deployment: Azure's name for the model, or None.

    """

    path: str
    style: wire.Style
    deployment: str | None = None


@dataclass(slots=True, kw_only=True)
class _Job:
    """Follow one request.

    Attributes:
        key, nth: which request of which conversation.
        plan: what it meets.
        style: how its errors are written.
        started: epoch seconds.
        sent: tokens so far.

    """

    key: str
    nth: int
    plan: Plan
    style: wire.Style
    started: float
    sent: int = 0


@dataclass(slots=True, kw_only=True)
class _Chat(_Job):
    """Follow one request for an answer."""

    asked: Asked
    tool: str | None
    dialect: dialects.Dialect
    usage: wire.Usage

    @property
    def said(self) -> dialects.Said:
        return dialects.Said(
            "".join(self.plan.thoughts),
            "".join(self.plan.pieces),
            self.tool,
            "length" if self.plan.cut_short else "stop",
            self.usage,
        )

    def parts(self) -> Iterator[bytes]:
        """Yield the parts of the stream that hold a token each."""
        for piece in self.plan.thoughts:
            yield self.dialect.think(piece)
        for number, piece in enumerate(self.plan.pieces):
            if self.tool is None:
                yield self.dialect.say(piece)
            else:
                begun = b"" if number else self.dialect.call(self.tool)
                yield begun + self.dialect.argue(piece)


@dataclass(slots=True, kw_only=True)
class _Embedding(_Job):
    """Follow one request for embeddings."""

    document: Any


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
        place = _place(request.path)
        if place is None:
            await peer.send(self._small(request))
            return
        self.stats.requests += 1
        try:
            job = self._open(request, place)
            self._refuse_by_plan(job.plan)
        except RefusedError as refusal:
            self.stats.statuses[str(refusal.status)] += 1
            await peer.send(
                wire.refusal(
                    refusal.status,
                    str(refusal),
                    retry_after=refusal.retry_after,
                    style=place.style,
                )
            )
            return
        try:
            await self._serve(job, peer)
        except asyncio.CancelledError:
            self._note_disconnect(job)
            raise

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
            case ("GET", "/api/tags"):
                return wire.plain(200, {"models": [{"name": MODEL, "model": MODEL}]})
        message = f"there is no {request.method} {request.path}"
        return wire.plain(404, wire.error(404, message, code="unknown_url"))

    def _reset(self) -> None:
        live, queued = self.stats.live, self.stats.queued
        self.stats = Stats(live=live, queued=queued)
        self._seen.clear()

    def _open(self, request: Request, place: _Place) -> _Job:
        if request.method != "POST":
            raise RefusedError(405, "use POST")
        self._check_head(request, place)
        body = reading.body_of(request)
        model = body.get("model") if place.deployment is None else place.deployment
        self._serial += 1
        if place.path in _EMBEDDINGS:
            return self._embedding(request, place, body, model)
        asked = _CHATS[place.path][1](body, model)
        script = reading.script_of(request, model)
        return self._chat(request, place, asked, script)

    def _check_head(self, request: Request, place: _Place) -> None:
        headers, key = request.headers, self.config.api_key
        if place.deployment is not None:
            if not parse_qs(request.query).get("api-version"):
                raise RefusedError(404, "Resource not found: api-version is missing")
            given, wanted = headers.get("api-key", ""), key
        elif place.style == "anthropic":
            if "anthropic-version" not in headers:
                raise RefusedError(400, "anthropic-version: header is required")
            given, wanted = headers.get("x-api-key", ""), key
        else:
            given, wanted = headers.get("authorization", ""), f"Bearer {key}"
        if key and not hmac.compare_digest(given.encode(), wanted.encode()):
            raise RefusedError(401, "Incorrect API key provided")

    def _chat(self, request: Request, place: _Place, asked: Asked, script: Script) -> _Chat:
        key = reading.key_of(request, [asked.model, asked.messages])
        nth = self._count(key)
        called = asked.called
        plan = draw(
            self.config,
            script,
            key=key,
            nth=nth,
            text=_text(asked, called, script, seed=f"{self.config.seed}:{key}"),
            max_tokens=asked.max_tokens,
        )
        texts = [reading.text_of(item) for item in asked.messages]
        thoughts = len(plan.thoughts)
        usage = wire.Usage(
            prompt=sum(len(tokenise(text)) + 4 for text in texts),
            completion=thoughts + len(plan.pieces),
            cached=plan.cached,
            reasoning=thoughts or None,
        )
        return _Chat(
            key=key,
            nth=nth,
            plan=plan,
            style=place.style,
            started=time.time(),
            asked=asked,
            tool=called[0] if called else None,
            dialect=self._dialect(place.style, asked.model.partition(":")[0], usage),
            usage=usage,
        )

    def _dialect(self, style: wire.Style, model: str, usage: wire.Usage) -> dialects.Dialect:
        match style:
            case "anthropic":
                return dialects.Anthropic(self._serial, model, usage.prompt, usage.cached)
            case "ollama":
                return dialects.Ollama(model, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        return dialects.OpenAI(self._serial, model, int(time.time()))

    def _embedding(
        self, request: Request, place: _Place, body: dict[str, Any], model: Any
    ) -> _Embedding:
        script = reading.script_of(request, model)
        texts = reading.inputs_of(body)
        key = reading.key_of(request, [model, texts])
        nth = self._count(key)
        plan = draw(self.config, script, key=key, nth=nth, text="")
        return _Embedding(
            key=key,
            nth=nth,
            plan=plan,
            style=place.style,
            started=time.time(),
            document=_vectors(body, texts, place.style, misfit=plan.fault == MISFIT),
        )

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

    async def _serve(self, job: _Job, peer: Peer) -> None:
        self.stats.queued += 1
        try:
            await self._slots.acquire()
        finally:
            self.stats.queued -= 1
        self.stats.live += 1
        self.stats.most_live = max(self.stats.most_live, self.stats.live)
        try:
            if job.plan.fault == "hang":
                await asyncio.sleep(FOREVER)
            busy = self.stats.live / self.config.slots
            await asyncio.sleep(job.plan.ttft * (1 + self.config.load * busy))
            if isinstance(job, _Chat) and job.asked.stream:
                await self._stream(job, peer)
            else:
                await self._whole(job, peer)
        finally:
            self.stats.live -= 1
            self._slots.release()

    async def _whole(self, job: _Job, peer: Peer) -> None:
        await asyncio.sleep(sum(job.plan.gaps))
        document = job.dialect.whole(job.said) if isinstance(job, _Chat) else None
        if isinstance(job, _Embedding):
            document = job.document
        match job.plan.fault:
            case "stall":
                await asyncio.sleep(FOREVER)
            case "malformed":
                await peer.send(wire.whole(200, wire.encode(document)[:-1]))
                return
            case "cut" | "eof":
                # Without a stream there is no middle and no polite end.
                peer.reset()
                return
        self._done(job, len(job.plan.pieces))
        await peer.send(wire.plain(200, document))

    async def _stream(self, chat: _Chat, peer: Peer) -> None:
        headers = {
            "Content-Type": chat.dialect.content_type,
            "Cache-Control": "no-cache",
            "Transfer-Encoding": "chunked",
        }
        opening, plan = chat.dialect.opening(), chat.plan
        await peer.send(wire.head(200, headers) + (wire.frame(opening) if opening else b""))
        strikes = plan.fault is not None and plan.fault != MISFIT
        for number, part in enumerate(chat.parts()):
            if number:
                await asyncio.sleep(plan.gaps[number - 1])
            if strikes and number == plan.at:
                break
            await self._part(peer, part, split=plan.split)
            chat.sent += 1
            self.stats.tokens += 1
        if strikes:
            await self._strike(chat, peer)
            return
        self._done(chat, 0)
        last = chat.dialect.ending(chat.said, include_usage=chat.asked.include_usage)
        await self._part(peer, last, split=plan.split)
        await peer.send(wire.frame(b""))

    async def _part(self, peer: Peer, data: bytes, *, split: bool) -> None:
        at = wire.inside_character(data) if split else 0
        if at:
            await peer.send(wire.frame(data[:at]))
            await asyncio.sleep(SPLIT_PAUSE)
        if data:
            await peer.send(wire.frame(data[at:]))

    async def _strike(self, chat: _Chat, peer: Peer) -> None:
        match chat.plan.fault:
            case "stall":
                await asyncio.sleep(FOREVER)
            case "cut":
                peer.reset()
            case "eof":
                await peer.send(wire.frame(b""))
            case "malformed":
                await peer.send(wire.frame(chat.dialect.broken) + wire.frame(b""))

    def _done(self, job: _Job, tokens: int) -> None:
        self.stats.tokens += tokens
        self.stats.completed += 1
        self.stats.statuses["200"] += 1

    def _note_disconnect(self, job: _Job) -> None:
        self.stats.disconnects.append(
            {
                "key": job.key,
                "nth": job.nth,
                "started_at": job.started,
                "noticed_at": time.time(),
                "tokens": job.sent,
            }
        )


def _place(path: str) -> _Place | None:
    if match := _AZURE.fullmatch(path):
        return _Place("/v1" + match["path"], "openai", unquote(match["name"]))
    if path in _CHATS:
        return _Place(path, _CHATS[path][0])
    return _Place(path, _EMBEDDINGS[path]) if path in _EMBEDDINGS else None


def _text(asked: Asked, called: tuple[str, Any] | None, script: Script, *, seed: str) -> str | None:
    """Return the answer's text, or a tool's arguments; None leaves the words to chance."""
    if "echo" in script.flags:
        return asked.prompt
    schema = called[1] if called else asked.schema
    if called is None and schema is None:
        return None
    return json.dumps(sample(schema, random.Random(seed)), ensure_ascii=False)


def _vectors(body: dict[str, Any], texts: list[str], style: wire.Style, *, misfit: bool) -> Any:
    given = body.get("dimensions")
    dimensions = vectors.DIMENSIONS if given is None else given
    if not isinstance(dimensions, int) or not 1 <= dimensions <= vectors.MAX_DIMENSIONS:
        raise RefusedError(400, f"dimensions must be from 1 to {vectors.MAX_DIMENSIONS}")
    found = [vectors.vector(text, dimensions) for text in texts]
    tokens = sum(len(tokenise(text)) for text in texts)
    if misfit:
        found[-1] = found[-1][:-1]
    if style == "ollama":
        return {"model": body.get("model"), "embeddings": found, "prompt_eval_count": tokens}
    packed = body.get("encoding_format") == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": vectors.as_base64(numbers) if packed else numbers,
        }
        for index, numbers in enumerate(found)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": MODEL, "usage": usage}
