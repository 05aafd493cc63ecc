"""Built-in node ``template.render``: a Jinja2 template over JSON values, in a sandbox.

The template may come from anybody: it reaches nothing but its values, and everything it does is
bounded (see `template_sandbox`). It computes, hence the CPU pool: what no bound catches, an
endless recursion for example, is ended by the attempt's time-out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from async_nodes.core.errors import AsyncNodesError, TerminalError
from async_nodes.nodes.spec import node

MAX_TEMPLATE = 100_000


@node("template.render", kind="cpu", timeout=10.0)
def template_render(
    template: Annotated[str, msgspec.Meta(max_length=MAX_TEMPLATE)],
    values: dict[str, Any] | None = None,
    format: Literal["text", "json"] = "text",  # noqa: A002 - the input's name
    autoescape: bool = False,  # noqa: FBT001, FBT002 - an input, given by name
) -> Any:
    """Render a Jinja2 template and return the text, or the JSON value that the text is.

    Args:
        template: Jinja2's language, without anything that reads another template.
        values: the template's variables by name.
        format: ``json`` reads the rendered text as strict JSON.
        autoescape: escape values for HTML.

    Returns:
        The text; with ``format="json"`` the value.

    """
    from async_nodes.core.strict_json import loads
    from async_nodes.nodes.template_sandbox import render

    text = render(template, values or {}, autoescape=autoescape)
    if format == "text":
        return text
    try:
        return loads(text.encode("utf-8", "surrogatepass"))
    except AsyncNodesError as error:
        place = f" at {error.pointer}" if error.pointer else ""
        message = f"the rendered text is not JSON{place}: {error.detail}"
        raise TerminalError(message, code="template_failed") from error
