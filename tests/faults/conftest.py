"""Stacks for tests that kill, from the acceptance tests."""

from tests.acceptance.conftest import new_stack, pytest_runtest_makereport

__all__ = ["new_stack", "pytest_runtest_makereport"]
