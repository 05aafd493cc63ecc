"""Built-in node ``http.request``: one HTTP call to a public address.

What is an error: a failing connection, 429 and every 5xx are tried again (not before the server's
Retry-After); any other answer, 404 included, is a result for the workflow to judge. An attempt
that writes carries the same Idempotency-Key as the one before it.
"""

from __future__ import annotations

import base64
from email.message import Message
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import msgspec

from async_nodes.core.errors import RetryableError, TerminalError
from async_nodes.core.files import DEFAULT_NAME, base_name, media_type_of
from async_nodes.nodes.files import File
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from async_nodes.egress.response import Response
    from async_nodes.nodes.context import NodeContext

TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500
EXCERPT = 200

_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@node("http.request", redact=("headers",))
def http_request(  # noqa: PLR0913, PLR0917 - inputs come by name
    ctx: NodeContext,
    url: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    json: Any = None,
    body: str | None = None,
    body_file: File | None = None,
    save: bool = False,  # noqa: FBT001, FBT002
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] = 30_000,
) -> dict[str, Any]:
    """Send an HTTP request and return its status, headers and body.

    Args:
        ctx: the attempt's context.
        url: an absolute http or https URL of a public address.
        method: the HTTP method.
        headers: sent as they are, never shown in the record.
        json: a value to send as JSON; null sends nothing. Of `json`, `body` and `body_file` one
            may be given.
        body: text to send.
        body_file: a file to send, in pieces as it is read.
        save: keep the answer's body as a file, however large (at most 32 MiB).
        timeout_ms: bounds the whole request.

    Returns:
        ``{status, headers, json}`` for a JSON answer, ``{status, headers, body}`` for text,
        ``{status, headers, body_base64}`` for everything else; ``{status, headers, file}`` with
        `save`. Header names are lower-case.

    """
    if sum(given is not None for given in (json, body, body_file)) > 1:
        raise TerminalError("give one of json, body and body_file", code="invalid_inputs")
    sent = dict(headers or {})
    if method.upper() in _WRITES and not any(name.lower() == "idempotency-key" for name in sent):
        sent["Idempotency-Key"] = ctx.idempotency_key
    if body_file is not None and not any(name.lower() == "content-type" for name in sent):
        sent["Content-Type"] = body_file.media_type
    payload = {} if json is None else {"json": json}
    with (
        ctx.call_to(url),
        ctx.http.request(
            method,
            url,
            headers=sent,
            body=body if body_file is None else body_file,
            timeout=timeout_ms / 1000,
            stream=save,
            **payload,
        ) as response,
    ):
        _raise_for_retry(response)
        return {
            "status": response.status,
            "headers": {name.lower(): value for name, value in response.headers.items()},
            **({"file": _saved(ctx, response)} if save else _body(response)),
        }


def _saved(ctx: NodeContext, response: Response) -> File:
    """Keep an answer's body as a file, in pieces as it arrives, under its own or its URL's name."""
    told = Message()
    told["content-disposition"] = response.headers.get("Content-Disposition", "attachment")
    name = told.get_filename() or unquote(urlsplit(response.url).path).rpartition("/")[2]
    try:
        name = base_name(name)
    except ValueError:
        name = DEFAULT_NAME
    try:
        media_type = media_type_of(response.headers.get("Content-Type", ""))
    except ValueError:
        media_type = ""  # guessed from the name
    return ctx.files.write(name, response.iter_bytes(), media_type=media_type)


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
