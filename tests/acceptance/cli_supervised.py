"""A program that supervises two made-up processes: what the supervisor is tested through.

Arguments: the Python source of the process "web" (stage 0) and of the process "worker" (stage 1),
then what the director does: ``stay``, ``ready`` (the whole worked once, then stay) or a status.
"""

from __future__ import annotations

import os
import sys

from async_nodes.cli.console import Console
from async_nodes.cli.failures import Failure, report
from async_nodes.cli.restart import RestartPolicy
from async_nodes.cli.service import ProgramService
from async_nodes.cli.supervisor import Supervisor
from async_nodes.cli.terminal import Terminal


def service(name: str, source: str, stage: int) -> ProgramService:
    argv = [sys.executable, "-u", "-c", source]
    return ProgramService(name, argv, stage=stage, environ=lambda: dict(os.environ), patience=3.0)


def main(web: str, worker: str, action: str) -> int:
    services = [service("web", web, 0), service("worker", worker, 1)]
    console = Console(sys.stdout, Terminal())
    policy = RestartPolicy(first=0.05, longest=0.2, settled=5.0, patience=3)
    supervisor = Supervisor(services, console, policy=policy)

    def director() -> int | None:
        if action == "ready":
            supervisor.mark_ready()
        if action == "broken":
            raise Failure("the director says no")
        console.line("directing")
        return int(action) if action.isdigit() else None

    try:
        return supervisor.run(director)
    except Failure as failure:
        report(failure)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
