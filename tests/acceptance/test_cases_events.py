"""Cases about event streams."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from tests.acceptance.stack import Stack
from tests.event_stream import ServerEvent

AWKWARD = [
    "line\u2028para\u2029next\u0085end",
    "\v\f\x1c\x1d\x1e",
    "cr\rcrlf\r\nlf\n",
    "\n\n\n",
    "\r",
    "data: x\n\nevent: done\ndata: {}\n\n",
    "id: 9-9\nretry: 1\n: comment\n",
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 e\u0301",
    "\ufeffbom\ufeff",
    " leading and trailing ",
    "",
    "\x00\x01\x1b[31m",
    "\u202eoverride",
    '"quoted" \\ back',
]


def texts(events: list[ServerEvent]) -> list[str]:
    """Return the texts of the chunks."""
    return [event.json["text"] for event in events if event.type == "chunk"]


def positions(events: list[ServerEvent]) -> list[tuple[int, int]]:
    """Return where the events stand."""
    return [event.position for event in events]


def test_awkward_text_arrives_as_it_was_sent(stack: Stack) -> None:
    """A strict parser gets the exact text, live and replayed (sse-separators)."""
    task_id = stack.submit("test.emit", {"pieces": AWKWARD, "gap": 0.01})
    with stack.client.events(task_id) as feed:
        live = feed.until("done")
    with stack.client.events(task_id) as feed:
        replayed = feed.until("done")

    assert feed.headers["content-type"].startswith("text/event-stream")
    assert texts(live) == texts(replayed) == AWKWARD
    assert live[-1].json["output"] == "".join(AWKWARD)
    assert stack.client.get(task_id)["output"] == "".join(AWKWARD)


def test_resume_gets_the_rest_exactly_once(stack: Stack) -> None:
    """A client that comes back with its last id gets what follows, from any event (sse-resume)."""
    task_id = stack.submit("test.emit", {"n": 12, "text": "x", "gap": 0.02})
    with stack.client.events(task_id) as feed:
        whole = feed.until("done")
        assert list(feed) == []
    for index, event in enumerate(whole[:-1]):
        with stack.client.events(task_id, after=event.id) as feed:
            assert positions(list(feed)) == positions(whole[index + 1 :])
        with stack.client.events(task_id, query=f"?after={event.id}") as feed:
            assert positions(list(feed)) == positions(whole[index + 1 :])
    with stack.client.events(task_id, after=whole[-1].id) as feed:
        assert (feed.status, feed.body()) == (204, b"")


def test_a_stream_cut_while_it_runs_is_resumed(stack: Stack) -> None:
    """Cut again and again, a client misses nothing and sees nothing twice (sse-resume)."""
    task_id = stack.submit("test.emit", {"n": 40, "text": "y", "gap": 0.02})
    seen: list[ServerEvent] = []
    cuts = 0
    while not seen or seen[-1].type != "done":
        with stack.client.events(task_id, after=seen[-1].id if seen else None) as feed:
            for count, event in enumerate(feed):
                seen.append(event)
                if count == 4:
                    cuts += 1
                    break

    assert cuts > 3
    assert positions(seen) == sorted(set(positions(seen)))
    assert len(texts(seen)) == 40
    assert [event.type for event in seen].count("done") == 1


@pytest.mark.parametrize("moment", ["before the start", "between two events", "after the end"])
def test_a_late_subscriber_gets_everything(stack: Stack, moment: str) -> None:
    """Whenever a client comes, it gets the history, then what follows (sse-late-subscriber)."""
    delay = 0.5 if moment == "before the start" else 0
    task_id = stack.submit("test.emit", {"n": 10, "text": "z", "gap": 0.05}, delay=delay)
    if moment == "between two events":
        time.sleep(0.27)
    if moment == "after the end":
        stack.wait(task_id)
    with stack.client.events(task_id) as feed:
        events = feed.until("done")

    assert len(texts(events)) == 10
    assert positions(events) == sorted(set(positions(events)))
    states = [event.json["state"] for event in events if event.type == "state"]
    assert states[0] == "Pending"
    assert states[-1] == "Running"
    assert events[-1].json["state"] == "Succeeded"
    numbers = [event.json["n"] for event in events if event.type == "chunk"]
    assert numbers == list(range(1, 11))


def test_clients_that_left_cost_nothing(stack: Stack) -> None:
    """Two hundred reset subscribers of a silent task are gone after two heartbeats.

    (sse-client-gone; the heartbeat is 15 s, so this test is one of the slow ones.)
    """
    task_id = stack.submit("test.sleep", {"seconds": 60})
    stack.client.wait_running(task_id)

    def redis_clients() -> int:
        with stack.redis() as client:
            return int(client.info("clients")["connected_clients"])

    def subscribers() -> int:
        with stack.redis() as client:
            channel = stack.store.keys.channel(task_id)
            [(_, count)] = client.pubsub_numsub(channel)
            return int(count)

    before = redis_clients()
    feeds = [stack.client.events(task_id) for _ in range(200)]
    for feed in feeds:
        next(iter(feed))
    assert redis_clients() <= before + 1
    assert subscribers() == 1
    for feed in feeds:
        linger = struct.pack("ii", 1, 0)  # close() sends a reset
        feed.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        feed.close()
    gone = stack.until(lambda: subscribers() == 0, "subscribers stay", 32)

    assert gone < 31
    assert redis_clients() <= before
    stack.client.cancel(task_id)
    stack.wait(task_id)
