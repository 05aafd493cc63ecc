"""A receiver of OTLP over HTTP, as small as one can be: it keeps the spans it is sent."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Listen on a port of this machine.

    Attributes:
        spans: what came, each with its ``service`` beside the span.
        asked: the headers of each GET, which is answered with nothing.

    """

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.spans: list[tuple[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                receiver.asked.append(dict(self.headers))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return what ``OTEL_EXPORTER_OTLP_ENDPOINT`` is to be."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, body: bytes) -> None:
        """Keep the spans of one request."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(named["service.name"], span) for span in scope.spans]

    def of(self, trace_id: str) -> dict[str, Any]:
        """Return the spans of a trace by the first word of their names."""
        wanted = bytes.fromhex(trace_id)
        return {s.name.partition(" ")[0]: s for _, s in self.spans if s.trace_id == wanted}

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    """Return a span's attributes."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
