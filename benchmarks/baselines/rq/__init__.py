"""rq + Flask + gevent on Redis."""
