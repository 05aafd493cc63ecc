"""Which of several Sentinels is believed, and what is said when none can be."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from async_nodes.core.sentinel_urls import parse_sentinel
from async_nodes.storage.sentinels import Sentinels, facts_of


def reply(flags: str = "master", others: int = 2, port: int = 6379) -> list[bytes]:
    """Return what a Sentinel says of a primary."""
    words = ["ip", "10.0.0.1", "port", port, "flags", flags, "num-other-sentinels", others]
    return [str(word).encode() for word in words]


class Asked:
    """Answer for Sentinels, and note which were asked."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, url: str, name: str) -> object:
        """Answer as the host in `url` would."""
        host = url.rpartition("@")[2].partition("//")[2].partition(":")[0]
        self.asked.append(host)
        answer = self.answers[host]
        if isinstance(answer, Exception):
            raise answer
        return answer


def sentinels(asked: Asked, name: str, more: str = "") -> Sentinels:
    address = parse_sentinel(f"sentinel://a;b;c/0?master_name={name}{more}")
    return Sentinels(address, asked)  # type: ignore[arg-type]


def test_the_first_that_knows_is_believed_and_asked_first_from_then_on() -> None:
    """Also by connections that are made later: one that is dead costs its time-out once."""
    asked = Asked(a=ConnectionRefusedError("gone"), b=reply(), c=reply(port=1))

    assert sentinels(asked, "first").get_master_address() == ("10.0.0.1", 6379)
    assert sentinels(asked, "first").get_master_address() == ("10.0.0.1", 6379)
    assert asked.asked == ["a", "b", "b"]


@pytest.mark.parametrize(
    "flags", ["s_down,master", "master,o_down", "slave", "master,disconnected"]
)
def test_a_primary_that_is_down_is_none(flags: str) -> None:
    """Another Sentinel may know better."""
    asked = Asked(a=reply(flags), b=reply(port=2), c=reply())

    assert sentinels(asked, f"down-{flags}").get_master_address() == ("10.0.0.1", 2)


def test_a_lonely_sentinel_is_not_believed_where_it_must_not_be() -> None:
    """`min_other_sentinels` is what it says."""
    asked = Asked(a=reply(others=0), b=reply(others=1, port=2), c=reply())
    found = sentinels(asked, "lonely", "&min_other_sentinels=1")

    assert found.get_master_address() == ("10.0.0.1", 2)


def test_when_none_knows_each_says_why() -> None:
    """The message has every Sentinel's reason."""
    asked = Asked(
        a=TimeoutError("timed out"), b=reply("master,s_down"), c=ResponseError("No such master")
    )
    with pytest.raises(ConnectionError) as told:
        sentinels(asked, "nobody").get_master_address()

    for why in ("'nobody'", "a:26379: timed out", "b:26379: the primary is down", "No such master"):
        assert why in str(told.value)


def test_an_answer_of_something_else_is_refused() -> None:
    """A server that is no Sentinel is named as such, not taken for one."""
    for answer in (b"PONG", [b"name", b"x"], None):
        with pytest.raises(ResponseError, match="no answer of a Sentinel"):
            facts_of(answer)
