"""Beside the way: the one client for everything a task fetches from elsewhere.

Every outgoing HTTP call of a node goes through `Client`, so that no path around `Guard` exists.
Nothing in here knows tasks, storage or Celery.
"""

from async_nodes.egress.client import Client, Timeouts
from async_nodes.egress.guard import Address, Guard, Target
from async_nodes.egress.response import Response
from async_nodes.egress.retry_after import retry_after

__all__ = ["Address", "Client", "Guard", "Response", "Target", "Timeouts", "retry_after"]
