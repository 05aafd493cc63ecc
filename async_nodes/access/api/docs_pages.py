"""Step 5, expose: the pages for people. The index, and the documentation of every operation.

Rendered on the server from the OpenAPI document, in English and Chinese, without any script.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from flask import Blueprint, Response, g, request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from async_nodes.access import negotiate, problems
from async_nodes.access.api.docs_view import Area, Operation, areas
from async_nodes.access.openapi.chinese import TEXTS
from async_nodes.access.openapi.shapes import Schema
from async_nodes.core import strict_json
from async_nodes.core.errors import CATALOGUE, AsyncNodesError

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
TONGUES: Final = ("en", "zh")
_FOLDER: Final = Path(__file__).parent / "pages"
_JSON_TOKEN: Final = re.compile(
    r'(?P<k>"(?:[^"\\]|\\.)*")(?=\s*:)|(?P<s>"(?:[^"\\]|\\.)*")'
    r"|(?P<n>-?\b\d[\d.eE+-]*)|(?P<w>\b(?:true|false|null)\b)"
)
CARDS: Final = (
    ("Documentation", "/docs", "Every operation with its fields, examples and errors"),
    ("OpenAPI", "/openapi.json", "The same for programs, OpenAPI 3.1"),
    ("Nodes", "/v1/nodes", "What can be run, with the schema of its inputs"),
    ("Problems", "/problems", "Every error code, and what to do about it"),
    ("Health", "/readyz", "Whether tasks would be accepted and run"),
    ("Metrics", "/metrics", "For Prometheus"),
)


def blueprint(document: Schema) -> Blueprint:
    """Return the index and the pages of the documentation.

    Args:
        document: the OpenAPI document.

    """
    made = Blueprint("pages", __name__)
    pages = Pages(document)

    @made.get("/")
    def show_index() -> Response:
        if negotiate.wants_page(request.headers.get("Accept")):
            return _page(pages.index)
        _asked_language()
        index = strict_json.dumps(_index(document, g.base))
        response = Response(index, content_type="application/json")
        response.headers["Vary"] = "Accept, Accept-Language"
        return response

    @made.get("/docs")
    def list_operations() -> Response:
        return _page(pages.overview)

    @made.get("/docs/<name>")
    def show_operation(name: str) -> Response:
        if name not in pages.names:
            raise AsyncNodesError("not_found", "there is no operation of this name")
        return _page(partial(pages.operation, name))

    return made


def _index(document: Schema, base: str) -> dict[str, Any]:
    links = {title.lower(): address for title, address, _ in CARDS}
    links |= {"documentation": "/docs", "tasks": "/v1/tasks", "live": "/healthz"}
    return {
        "name": document["info"]["title"],
        "version": document["info"]["version"],
        "links": {title: base + address for title, address in links.items()},
    }


def _asked_language() -> str | None:
    """Return the language that the address names; raises ``bad_request`` for one that is none."""
    wanted = request.args.get("lang")
    if wanted is not None and wanted not in TONGUES:
        raise AsyncNodesError("bad_request", "lang must be en or zh", pointer="/query/lang")
    return wanted


def _page(render: Callable[..., str]) -> Response:
    """Return a page in the language of the address, or else of the browser."""
    wanted = _asked_language()
    tongue = wanted or negotiate.language(request.headers.get("Accept-Language"))
    response = Response(
        render(tongue, chosen=wanted is not None, path=request.path, base=g.base),
        content_type="text/html; charset=utf-8",
    )
    response.headers["Content-Language"] = tongue
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "private, no-cache"
    response.headers["Vary"] = "Accept, Accept-Language"
    return response


class Pages:
    """Render the pages of one document.

    Args:
        document: the OpenAPI document.

    Attributes:
        names: the operations that have a page.

    """

    def __init__(self, document: Schema) -> None:
        self._info: Mapping[str, Any] = document["info"]
        self._areas: list[Area] = areas(document)
        shown = [operation for area in self._areas for operation in area.operations]
        self.names: dict[str, Operation] = {operation.name: operation for operation in shown}
        self._before = {after.name: before for before, after in pairwise(shown)}
        self._after = {before.name: after for before, after in pairwise(shown)}
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
        )
        # Ours, not a client's: the one thing besides `coloured` that is not escaped.
        self._style = Markup((_FOLDER / "style.css").read_text("utf-8"))  # noqa: S704

    def index(self, tongue: str, *, chosen: bool, path: str, base: str) -> str:
        """Return the index.

        Args:
            tongue: ``en`` or ``zh``.
            chosen: whether the address names the language, which links then pass on.
            path: of the page.
            base: what all addresses begin with.

        """
        here = _here(tongue, base, chosen=chosen)
        cards = [
            (title, here(address) if address == "/docs" else base + address, text)
            for title, address, text in CARDS
        ]
        first = next(iter(self.names.values()))
        sample = first.samples[0]["source"]
        return self._render("index.html", tongue, chosen, path, base, cards=cards, sample=sample)

    def overview(self, tongue: str, *, chosen: bool, path: str, base: str) -> str:
        """Return the list of all operations; the arguments are those of `index`."""
        return self._render("docs.html", tongue, chosen, path, base)

    def operation(self, name: str, tongue: str, *, chosen: bool, path: str, base: str) -> str:
        """Return the page of an operation; the other arguments are those of `index`."""
        shown = self.names[name]
        errors = [
            {"status": status, "code": code, "retryable": CATALOGUE[code].retryable}
            | dict(
                zip(("title", "hint"), problems.in_language(CATALOGUE[code], tongue), strict=True)
            )
            for status, code in shown.errors
        ]
        return self._render(
            "operation.html",
            tongue,
            chosen,
            path,
            base,
            shown=shown,
            errors=errors,
            before=self._before.get(name),
            after=self._after.get(name),
        )

    def _render(
        self,
        template: str,
        tongue: str,
        chosen: bool,  # noqa: FBT001 - one caller's own
        path: str,
        base: str,
        **more: Any,
    ) -> str:
        return self._environment.get_template(template).render(
            tongue=tongue,
            path=path,
            say=partial(said, tongue=tongue),
            here=_here(tongue, base, chosen=chosen),
            base=base,
            coloured=coloured,
            style=self._style,
            name=self._info["title"],
            version=self._info["version"],
            summary=self._info["summary"],
            description=self._info["description"],
            areas=self._areas,
            **more,
        )


def said(text: str, *, tongue: str) -> str:
    """Return a text of the document in a language; in English where nobody has translated it."""
    return TEXTS.get(text, text) if tongue == "zh" else text


def _here(tongue: str, base: str, *, chosen: bool) -> Callable[[str], str]:
    """Return a function that gives a page's whole address, with a chosen language in it."""
    return lambda address: f"{base}{address}?lang={tongue}" if chosen else base + address


def coloured(text: str) -> Markup:
    """Return an example with its JSON tokens marked for colours; everything is escaped."""
    if not text.lstrip().startswith(("{", "[")):
        return escape(text)
    parts: list[str] = []
    at = 0
    for token in _JSON_TOKEN.finditer(text):
        parts.append(escape(text[at : token.start()]))
        parts.append(Markup('<span class="{}">{}</span>').format(token.lastgroup, token[0]))
        at = token.end()
    parts.append(escape(text[at:]))
    return Markup("").join(parts)
