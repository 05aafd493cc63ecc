"""The simplest servers that speak TLS, as their documentation shows it; run as a module.

``KIND PORT CERTIFICATE KEY``, where KIND is ``flask_gevent``, ``asyncio`` or ``uvloop``. Each
answers every request with the same 600 bytes of JSON and keeps the connection.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from typing import Any, Final

BODY: Final = b'{"state":"Succeeded","text":"' + b"x" * 569 + b'"}'
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def flask_gevent(port: int, certificate: str, key: str) -> None:
    """Serve Flask with gevent's server and its own handling of TLS."""
    from gevent import monkey

    monkey.patch_all()
    from flask import Flask, Response
    from gevent.pywsgi import WSGIServer

    app = Flask("tls")

    @app.get("/v1/tasks/<task_id>")
    def show(task_id: str) -> Response:
        return Response(BODY, content_type="application/json")

    server = WSGIServer(("127.0.0.1", port), app, log=None, certfile=certificate, keyfile=key)
    server.serve_forever()


def on_asyncio(port: int, certificate: str, key: str) -> None:
    """Serve with asyncio's streams."""
    import asyncio

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    answer = HEAD % len(BODY) + BODY

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context, backlog=1024)
        await server.serve_forever()

    asyncio.run(main())


def on_uvloop(port: int, certificate: str, key: str) -> None:
    """Serve with the same on uvloop."""
    import asyncio

    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    on_asyncio(port, certificate, key)


KINDS: Final[dict[str, Callable[..., Any]]] = {
    "flask_gevent": flask_gevent,
    "asyncio": on_asyncio,
    "uvloop": on_uvloop,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:5])
