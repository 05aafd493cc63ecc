"""What can be thrown into a running body besides a cancel and a time-out.

All of them are BaseExceptions, so that a body's ``except Exception`` does not swallow them.
"""

from __future__ import annotations


class FenceLost(BaseException):
    """Unwind a body whose task was given to another worker: nothing it says counts any more."""


class Released(BaseException):
    """Unwind a body that a stopping worker hands back; the task runs again elsewhere."""
