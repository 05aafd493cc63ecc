"""Fixtures of the integration tests."""

from tests.servers import _servers, new_server, one_server, redis_server

__all__ = ["_servers", "new_server", "one_server", "redis_server"]
