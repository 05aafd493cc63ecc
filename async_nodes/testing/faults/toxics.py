"""What can be wrong with a connection, as plain data and pure decisions about each piece.

The names are Toxiproxy's (its ``timeout`` is `Stall` here, since Python has a use for the word).
Times are seconds and sizes bytes; `parse_toxic` reads Toxiproxy's spelling, which counts in
milliseconds and kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from random import Random
from typing import Any, ClassVar, Final

from async_nodes.core.errors import AsyncNodesError


class Stream(StrEnum):
    """Name a direction: upstream is from the client to the server."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxic:
    """Be something that is wrong with connections.

    Attributes:
        stream: the direction.
        toxicity: the share of connections that have it, 0 to 1.
        name: to remove it by; that of its kind when empty.

    """

    kind: ClassVar[str] = ""
    stream: Stream = Stream.DOWNSTREAM
    toxicity: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not 0 <= self.toxicity <= 1:
            raise _invalid(f"a toxicity is 0 to 1, not {self.toxicity!r}")
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type in ("float", "int") and not value >= 0:
                raise _invalid(f"{each.name} must be 0 or more, not {value!r}")

    @property
    def called(self) -> str:
        """Return its name."""
        return self.name or f"{self.kind}_{self.stream}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Toxic):
    """Let every piece arrive later, in order.

    Attributes:
        latency: seconds.
        jitter: seconds around it, uniformly.

    """

    kind: ClassVar[str] = "latency"
    latency: float = 0.0
    jitter: float = 0.0

    def delay(self, random: Random) -> float:
        """Return the seconds for one piece."""
        return max(self.latency + random.uniform(-self.jitter, self.jitter), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth(Toxic):
    """Let only so much pass.

    Attributes:
        rate: bytes a second; 0 for nothing.

    """

    kind: ClassVar[str] = "bandwidth"
    rate: float = 0.0

    def seconds(self, size: int) -> float | None:
        """Return how long so many bytes take, None for ever."""
        return size / self.rate if self.rate else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowClose(Toxic):
    """Keep a connection open after its end.

    Attributes:
        delay: seconds.

    """

    kind: ClassVar[str] = "slow_close"
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(Toxic):
    """Let nothing pass any more, and close after a while.

    Attributes:
        timeout: seconds until then; 0 for never, as a cable that was cut.

    """

    kind: ClassVar[str] = "timeout"
    timeout: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicer(Toxic):
    """Cut what is sent into small pieces.

    Attributes:
        average_size: bytes of a piece.
        size_variation: bytes more or less, below the average.
        delay: seconds between two pieces.

    """

    kind: ClassVar[str] = "slicer"
    average_size: int = 64
    size_variation: int = 0
    delay: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        super(Slicer, self).__post_init__()
        if not 0 <= self.size_variation < self.average_size:
            raise _invalid("size_variation is 0 to below average_size")

    def pieces(self, data: bytes, random: Random) -> Iterator[bytes]:
        """Yield the pieces of what was sent at once."""
        at = 0
        while at < len(data):
            varied = random.randint(-self.size_variation, self.size_variation)
            size = self.average_size + varied
            yield data[at : at + size]
            at += size


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitData(Toxic):
    """Close a connection once it has carried so much.

    Attributes:
        bytes: how much.

    """

    kind: ClassVar[str] = "limit_data"
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPeer(Toxic):
    """Reset a connection, which loses what is under way.

    Attributes:
        timeout: seconds after its beginning.

    """

    kind: ClassVar[str] = "reset_peer"
    timeout: float = 0.0


KINDS: Final[Mapping[str, type[Toxic]]] = {
    kind.kind: kind for kind in (Latency, Bandwidth, SlowClose, Stall, Slicer, LimitData, ResetPeer)
}
_MILLISECONDS: Final = frozenset({"latency", "jitter", "delay", "timeout"})
_MICROSECONDS: Final = frozenset({("slicer", "delay")})
_KILOBYTES: Final = frozenset({"rate"})


def parse_toxic(text: str) -> Toxic:
    """Return the toxic in a text as Toxiproxy's command line has it.

    Args:
        text: ``kind:attribute=value,…``, such as ``latency:latency=200,jitter=50`` or
            ``timeout:timeout=0,stream=upstream,toxicity=0.5``; milliseconds, kilobytes a second,
            and for the slicer's delay microseconds.

    Raises:
        AsyncNodesError: ``invalid_request``: no such kind or attribute, or no such value.

    """
    kind, _, given = text.partition(":")
    made = KINDS.get(kind)
    if made is None:
        raise _invalid(f"there is no toxic {kind!r}: there are {', '.join(sorted(KINDS))}")
    known = {each.name: each for each in fields(made)}
    values: dict[str, Any] = {}
    for word in filter(None, given.split(",")):
        name, _, value = word.partition("=")
        if name not in known:
            raise _invalid(f"{kind} has no {name!r}: it has {', '.join(known)}")
        try:
            values[name] = _read(kind, name, value)
        except ValueError:
            raise _invalid(f"{kind}: {name} cannot be {value!r}") from None
    return made(**values)


def _read(kind: str, name: str, value: str) -> Any:
    if name == "stream":
        return Stream(value)
    if name == "name":
        return value
    number = float(value)
    if (kind, name) in _MICROSECONDS:
        return number / 1e6
    if name in _MILLISECONDS:
        return number / 1e3
    if name in _KILOBYTES:
        return number * 1e3
    return number if name == "toxicity" else int(value)


@dataclass(slots=True)
class Drawn:
    """Hold which toxics one connection has: drawn at its beginning, once for each.

    Args:
        random: of the connection.

    """

    random: Random
    _has: dict[Toxic, bool] = field(default_factory=dict)

    def those(self, toxics: tuple[Toxic, ...]) -> list[Toxic]:
        """Return those of the toxics in force that it has."""
        for toxic in toxics:
            if toxic not in self._has:
                self._has[toxic] = self.random.random() < toxic.toxicity
        return [toxic for toxic in toxics if self._has[toxic]]


def _invalid(detail: str) -> AsyncNodesError:
    return AsyncNodesError("invalid_request", detail)
