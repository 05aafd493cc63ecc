"""The JSON that others rely on, byte for byte: records, events, the submit row, the layout.

A change here is a change of the product's interface. To accept one, run with ``GOLDEN=write`` and
read the difference.
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes.core.ports import Ending
from async_nodes.core.states import EventType
from async_nodes.storage.layout import CONTROL_SIZE, FIELDS, HEAD_WIDTH, REASONS, SCHEMA, STATES
from tests.contract.real_store import KEYS, WORKER, RealStore, open_store, submission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer

GOLDEN = Path(__file__).with_name("golden")
ID = "t_06H2WXBBE402VHJ8ZPFGG35PTE"
ISO_TIME = re.compile(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"')
ERROR = b'{"code":"node_failed","type":"ValueError","message":"no","retryable":true}'


def check_golden(name: str, found: bytes) -> None:
    """Compare with the golden file, times and padding apart."""
    shown = ISO_TIME.sub(b'"<time>"', found).rstrip(b" ") + b"\n"
    shown = re.sub(rb", +\"", b',"', shown)
    path = GOLDEN / name
    if os.environ.get("GOLDEN") == "write":
        path.write_bytes(shown)
    assert shown.decode() == path.read_bytes().decode()


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(redis_server)
    made.register(WORKER)
    yield made
    made.link.close()


def submit(store: RealStore, **fields: Any) -> str:
    return str(store.submit(submission(ID, **fields)).task_id)


def test_a_waiting_record(store: RealStore) -> None:
    """What GET answers after the submit: the fields and their order."""
    submit(store)

    check_golden("record_pending.json", store.read(ID).json)


def test_a_record_with_a_history(store: RealStore) -> None:
    """A failed attempt, a lost one, progress, usage, and the output at the end."""
    submit(store, inputs=b'{"prompt": "hi"}')
    first = store.start(ID)
    store.finish(ID, first.fence, Ending(event=EventType.RETRY, error=ERROR))
    time.sleep(0.005)
    store.fire_timers()
    store.start(ID)
    store.lost(ID, worker=WORKER, dispatch=2, isolated=False)
    third = store.start(ID)
    ending = Ending(
        event=EventType.COMPLETE,
        output=b'{"text":"hello"}',
        usage=b'{"completion_tokens":2}',
        progress=b'{"fraction":1.0,"text":"done"}',
    )
    store.finish(ID, third.fence, ending)

    check_golden("record_succeeded.json", store.read(ID).json)


@pytest.mark.parametrize("running", [False, True])
def test_a_cancelled_record(store: RealStore, *, running: bool) -> None:
    """The error of a cancel says whether the body is known to have stopped."""
    submit(store)
    if running:
        claim = store.start(ID)
        store.cancel(ID, tenant="default")
        store.finish(ID, claim.fence, Ending(event=EventType.CANCEL))
    else:
        store.cancel(ID, tenant="default")

    name = "record_cancelled_running.json" if running else "record_cancelled.json"
    check_golden(name, store.read(ID).json)


def test_the_events_of_a_life(redis_server: RedisServer, store: RealStore) -> None:
    """What is published on a task's channel: position, type and JSON of every event."""
    with redis_server.client() as client, client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(KEYS.channel(ID))
        heard.get_message(timeout=1)
        submit(store)
        claim = store.start(ID)
        store.progress(ID, claim.fence, b'{"fraction":0.5,"text":"half","attempt":1}')
        store.chunk(ID, claim.fence, b'{"text":"he","attempt":1,"n":1}', number=1)
        store.chunk(ID, claim.fence, b'{"text":"llo","attempt":1,"n":2}', number=2)
        retry = Ending(event=EventType.RETRY, delay_ms=1, error=ERROR)
        store.finish(ID, claim.fence, retry)
        time.sleep(0.005)
        store.fire_timers()
        claim = store.start(ID)
        store.cancel(ID, tenant="default")
        store.finish(ID, claim.fence, Ending(event=EventType.COMPLETE, output=b'"hello"'))
        said = [message["data"] for _ in range(20) if (message := heard.get_message(timeout=0.2))]

    check_golden("events.txt", b"\n".join(said))


def test_the_layout_of_a_record() -> None:
    """Names, formats, order and codes: a change needs another schema number."""
    layout = {
        "schema": SCHEMA,
        "control_size": CONTROL_SIZE,
        "head_width": HEAD_WIDTH,
        "fields": [f"{field.python:>3} {field.name}" for field in FIELDS],
        "states": [state.value for state in STATES],
        "reasons": [reason.value for reason in REASONS],
    }

    check_golden("layout.json", json.dumps(layout, indent=1).encode())
