"""Errors whose class names an app can branch on: Dify puts them into ``error_message``."""

from __future__ import annotations


class AsyncNodesError(Exception):
    """Begin every error of this plugin."""


class AsyncNodesInvalidInput(AsyncNodesError):
    """A parameter or an input is wrong: the same call fails again."""


class AsyncNodesUnauthorized(AsyncNodesError):
    """The key is missing, wrong, or not allowed to do this."""


class AsyncNodesNotFound(AsyncNodesError):
    """There is no such task or node, or it is gone."""


class AsyncNodesOverloaded(AsyncNodesError):
    """The service takes nothing more at the moment: try again later."""


class AsyncNodesUnavailable(AsyncNodesError):
    """The service was not reached, or failed itself."""


class AsyncNodesTaskFailed(AsyncNodesError):
    """The task has ended as Failed."""


class AsyncNodesTaskCancelled(AsyncNodesError):
    """The task has ended as Cancelled."""


class AsyncNodesTimeout(AsyncNodesError):
    """The task goes on, and this call was told to fail instead of waiting longer."""
