"""What a baseline's processes are told by the benchmark, through their environment."""

from __future__ import annotations

import os
from typing import Final

REDIS: Final = os.environ["BASELINE_REDIS_URL"]
"""``redis://HOST:PORT``, without a database."""

SLOTS: Final = int(os.environ.get("BASELINE_CONCURRENCY", "300"))
"""Tasks at once in one worker."""

KEEP_SECONDS: Final = 3600
"""How long a result is kept."""

RECOVERY_SECONDS: Final = 15
"""After how long a silent worker's tasks are given to another, where a library can say so."""

CONNECTIONS: Final = 400
"""Bound of a connection pool: above the requests, or the tasks, of the largest round."""
