"""Step 5, expose: how each operation is called, for `curl` and for Python's standard library.

Made of what the document says: the path with its parameters' examples, the first example of the
body. An operation may say more in ``x-sample`` (query, headers, body), which is not shown.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pprint import pformat
from typing import Any, Final

from async_nodes.access.openapi.pieces import JSON, STREAM
from async_nodes.access.openapi.shapes import Schema

SERVER: Final = "http://127.0.0.1:8000"
_WIDTH: Final = 88

Resolve = Callable[[Schema], Schema]


@dataclass(frozen=True, slots=True)
class Call:
    """Describe one request.

    Attributes:
        method: in capitals.
        url: with its query.
        headers: by name.
        body: a JSON value or, where the headers declare another type, a text; None for none.
        kind: media type of the answer, empty for one without a body.

    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: Any
    kind: str


def samples(path: str, method: str, item: Schema, resolve: Resolve) -> list[Schema]:
    """Return an operation's samples.

    Args:
        path: with its parameters in braces.
        method: in small letters.
        item: what stands at the path.
        resolve: returns what a reference refers to.

    """
    call = _call(path, method, item, resolve)
    return [
        {"lang": "Shell", "label": "curl", "source": curl(call)},
        {"lang": "Python", "label": "Python", "source": python(call)},
    ]


def _call(path: str, method: str, item: Schema, resolve: Resolve) -> Call:
    operation = item[method]
    told = operation.get("x-sample", {})
    parameters = [*item.get("parameters", ()), *operation.get("parameters", ())]
    for given in map(resolve, parameters):
        if given["in"] == "path":
            path = path.replace(f"{{{given['name']}}}", str(given.get("example", given["name"])))
    query = f"?{told['query']}" if "query" in told else ""
    headers = dict(told.get("headers", {}))
    body = None
    if "requestBody" in operation:
        media_type, content = next(iter(operation["requestBody"]["content"].items()))
        body = told.get("body", example_of(content, resolve))
        if body is not None:
            headers = {"Content-Type": media_type, **headers}
    return Call(
        method=method.upper(),
        url=f"{SERVER}{path}{query}",
        headers=headers,
        body=body,
        kind=_answered(operation, resolve),
    )


def example_of(content: Schema, resolve: Resolve) -> Any:
    """Return the first example of a media type or else of its schema, None where there is none."""
    if "example" in content:
        return content["example"]
    for example in content.get("examples", {}).values():
        return resolve(example)["value"]
    schema = resolve(content.get("schema", {}))
    for choice in (schema, *map(resolve, schema.get("oneOf", ()))):
        if choice.get("examples"):
            return choice["examples"][0]
    return None


def _answered(operation: Schema, resolve: Resolve) -> str:
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            return next(iter(resolve(response).get("content", {})), "")
    return ""


def curl(call: Call) -> str:
    """Return a call as a command for a shell."""
    streams = "N" if call.kind == STREAM else ""
    plain = call.method == ("GET" if call.body is None else "POST")
    method = {"HEAD": " -I"}.get(call.method, "" if plain else f" -X {call.method}")
    parts = [f"curl -sS{streams}{method} {shlex.quote(call.url)}"]
    parts += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in call.headers.items()]
    if call.body is not None:
        parts.append(f"-d {shlex.quote(_text(call))}")
    return " \\\n  ".join(parts)


def python(call: Call) -> str:
    """Return a call as a program of Python's standard library alone."""
    imports, arguments = _arguments(call)
    reads = {
        "": "print(answer.status)",
        STREAM: 'for line in answer:\n        print(line.decode(), end="")',
        JSON: "print(json.load(answer))",
    }.get(call.kind, "print(answer.read().decode())")
    if "json." in reads:
        imports.add("import json")
    if arguments == [f'"{call.url}"']:
        opened = f'"{call.url}"'
        setting = ""
    else:
        opened = "request"
        lines = "".join(f"    {argument},\n" for argument in arguments)
        setting = f"request = urllib.request.Request(\n{lines})\n"
    return (
        "\n".join([*sorted(imports), "import urllib.request"])
        + f"\n\n{setting}with urllib.request.urlopen({opened}) as answer:\n    {reads}\n"
    )


def _arguments(call: Call) -> tuple[set[str], list[str]]:
    """Return what to import and the arguments of the request."""
    imports: set[str] = set()
    arguments = [f'"{call.url}"']
    if call.body is not None and call.headers.get("Content-Type") == JSON:
        imports.add("import json")
        value = pformat(call.body, width=_WIDTH, sort_dicts=False).replace("\n", "\n" + " " * 20)
        arguments.append(f"data=json.dumps({value}).encode()")
    elif call.body is not None:
        arguments.append(f"data={call.body!r}.encode()")
    if call.headers:
        arguments.append(f"headers={dict(call.headers)!r}")
    if call.method != ("GET" if call.body is None else "POST"):
        arguments.append(f'method="{call.method}"')
    return imports, arguments


def _text(call: Call) -> str:
    """Return the body as it is sent."""
    if call.headers.get("Content-Type") == JSON:
        return json.dumps(call.body, ensure_ascii=False)
    return str(call.body)
