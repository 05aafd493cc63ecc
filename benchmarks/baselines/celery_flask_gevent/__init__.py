"""Stock Celery + Flask + gevent on Redis: the same job with nothing of async_nodes in it."""
