"""dramatiq + Flask + gevent on Redis."""
