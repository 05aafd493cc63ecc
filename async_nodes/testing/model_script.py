"""The simulated model, decided: what each request meets, drawn from a seed. Pure.

A script says what goes wrong and is written behind the model's name (``sim:429x2,retry_after=2``)
or in the header ``X-Sim``. Items are separated by commas:

    429  500  any status from 400 to 599    answer with that error
    hang                                    take the request and never answer
    stall                                   go silent in the middle of the stream
    cut                                     reset the connection in the middle of the stream
    eof                                     end the stream politely, half-way, without its mark
    malformed                               send a chunk that is not JSON in the middle
    misfit                                  answer with an object that fits no schema
    …x2                                     only the first two times per conversation
    echo                                    answer with the last user message, exactly; also where
                                            an object or a tool's arguments are asked for
    split                                   cut the bytes inside of characters, with pauses
    tokens=N ttft_ms=N gap_ms=N             instead of the server's own figures
    think=N                                 so many tokens of reasoning before the answer
    cached=N                                so many of the prompt's tokens were cached
    at=N                                    the token before which stall, cut, … strike
    retry_after=S                           seconds, sent with 429 and 503; none when absent

Several faults follow one another: ``429x2,500x1`` fails three times, then answers. A conversation
is the header ``X-Sim-Key``, else ``Idempotency-Key`` with the messages, else the messages.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MISFIT = "misfit"
STREAM_FAULTS = ("hang", "stall", "cut", "eof", "malformed")
FLAGS = ("echo", "split")
VALUES = ("tokens", "ttft_ms", "gap_ms", "at", "retry_after", "think", "cached")
MAX_TOKENS = 100_000
MAX_VALUE = 1e9
MISFIT_TEXT = '{"misfit": true}'

_FAULT = re.compile(
    r"(?P<name>[45]\d\d|" + "|".join((*STREAM_FAULTS, MISFIT)) + r")(?:x(?P<times>\d{1,6}))?"
)
_PIECE = re.compile(r"\s*[^\s]{1,5}|\s+")
_TEXT = (
    "the queue holds a task until one worker takes its lease and runs it once then tells "
    "模型 会 逐字 输出 结果 任务 不会 丢失 retry later naïve café ✨ 🚀"
)
_WORDS = tuple(_TEXT.split())


class ScriptError(ValueError):
    """Report a script that cannot be read, in one sentence."""


@dataclass(frozen=True, slots=True)
class Script:
    """Hold what a script asks for.

    Attributes:
        faults: each with the number of times it strikes, or None for always.
        flags: of `FLAGS`.
        values: of `VALUES`.

    """

    faults: tuple[tuple[str, int | None], ...] = ()
    flags: frozenset[str] = frozenset()
    values: Mapping[str, float] = field(default_factory=dict)

    def fault(self, nth: int) -> str | None:
        """Return what the nth request of a conversation meets, counted from 1."""
        for name, times in self.faults:
            if times is None or nth <= times:
                return name
            nth -= times
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Describe the simulated model.

    Attributes:
        slots: requests served at once; the others wait.
        seed: makes every draw repeatable.
        ttft_ms, ttft_sigma: median and spread of the log-normal time to the first token.
        gap_ms, gap_sigma: the same for the time between two tokens.
        load: growth of the time to the first token when all slots are busy (0.5 = half more).
        tokens: length of an answer.
        rates: probability of each fault, by its name in a script.
        retry_after: seconds sent with 429 and 503 that come from rates.
        api_key: required as a Bearer token when set.

    """

    slots: int = 16
    seed: int = 0
    ttft_ms: float = 200.0
    ttft_sigma: float = 0.4
    gap_ms: float = 20.0
    gap_sigma: float = 0.5
    load: float = 0.5
    tokens: int = 64
    rates: Mapping[str, float] = field(default_factory=dict)
    retry_after: float | None = 1.0
    api_key: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Say all that one request will meet.

    Attributes:
        fault: a status, one of `STREAM_FAULTS` or ``misfit``, or None.
        thoughts: the tokens of the reasoning.
        pieces: the tokens of the answer.
        cut_short: whether max_tokens ended the answer.
        ttft: seconds to the first token on an idle server.
        gaps: seconds before each further token.
        at: the token before which a stream fault strikes.
        split: whether bytes are cut inside of characters.
        retry_after: seconds, or None.
        cached: cached tokens of the prompt, or None.

    """

    fault: str | None
    thoughts: tuple[str, ...]
    pieces: tuple[str, ...]
    cut_short: bool
    ttft: float
    gaps: tuple[float, ...]
    at: int
    split: bool
    retry_after: float | None
    cached: int | None


def parse(text: str) -> Script:
    """Return the script that a text describes.

    Raises:
        ScriptError: naming the item that is not understood.

    """
    faults: list[tuple[str, int | None]] = []
    flags: set[str] = set()
    values: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if equals and name in VALUES:
            values[name] = _number(item, value)
        elif item in FLAGS:
            flags.add(item)
        elif match := _FAULT.fullmatch(item):
            faults.append((match["name"], int(match["times"]) if match["times"] else None))
        else:
            raise ScriptError(f"{item!r} is not an item of a script: see model_script")
    return Script(tuple(faults), frozenset(flags), values)


def draw(
    config: ModelConfig,
    script: Script,
    *,
    key: str,
    nth: int,
    text: str | None = None,
    max_tokens: int | None = None,
) -> Plan:
    """Return what the nth request of a conversation meets: the same for the same arguments.

    Args:
        config: the model.
        script: what the request itself asks for.
        key: the conversation.
        nth: counted from 1.
        text: the answer, or None for words at random.
        max_tokens: ends the answer.

    """
    chance = random.Random(f"{config.seed}:{key}:{nth}")
    values = script.values
    fault = script.fault(nth) or _by_rate(chance, config.rates)
    wanted = min(int(values.get("tokens", config.tokens)), MAX_TOKENS)
    if fault == MISFIT:
        text = MISFIT_TEXT
    pieces = _babble(chance, wanted) if text is None else tokenise(text)
    cut_short = max_tokens is not None and len(pieces) > max_tokens
    pieces = pieces[:max_tokens] if cut_short else pieces
    thoughts = _babble(chance, min(int(values.get("think", 0)), MAX_TOKENS))
    gap_ms = values.get("gap_ms", config.gap_ms)
    rated = config.retry_after if not script.faults else None
    return Plan(
        fault=fault,
        thoughts=thoughts,
        pieces=pieces,
        cut_short=cut_short,
        ttft=_log_normal(chance, values.get("ttft_ms", config.ttft_ms), config.ttft_sigma),
        gaps=tuple(_log_normal(chance, gap_ms, config.gap_sigma) for _ in (*thoughts, *pieces)[1:]),
        at=int(values.get("at", (len(thoughts) + len(pieces)) // 2)),
        split="split" in script.flags,
        retry_after=values.get("retry_after", rated),
        cached=int(values["cached"]) if "cached" in values else None,
    )


def tokenise(text: str) -> tuple[str, ...]:
    """Cut a text into token-like pieces whose join is the text."""
    return tuple(_PIECE.findall(text))


def _babble(chance: random.Random, count: int) -> tuple[str, ...]:
    return tuple(("" if n == 0 else " ") + chance.choice(_WORDS) for n in range(count))


def _by_rate(chance: random.Random, rates: Mapping[str, float]) -> str | None:
    point = chance.random()
    for name, rate in rates.items():
        if point < rate:
            return name
        point -= rate
    return None


def _log_normal(chance: random.Random, median_ms: float, sigma: float) -> float:
    return median_ms / 1000 * chance.lognormvariate(0.0, sigma)


def _number(item: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= MAX_VALUE:  # NaN fails this too
        raise ScriptError(f"{item!r} needs a number from 0 up")
    return number
