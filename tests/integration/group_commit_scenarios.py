"""The store of a gevent process under load, each scenario a program of its own.

    python group_commit_scenarios.py SCENARIO SERVER_NAME

Exits with 1 and a traceback when an assertion fails.
"""

import sys

if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()

import time

import gevent
from gevent.pool import Pool

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Claim, Ending, Refused, Submission
from async_nodes.core.states import EventType, NodeState
from async_nodes.storage.group_commit import GroupCommit
from async_nodes.storage.redis_connection import PipelinedConnection
from async_nodes.storage.redis_store import RedisStore, scripts_for
from tests.contract.real_store import IDS, KEYS, WORKER, messages, submission
from tests.servers import RedisServer

COMPLETE = Ending(event=EventType.COMPLETE, output=b'"done"')


def opened(server: RedisServer, patience: float = 30.0) -> tuple[RedisStore, GroupCommit]:
    link = PipelinedConnection(server.url, client_name="test")
    scripts = scripts_for(link, KEYS, messages())
    committer = GroupCommit(link, scripts, KEYS.base)
    store = RedisStore(
        link=link, committer=committer, keys=KEYS, scripts=scripts, patience=patience
    )
    store.register(WORKER)
    return store, committer


def tasks(count: int) -> list[Submission]:
    now = int(time.time() * 1000)
    return [
        submission(IDS.make(now), inputs=b"%d" % number, private=b"p%d" % number)
        for number in range(count)
    ]


def thousand(server: RedisServer) -> None:
    """A thousand submits, claims and ends at once: few flushes, everybody's own verdict."""
    store, committer = opened(server)
    asked = tasks(1000)
    pool = Pool(1000)
    accepted = pool.map(store.submit, asked)
    assert [one.task_id for one in accepted] == [one.task_id for one in asked]
    assert not any(one.replayed for one in accepted)
    submits = committer.flushes
    assert submits <= 30, submits

    def claim(number: int) -> Claim | Refused:
        fence = f"{number:016d}"
        return store.claim(asked[number].task_id, 1, worker=WORKER, fence=fence)

    claims = pool.map(claim, range(1000))
    assert all(isinstance(one, Claim) for one in claims)
    assert [one.inputs for one in claims] == [b"%d" % number for number in range(1000)]
    assert [one.private for one in claims] == [b"p%d" % number for number in range(1000)]
    ended = pool.map(lambda one: store.finish(one.task_id, one.fence, COMPLETE), claims)
    assert {one.state for one in ended} == {NodeState.SUCCEEDED}
    assert committer.rows == 3000
    assert committer.flushes <= 90, committer.flushes
    assert store.running(WORKER) == []


def cut(server: RedisServer) -> None:
    """The connection is cut again and again under load: every task once, every chunk once."""
    store, _ = opened(server)
    asked = tasks(600)
    done = []

    def life(one: Submission) -> None:
        store.submit(one)
        claim = store.claim(one.task_id, 1, worker=WORKER, fence=one.task_id[-16:])
        assert isinstance(claim, Claim), claim
        for number in range(1, 6):
            said = store.chunk(one.task_id, claim.fence, b'{"n":%d}' % number, number=number)
            assert said.applied
        assert store.finish(one.task_id, claim.fence, COMPLETE).applied
        done.append(one.task_id)

    cuts = 0
    pool = Pool(200)
    lives = [pool.apply_async(life, (one,)) for one in asked]
    with server.client() as client:
        while len(done) < len(asked) and cuts < 400:
            gevent.sleep(0.005)
            for connection in client.client_list():
                if connection["name"] == "test":
                    client.client_kill_filter(_id=connection["id"])
                    cuts += 1
    for one in lives:
        one.get(timeout=60)
    assert cuts >= 5, cuts
    gevent.sleep(0.2)  # a last cut may still be on its way
    for one in asked:
        document = store.read(one.task_id)
        assert (document.state, document.attempt, document.version) == (NodeState.SUCCEEDED, 1, 3)
        assert [e.seq for e in store.entries(one.task_id, after=(0, 0))] == [1, 2, 3, 4, 5]


def outage(server: RedisServer) -> None:
    """A killed server: requests are told within their patience, workers wait it out."""
    web, _ = opened(server, patience=0.8)
    worker, _ = opened(server, patience=60.0)
    first = tasks(1)[0]
    web.submit(first)
    claim = worker.claim(first.task_id, 1, worker=WORKER, fence="f" * 16)
    server.kill()
    result = gevent.spawn(worker.finish, first.task_id, claim.fence, COMPLETE)
    started = time.monotonic()
    told = Pool(50).map(lambda one: answered(web, one), tasks(50))
    assert time.monotonic() - started < 1.5, time.monotonic() - started
    assert set(told) <= {"store_unavailable", "outcome_unknown"}, told
    assert not result.ready()
    server.start()
    assert result.get(timeout=30).applied
    until = time.monotonic() + 10
    while answered(web, tasks(1)[0]) != "accepted":
        assert time.monotonic() < until
        gevent.sleep(0.05)


def hang(server: RedisServer) -> None:
    """A server that stops for a moment: what was asked meanwhile is done once it goes on."""
    store, _ = opened(server, patience=30.0)
    asked = tasks(100)
    store.submit(asked[0])
    server.pause()
    waiting = [gevent.spawn(store.submit, one) for one in asked[1:]]
    gevent.sleep(1.0)
    assert not any(one.ready() for one in waiting)
    server.resume()
    gevent.joinall(waiting, timeout=30, raise_error=True)
    with server.client() as client:
        assert client.llen(KEYS.queue("io.default")) == 100


def answered(store: RedisStore, one: Submission) -> str:
    try:
        store.submit(one)
    except AsyncNodesError as error:
        return error.code
    return "accepted"


if __name__ == "__main__":
    the_server = RedisServer(sys.argv[2])
    the_server.start()
    try:
        globals()[sys.argv[1]](the_server)
    finally:
        the_server.remove()
