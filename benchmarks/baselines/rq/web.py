"""The web process: ``python -m benchmarks.baselines.rq.web PORT``."""

from __future__ import annotations

from benchmarks.baselines import flask_web  # patches, so it is first

# isort: split

from functools import partial
from typing import Any, Final

from redis import Redis
from rq import Queue, Retry
from rq.job import Job, JobStatus

from benchmarks.baselines import jobs
from benchmarks.baselines.settings import CONNECTIONS, KEEP_SECONDS, REDIS

client: Final = Redis.from_url(f"{REDIS}/0", max_connections=CONNECTIONS)
queue: Final = Queue("baseline", connection=client)


def submit(function: Any, inputs: dict[str, Any]) -> str:
    """Send a task and return its id."""
    job = queue.enqueue(
        function,
        kwargs=inputs,
        result_ttl=KEEP_SECONDS,
        failure_ttl=KEEP_SECONDS,
        job_timeout=30,
        retry=Retry(max=3),
    )
    return str(job.id)


def read(task_id: str) -> tuple[str, Any]:
    """Look at a job: one HGETALL, and one read of the result once it is finished."""
    job = Job.fetch(task_id, connection=client)
    status = job.get_status(refresh=False)
    if status == JobStatus.FINISHED:
        return "SUCCESS", job.return_value()
    return ("FAILURE" if status == JobStatus.FAILED else "PENDING"), None


if __name__ == "__main__":
    submits = {name: partial(submit, getattr(jobs, name)) for name in ("echo", "nap")}
    flask_web.serve(submits, read)
