"""GET …/result over real HTTP: whole, in parts, waiting, large, and where there is none."""

from __future__ import annotations

import hashlib
import json
import threading
import time

import pytest

from async_nodes.core.states import EventType
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_blocking
from async_nodes.settings import Settings
from tests.contract.real_store import IDS, open_store, submission
from tests.integration.web import Answer, Hand, Web, _web_log, _web_process, ask, hand, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]


def result(web: Web, task_id: str, query: str = "", method: str = "GET", **headers: str) -> Answer:
    return web.ask(method, f"/v1/tasks/{task_id}/result{query}", None, **headers)


def done(web: Web, hand: Hand, output: bytes) -> str:
    task_id = web.task()
    hand.finish(hand.claim(task_id), output=output)
    return task_id


@pytest.mark.parametrize(
    "output", [b'{"n": 1.50}', b"null", b'""', b'"%s"' % (b"x" * 9000)], ids=str.__call__
)
def test_a_result_is_the_output_s_own_bytes(web: Web, hand: Hand, output: bytes) -> None:
    """As the node gave it, small or apart from the record."""
    task_id = done(web, hand, output)
    answer = result(web, task_id)
    assert (answer.status, answer.body) == (200, output)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["accept-ranges"] == "bytes"
    assert int(answer.headers["content-length"]) == len(output)
    head = result(web, task_id, method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == answer.headers["content-length"]
    same = result(web, task_id, if_none_match=answer.headers["etag"])
    assert (same.status, same.body) == (304, b"")


def test_a_large_output_is_apart_from_its_record(web: Web, hand: Hand) -> None:
    """The record says how large it is and where; all of it can be read there."""
    output = b'"%s"' % b"".join(b"%07d" % n for n in range(400_000))
    task_id = done(web, hand, output)
    record = web.get(f"/v1/tasks/{task_id}").json
    assert (record["output"], record["output_bytes"]) == (None, len(output))
    answer = web.get(record["links"]["result"])
    assert hashlib.sha256(answer.body).digest() == hashlib.sha256(output).digest()
    last = result(web, task_id, range="bytes=-3").body
    assert last == output[-3:]
    middle = result(web, task_id, range="bytes=524000-1049000")  # over the ends of pieces
    assert middle.body == output[524_000:1_049_001]


@pytest.mark.parametrize("size", [100, 20_000])
@pytest.mark.parametrize(
    ("header", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=5-9", 5, 9),
        ("bytes=10-", 10, None),
        ("bytes=-7", -7, None),
        ("bytes=-999999", 0, None),
        ("bytes=90-999999", 90, None),
        ("bytes=90-" + "9" * 2000, 90, None),
        ("bytes=-" + "9" * 2000, 0, None),
    ],
)
def test_a_part_of_a_result(
    web: Web, hand: Hand, size: int, header: str, first: int, last: int | None
) -> None:
    """206 with exactly these bytes, wherever the output is kept."""
    output = b'"%s"' % (b"0123456789" * size)[: size - 2]
    task_id = done(web, hand, output)
    answer = result(web, task_id, range=header)
    first = first if first >= 0 else size + first
    last = size - 1 if last is None else last
    assert (answer.status, answer.body) == (206, output[first : last + 1])
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{size}"
    assert int(answer.headers["content-length"]) == last + 1 - first


@pytest.mark.parametrize(
    "header", ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=%s-" % ("9" * 30)]
)
def test_a_part_behind_the_end_is_refused(web: Web, hand: Hand, header: str) -> None:
    """416 with the size."""
    task_id = done(web, hand, b'"%s"' % (b"x" * 98))
    answer = result(web, task_id, range=header)
    assert (answer.status, answer.code) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == "bytes */100"


@pytest.mark.parametrize(
    "header", ["bytes=5-2", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,5-6", "bytes 0-1"]
)
def test_a_range_that_is_none_is_ignored(web: Web, hand: Hand, header: str) -> None:
    """As the standard has it, the answer is the whole."""
    task_id = done(web, hand, b'"whole"')
    answer = result(web, task_id, range=header)
    assert (answer.status, answer.body) == (200, b'"whole"')


@pytest.mark.parametrize("header", ["bytes=0-1", "bytes=999-", "bytes=-0"])
def test_head_tells_the_size_of_the_whole(web: Web, hand: Hand, header: str) -> None:
    """Whatever part is asked for: only GET has parts."""
    task_id = done(web, hand, b'"whole"')
    head = result(web, task_id, method="HEAD", range=header)
    assert (head.status, head.headers["content-length"]) == (200, "7")
    assert "content-range" not in head.headers


def test_a_part_of_another_version_is_the_whole(web: Web, hand: Hand) -> None:
    """If-Range keeps parts of two versions from being put together."""
    task_id = done(web, hand, b'"whole"')
    etag = result(web, task_id).headers["etag"]
    assert result(web, task_id, range="bytes=0-1", if_range=etag).status == 206
    assert result(web, task_id, range="bytes=0-1", if_range='"99"').status == 200


def test_a_result_that_is_not_there_yet(web: Web, hand: Hand) -> None:
    """409 with Retry-After, until it is; a wait answers as soon as that."""
    task_id = web.task()
    early = result(web, task_id)
    assert (early.status, early.code) == (409, "task_not_finished")
    assert int(early.headers["retry-after"]) >= 1
    assert (early.json["state"], early.json["retryable"]) == ("Pending", True)
    claim = hand.claim(task_id)
    timer = threading.Timer(0.3, lambda: hand.finish(claim, output=b'"late"'))
    timer.start()
    answer = result(web, task_id, "?wait=10")
    timer.join()
    assert (answer.status, answer.body) == (200, b'"late"')
    assert answer.headers["preference-applied"] == "wait=10"


def test_a_task_that_ended_otherwise_has_no_result(web: Web, hand: Hand) -> None:
    """409 with the task's error, which does not change any more."""
    failed, cancelled = web.task(), web.task()
    hand.finish(hand.claim(failed), EventType.ERROR)
    web.cancel(cancelled)
    for task_id, state, code in (
        (failed, "Failed", "node_failed"),
        (cancelled, "Cancelled", "cancelled"),
    ):
        answer = result(web, task_id)
        assert (answer.status, answer.code) == (409, "task_has_no_result")
        assert (answer.json["state"], answer.json["error"]["code"]) == (state, code)
        assert answer.json["retryable"] is False
        assert "retry-after" not in answer.headers


def test_unknown_tasks_have_no_result(web: Web) -> None:
    """As everywhere: 404 for what never was."""
    for task_id in ("t_00000000000000000000000000", "nonsense"):
        assert result(web, task_id).code == "task_not_found"


def test_a_result_that_goes_while_it_is_read_is_cut(
    web: Web, hand: Hand, one_server: RedisServer
) -> None:
    """The client sees fewer bytes than were promised, never a whole answer that is not whole."""
    task_id = done(web, hand, b'"%s"' % (b"x" * (24 << 20)))
    settings = Settings(redis_url=one_server.url)
    store = open_blocking(settings, make_app(settings), title="other")
    connection = web.connect()
    connection.request("GET", f"/v1/tasks/{task_id}/result")
    response = connection.getresponse()
    response.read(1000)
    store.link.call("DEL", store.keys.output(task_id))
    store.link.close()
    with pytest.raises(Exception, match=r"IncompleteRead|reset"):
        response.read()
    connection.close()
    assert web.get("/healthz").status == 200


def test_a_result_of_the_layout_before(web: Web, one_server: RedisServer) -> None:
    """Records of schema 1 have large outputs in them; they are read alike."""
    old = open_store(one_server, schema=1)
    task_id = IDS.make(int(time.time() * 1000))
    old.store.submit(submission(task_id))
    output = b'"%s"' % (b"0123456789" * 10_000)
    Hand(old.store).finish(Hand(old.store).claim(task_id), output=output)
    assert old.store.read(task_id).schema == 1
    old.link.close()

    assert web.get(f"/v1/tasks/{task_id}").json["output"] == json.loads(output)
    assert result(web, task_id).body == output
    assert result(web, task_id, range="bytes=90000-").body == output[90_000:]


def test_results_share_a_connection(web: Web, hand: Hand) -> None:
    """After a whole, a part and a refusal the connection serves on."""
    task_id = done(web, hand, b'"%s"' % (b"x" * 1_000_000))
    connection = web.connect()
    path = f"/v1/tasks/{task_id}/result"
    assert len(ask(connection, "GET", path).body) == 1_000_002
    assert len(ask(connection, "GET", path, range="bytes=0-9").body) == 10
    assert ask(connection, "GET", path, range="bytes=2000000-").status == 416
    assert ask(connection, "HEAD", path).status == 200
    assert len(ask(connection, "GET", path).body) == 1_000_002
    connection.close()
