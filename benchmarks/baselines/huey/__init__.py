"""huey + Flask + gevent on Redis."""
