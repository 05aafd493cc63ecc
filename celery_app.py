"""The Celery app for Celery's own command line: ``celery -A celery_app worker -P gevent``.

`settings.py` beside this file holds the settings, under Celery's names with the prefix CELERY_.
"""

from async_nodes.execution.worker import make_worker_app
from async_nodes.settings import Settings

app = make_worker_app(Settings.load())
