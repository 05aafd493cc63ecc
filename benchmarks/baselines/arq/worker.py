"""The worker: ``python -m benchmarks.baselines.arq.worker``, arq's own on uvloop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import uvloop
from arq.worker import run_worker

from benchmarks.baselines.arq.tasks import Worker

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.set_event_loop(uvloop.new_event_loop())
    run_worker(cast("Any", Worker))
