"""Task ids: sortable, unguessable, and recognisable as ours without a look-up.

An id is ``t_`` and 26 characters of Crockford's base 32, 130 bits: 48 bits of milliseconds,
10 bits of shard, 52 random bits and a 20-bit MAC. A valid MAC on an id without a record means
that we issued it and no longer keep it (410); any other id never was ours (404). Ids of files are
made in the same way, with another tag in front, which the MAC covers.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2s

TASK = "t"
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
PATTERN = re.compile(r"t_[0-9A-HJKMNP-TV-Z]{26}", re.ASCII)
_LENGTH, _MAC_BITS, _RANDOM_BITS, _SHARD_BITS, _TIME_BITS = 26, 20, 52, 10, 48
_VALUES = {character: value for value, character in enumerate(ALPHABET)}


def _from_system(bits: int) -> int:
    """Return random bits as `secrets.randbits` does, with less on the way."""
    size = (bits + 7) // 8
    return int.from_bytes(os.urandom(size), "big") >> (8 * size - bits)


class IdSource:
    """Make and check ids with one secret that every process of a deployment shares.

    Args:
        secret: 16 bytes or more.
        random_bits: source of randomness, injected by tests.
        tag: what the ids begin with.

    """

    def __init__(
        self,
        secret: bytes,
        random_bits: Callable[[int], int] = _from_system,
        *,
        tag: str = TASK,
    ) -> None:
        self._secret = secret
        self._random_bits = random_bits
        self._tag = tag
        person = b"" if tag == TASK else tag.encode()
        self._keyed = blake2s(key=secret[:32], digest_size=4, person=person)

    def tagged(self, tag: str) -> IdSource:
        """Return the maker of ids of another tag, with the same secret."""
        return IdSource(self._secret, self._random_bits, tag=tag)

    def make(self, now_ms: int, *, shard: int = 0) -> str:
        """Return a new id for what was accepted at `now_ms` on a shard."""
        body = (now_ms & ((1 << _TIME_BITS) - 1)) << _SHARD_BITS | shard
        body = body << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
        return f"{self._tag}_" + _encode(body << _MAC_BITS | self._mac(body))

    def issued(self, task_id: str) -> bool:
        """Tell whether the id carries our MAC."""
        if not well_formed(task_id, self._tag):
            return False
        number = _decode(task_id)
        body, mac = number >> _MAC_BITS, number & ((1 << _MAC_BITS) - 1)
        return hmac.compare_digest(mac.to_bytes(3, "big"), self._mac(body).to_bytes(3, "big"))

    def _mac(self, body: int) -> int:
        mac = self._keyed.copy()
        mac.update(body.to_bytes(14, "big"))
        return int.from_bytes(mac.digest(), "big") >> (32 - _MAC_BITS)


def well_formed(task_id: str, tag: str = TASK) -> bool:
    """Tell whether a text has the shape of an id, without knowing whether it is one."""
    if tag == TASK:
        return PATTERN.fullmatch(task_id) is not None
    head, _, rest = task_id.partition("_")
    return head == tag and PATTERN.fullmatch(f"{TASK}_{rest}") is not None


def made_at(task_id: str) -> int:
    """Return the milliseconds since 1970 at which a well-formed id was made."""
    return _decode(task_id) >> (_MAC_BITS + _RANDOM_BITS + _SHARD_BITS)


# Two characters at a time: half the look-ups.
_PAIRS = tuple(first + second for first in ALPHABET for second in ALPHABET)
_SHIFTS = tuple(range(5 * (_LENGTH - 2), -1, -10))
_COMMON_BITS = 50  # of the time: all ids of a millisecond begin with the same characters
_HEAD_SHIFTS = tuple(shift - (130 - _COMMON_BITS) for shift in _SHIFTS[:5])
_REST_SHIFTS = _SHIFTS[5:]


def _encode(number: int) -> str:
    rest = [_PAIRS[number >> shift & 1023] for shift in _REST_SHIFTS]
    return _head(number >> (130 - _COMMON_BITS)) + "".join(rest)


@lru_cache(maxsize=8)
def _head(number: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in _HEAD_SHIFTS])


def _decode(task_id: str) -> int:
    number = 0
    for character in task_id[2:]:
        number = number << 5 | _VALUES[character]
    return number
