"""Built-in node ``http.request``: one HTTP call to a public address.

What is an error: a failing connection, 429 and every 5xx are tried again (not before the server's
Retry-After); any other answer, 404 included, is a result for the workflow to judge. An attempt
that writes carries the same Idempotency-Key as the one before it.
"""

from __future__ import annotations

import base64
from email.message import Message
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from async_nodes.core.errors import RetryableError, TerminalError
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from async_nodes.egress.response import Response
    from async_nodes.nodes.context import NodeContext

TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500
EXCERPT = 200

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@node("http.request", redact=("headers",))
def http_request(
    ctx: NodeContext,
    url: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    json: Any = None,
    body: str | None = None,
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] = 30_000,
) -> dict[str, Any]:
    """Send an HTTP request and return its status, headers and body.

    Args:
        ctx: the attempt's context.
        url: an absolute http or https URL of a public address.
        method: the HTTP method.
        headers: sent as they are, never shown in the record.
        json: a value to send as JSON; not together with `body`; null sends nothing.
        body: text to send.
        timeout_ms: bounds the whole request.

    Returns:
        ``{status, headers, json}`` for a JSON answer, ``{status, headers, body}`` for text,
        ``{status, headers, body_base64}`` for everything else. Header names are lower-case.

    """
    if json is not None and body is not None:
        raise TerminalError("give either json or body, not both", code="invalid_inputs")
    sent = dict(headers or {})
    if method.upper() in _WRITES and not any(name.lower() == "idempotency-key" for name in sent):
        sent["Idempotency-Key"] = ctx.idempotency_key
    payload = {} if json is None else {"json": json}
    with ctx.http.request(
        method, url, headers=sent, body=body, timeout=timeout_ms / 1000, **payload
    ) as response:
        _raise_for_retry(response)
        return {
            "status": response.status,
            "headers": {name.lower(): value for name, value in response.headers.items()},
            **_body(response),
        }


def _raise_for_retry(response: Response) -> None:
    if response.status != TOO_MANY_REQUESTS and response.status < SERVER_ERROR:
        return
    from async_nodes.egress.retry_after import retry_after

    text = response.read()[:EXCERPT].decode("utf-8", "replace").strip()
    raise RetryableError(
        f"the server answered {response.status}: {text}".rstrip(": "),
        code="egress_failed",
        retry_after=retry_after(response.headers),
    )


def _body(response: Response) -> dict[str, Any]:
    content_type = Message()
    content_type["content-type"] = response.headers.get("Content-Type", "")
    kind, raw = content_type.get_content_type(), response.read()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            return {"json": response.json()}
        except (ValueError, RecursionError):
            pass  # a mislabelled body is still worth having as text
    try:
        charset = content_type.get_content_charset("utf-8")
        return {"body": raw.decode(charset)}
    except (UnicodeDecodeError, LookupError):
        return {"body_base64": base64.b64encode(raw).decode("ascii")}
