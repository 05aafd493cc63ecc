"""Run the unit and the contract tests as the web process and the I/O workers run: under gevent.

``python -m tests.patched [pytest arguments]``. Everything is patched before anything is imported.
Tests marked `native` are left out: they are about processes that are not patched.
"""

# ruff: noqa: E402 - patched before anything else is imported
from gevent import monkey

monkey.patch_all()

import sys

import pytest

TIERS = ("tests/unit", "tests/contract")


def main(arguments: list[str]) -> int:
    """Return pytest's exit status."""
    given = arguments or list(TIERS)
    return int(pytest.main(["-m", "not native", "-p", "no:cacheprovider", *given]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
