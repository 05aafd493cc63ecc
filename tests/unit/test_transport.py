from __future__ import annotations

import inspect
import json
import logging
import re
from pathlib import Path

import pytest

from async_nodes.execution.consumer import _readable
from async_nodes.execution.transport import KNOWN, transport


@pytest.mark.parametrize("kombu", ["5.7.0", "5.7.12", "5.7.0rc1"])
def test_the_fast_way_beside_a_known_kombu(kombu: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said where all is as tested."""
    assert transport("fast", kombu) == "fast"
    assert not caplog.records


@pytest.mark.parametrize("kombu", ["5.6.2", "5.8.0", "5.8.0b1", "6.0", "4.6.11", "nightly"])
def test_the_stock_way_beside_any_other(kombu: str, caplog: pytest.LogCaptureFixture) -> None:
    """The worker works on, and says why it is slower."""
    with caplog.at_level(logging.WARNING):
        assert transport("fast", kombu) == "stock"
    (line,) = caplog.records
    assert kombu in line.getMessage()
    assert line.__dict__["action"] == "transport_fallback"


def test_who_wants_the_stock_way_gets_it(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever kombu there is."""
    assert transport("stock", "5.7.0") == transport("stock", "9.9") == "stock"
    assert not caplog.records


def test_what_is_known_is_what_is_required() -> None:
    """The package asks for the very kombu that the fast transport knows."""
    text = (Path(__file__).parents[2] / "setup.cfg").read_text("utf-8")
    found = re.search(r"^\s+kombu>=(\d+)\.(\d+),<(\d+)\.(\d+)$", text, re.MULTILINE)
    assert found is not None
    first, second, third, fourth = map(int, found.groups())
    assert ((first, second), (third, fourth)) == KNOWN


def test_kombu_reads_messages_where_we_look_after_it() -> None:
    """Both of its channels, also under Sentinel; another kombu would read them elsewhere."""
    from kombu.transport.redis import Channel, SentinelChannel

    assert issubclass(SentinelChannel, Channel)
    source = inspect.getsource(Channel._brpop_read)
    assert "_deliver(loads(bytes_to_str(item)), dest)" in source
    assert "finally:\n            self._in_poll = None" in source


@pytest.mark.parametrize(
    "item", [b"{", b"\x80\x04", b"7", b"{}", b'{"headers":7,"properties":[]}', b"[" * 9000]
)
def test_a_message_that_cannot_be_read_ends_nothing(item: bytes) -> None:
    """It is dropped with a line in the log; an outage is still one."""
    fates: list[Exception] = []

    class Kombus:
        def _brpop_read(self) -> None:
            raise fates[0]

    channel = _readable(Kombus)()
    try:
        json.loads(item)["properties"]["delivery_info"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        fates.append(error)
    assert channel._brpop_read() is True
    fates[0] = ConnectionResetError()
    with pytest.raises(ConnectionResetError):
        channel._brpop_read()
