"""The product in processes of its own: one shared stack, and stacks for tests that kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.stack import Stack

MODEL = ("--ttft-ms", "20", "--gap-ms", "10", "--tokens", "40", "--slots", "64")

_used: list[Stack] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the ends of the processes' logs with a failed test."""
    report: Any = yield
    if report.when == "call" and report.failed:
        report.sections += [("logs of the processes", stack.logs()) for stack in _used]
    return report  # type: ignore[return-value]


@pytest.fixture(scope="session")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack that all tests share which kill nothing."""
    stack = Stack(tmp_path_factory.mktemp("stack"), model=MODEL)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def stack(shared_stack: Stack) -> Iterator[Stack]:
    """Return the shared stack, whole again should a test have hurt it."""
    _used.append(shared_stack)
    shared_stack.ready()
    yield shared_stack
    _used.clear()


@pytest.fixture
def new_stack(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Return a function that starts a stack of the test's own."""
    started: list[Stack] = []

    def start(**options: Any) -> Stack:
        folder = tmp_path / f"stack{len(started)}"
        folder.mkdir()
        stack = Stack(folder, **options)
        started.append(stack)
        _used.append(stack)
        stack.start()
        return stack

    yield start
    _used.clear()
    for stack in started:
        stack.stop()
