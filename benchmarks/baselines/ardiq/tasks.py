"""The app and its tasks. README.md beside it has the reasons."""

from __future__ import annotations

from typing import Final

from ardiq import Ardiq

from benchmarks.baselines import jobs
from benchmarks.baselines.settings import KEEP_SECONDS, RECOVERY_SECONDS, REDIS, SLOTS

app: Final = Ardiq(
    f"{REDIS}/0",
    "baseline",
    concurrency=SLOTS,
    idle_timeout_ms=RECOVERY_SECONDS * 1000,
    result_ttl_ms=KEEP_SECONDS * 1000,
)
tasks: Final = {
    name: app.task(name=name)(function)
    for name, function in (("echo", jobs.async_echo), ("nap", jobs.async_nap))
}
