"""Our routes in a host's Flask app, our task in a host's Celery app: neither disturbs the other."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from tests.acceptance.stack import ROOT, Stack, answers, free_port
from tests.acceptance.web_client import WebClient

CELERY = [sys.executable, "-m", "celery", "-A", "tests.acceptance.mounted_host:celery", "worker"]
FLASK = [sys.executable, "-m", "flask", "--app", "tests.acceptance.mounted_host:web()"]


class Host(Stack):
    """A host's processes in place of ours."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, io=0, cpu=0, **options)
        broker = self.server.kombu_url()
        self._environ |= {"BROKER_URL": broker, "PYTHONPATH": str(ROOT)}
        del self.programs["web"]
        self.client = WebClient(free_port(), prefix="/jobs")
        self.pages = WebClient(self.client.port)
        port = str(self.client.port)
        self.add_program("web", [*FLASK, "run", "--port", port])
        self.add_program("green", [*CELERY, "-P", "gevent", "-c", "20", "-n", "green@%h"])
        self.add_program("forks", [*CELERY, "-P", "prefork", "-c", "2", "-n", "forks@%h"])
        self.celery = Celery("host", broker=broker, backend=broker, set_as_current=False)

    def ready(self) -> None:
        """Wait until the host serves and its workers have our leases."""
        self.until(lambda: answers(self.client.port, "/jobs/readyz"), "not ready")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("host"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_nodes_of_both_pools_run_in_the_hosts_workers(host: Host) -> None:
    """Submitted below the prefix, with links that lead there."""
    ids = [
        host.submit("echo", {"n": 1}),
        host.submit("text.chunk", {"text": "a b c", "size": 100, "overlap": 0}),
        host.submit("test.fail", {"kind": "retryable", "times": 1}),
        host.submit("test.async_sleep", {"seconds": 0.1}),
    ]
    records = host.wait_all(ids)

    assert [record["state"] for record in records] == ["Succeeded"] * 4
    assert records[0]["links"] == {
        "self": f"/jobs/v1/tasks/{ids[0]}",
        **{
            name: f"/jobs/v1/tasks/{ids[0]}/{name}"
            for name in ("events", "result", "logs", "cancel")
        },
    }


def test_the_host_is_as_it_was(host: Host) -> None:
    """Its tasks run and have results, its pages and its error pages are its own."""
    sums = [host.celery.send_task("host.add", (n, 1)) for n in range(20)]
    assert [one.get(timeout=20) for one in sums] == list(range(1, 21))

    page = host.pages.request("GET", "/")
    assert page.json == {"host": True}
    assert host.pages.request("GET", "/nothing").json == {"host": "knows no such page"}


def test_problems_are_ours_below_the_prefix(host: Host) -> None:
    """With addresses that lead there."""
    reply = host.client.post("no.such", {})
    assert (reply.status, reply.json["type"]) == (422, "/jobs/problems/unknown_node")

    kind = host.client.request("GET", "/problems/unknown_node")
    assert kind.status == 200


def test_no_link_leads_out_of_the_prefix(host: Host) -> None:
    """Whoever follows the index and the pages stays within what is mounted, and finds it there."""
    described = host.client.request("GET", "/openapi.json").json
    assert described["servers"] == [{"url": "/jobs"}]
    index = host.client.request("GET", "/").json["links"]
    known, found = set(index.values()), set()
    while known - found:
        address = (known - found).pop()
        found.add(address)
        assert address.startswith("/jobs/"), address
        page = host.pages.request("GET", address, None, {"Accept": "text/html"})
        assert page.status == 200, address
        if page.headers["content-type"].startswith("text/html"):
            links = re.findall(r'href="([^"]*)"', page.body.decode())
            known |= {one.partition("#")[0] for one in links if not one.startswith(("#", "http"))}

    assert len(found) > 50


def test_streams_and_waits_are_served_by_threads(host: Host) -> None:
    """Live events and a long poll, while other requests are answered."""
    task_id = host.submit("test.emit", {"n": 6, "text": "x", "gap": 0.2})
    seen: list[str] = []
    with host.client.events(task_id) as stream:
        waited = threading.Thread(target=host.client.wait, args=(task_id,))
        waited.start()
        assert host.client.request("GET", "/v1/nodes").status == 200
        seen = [event.type for event in stream]
        waited.join(10)

    assert seen.count("chunk") == 6
    assert seen[-1] == "done"
    reply = host.client.request("GET", "/v1/events")
    assert (reply.status, reply.json["code"]) == (501, "needs_gevent")


def test_a_cancel_reaches_a_hosts_worker(host: Host) -> None:
    """In either pool."""
    for node, inputs in (("test.sleep", {"seconds": 30}), ("test.spin", {"seconds": 30})):
        task_id = host.submit(node, inputs)
        host.client.wait_running(task_id)
        assert host.client.cancel(task_id, wait=5).json["state"] == "Cancelled"


def test_a_page_of_another_site_is_refused(host: Host) -> None:
    """As by our own web process; the host's pages are the host's business."""
    elsewhere = {"Origin": "http://elsewhere.example"}
    assert host.client.request("GET", "/v1/nodes", headers=elsewhere).status == 403
    assert host.pages.request("GET", "/", headers=elsewhere).status == 200


@pytest.mark.timeout(120)
def test_a_killed_host_worker_loses_nothing(host: Host) -> None:
    """Neither our task nor the host's, which comes back by its visibility time-out."""
    task_id = host.submit("test.sleep", {"seconds": 1.5})
    host.client.wait_running(task_id)
    sums = [host.celery.send_task("host.add", (n, 1, 1.0)) for n in range(6)]
    time.sleep(0.4)
    host["green"].remove()
    host["forks"].remove()
    host["green"].start()
    host["forks"].start()

    assert host.wait(task_id, 30)["losses"] == 1
    assert [one.get(timeout=60) for one in sums] == list(range(1, 7))


def test_a_worker_that_takes_none_of_our_lists_has_nothing_of_ours(host: Host) -> None:
    """No lease, no keeper: a plain worker of the host's."""
    plain = host.add_program(
        "plain", [*CELERY, "-P", "prefork", "-c", "1", "-n", "plain@%h", "-Q", "celery"]
    )
    plain.start()
    with contextlib.suppress(AssertionError):
        host.until(lambda: "ready" in plain.text(), "", 10)

    assert plain.status is None
    assert not any(f"-{plain.pid}-" in worker for worker in host.store.workers())
    plain.remove()
