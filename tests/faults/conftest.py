"""Stacks for tests that kill, from the acceptance tests."""

import pytest

pytest.register_assert_rewrite("tests.faults.load")

from tests.acceptance.conftest import new_stack, pytest_runtest_makereport  # noqa: E402

__all__ = ["new_stack", "pytest_runtest_makereport"]
