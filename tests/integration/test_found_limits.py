"""What a web process does about the limits it is started with."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, resource
from gevent import monkey
monkey.patch_all()
from async_nodes.access.serving.server import allow_descriptors
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
allow_descriptors(2_000)
raised = resource.getrlimit(resource.RLIMIT_NOFILE)
allow_descriptors(500)
print(json.dumps([hard, raised, resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def limits(hard: int) -> list[list[int]]:
    """Return the limits of a process that begins with 256, after it wanted 2,000 and then 500."""
    command = f'ulimit -S -n 256 && ulimit -H -n {hard} && exec "$0" -c "$1"'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, PROGRAM], capture_output=True, check=True
    )
    allowed, raised, kept = json.loads(done.stdout)
    assert allowed == raised[1] == kept[1] == hard  # what the system allows stays as it is
    return [raised, kept]


def test_the_limit_of_open_files_is_raised_for_the_connections() -> None:
    """A thousand clients that watch do not use up what the process may open."""
    raised, kept = limits(4_096)
    assert raised[0] == 2_000
    assert kept[0] == 2_000  # never lowered


def test_a_low_hard_limit_is_taken_as_it_is() -> None:
    """Where more is not allowed, what is allowed is used."""
    raised, kept = limits(512)
    assert raised[0] == kept[0] == 512
