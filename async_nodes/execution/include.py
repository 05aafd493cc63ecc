"""Mount our task into an existing Celery app: ``include=["async_nodes.execution.include"]``.

Celery imports this module in every worker of that app. Its workers then take our lists beside
their own queues: a gevent worker those of I/O nodes, a prefork worker those of CPU nodes, or what
``-Q`` names. Messages and records are in the app's broker, which has to be Redis.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from celery import current_app

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.redis_urls import is_redis
from async_nodes.execution.tasks import Installation
from async_nodes.nodes.registry import registry
from async_nodes.settings import BROKER, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from celery import Celery


def settings_of(app: Celery, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings for an app that is not ours: the environment's, and its broker.

    A module named ``settings`` is the host's own business and is not looked at.

    Raises:
        AsyncNodesError: ``invalid_setting``: the broker is not Redis, or a value is wrong.

    """
    settings = Settings.for_host(environ)
    if settings.redis_url is not None:
        return settings
    broker = str(app.conf.broker_url or "")
    if not is_redis(broker):
        raise AsyncNodesError(
            "invalid_setting",
            "async_nodes needs a Celery app whose broker is Redis: a submit writes the record and "
            "the message in one transaction",
        )
    conf = {name: app.conf.get(name) for name in (BROKER.options, BROKER.tls)}
    return settings.with_redis_url(BROKER.whole(broker, conf))


def mount(app: Celery) -> Installation:
    """Hang our task onto an app."""
    settings = settings_of(app)
    registry(settings.imports)
    return Installation(app, settings, mounted=True)


installation = mount(current_app._get_current_object())  # noqa: SLF001 - the app itself, no proxy
