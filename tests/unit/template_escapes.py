"""Ways out of a template sandbox that have been published, as a whole kind; run as a program.

Each root a template can name, each chain to Python's insides, each way to write the access. The
program renders all of them under an audit hook and prints, as JSON, the templates that gave more
than an error and everything that Python was asked to do meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any

from async_nodes.core.errors import AsyncNodesError
from async_nodes.nodes.template_sandbox import render

VALUES: dict[str, Any] = {"text": "a", "number": 1, "items": [1], "user": {"name": "ann"}}

ROOTS = (
    "''", "[]", "{}", "()", "1", "1.5", "true", "none", "text", "items", "user", "user.items",
    "range", "range(3)", "dict", "namespace", "namespace()", "self", "loop", "macro", "caller",
    "cycler", "joiner", "lipsum", "config", "request", "url_for", "get_flashed_messages", "g",
    "''.format", "''.join", "(1 for x in [1])", "x", "__builtins__", "__import__",
)  # fmt: skip

CHAINS = (
    ("__class__", "__mro__"),
    ("__class__", "__base__", "__subclasses__"),
    ("__class__", "__bases__"),
    ("__init__", "__globals__"),
    ("__init__", "__func__", "__globals__"),
    ("__call__", "__globals__"),
    ("__globals__", "os"),
    ("__dict__",),
    ("__self__",),
    ("__doc__",),
    ("__module__",),
    ("__reduce_ex__",),
    ("mro",),
    ("func_globals",),
    ("gi_frame", "f_globals"),
    ("gi_code",),
    ("_TemplateReference__context", "environment"),
    ("_Context__self",),
    ("environment",),
    ("encode",),
)

ACCESSES = (
    "{{ (ROOT).CHAIN }}",
    "{{ (ROOT)ITEMS }}",
    "{{ (ROOT)ESCAPED }}",
    "{{ (ROOT)FILTERS }}",
    "{{ [ROOT]|map(attribute='CHAIN')|list }}",
    "{{ '{0.CHAIN}'.format(ROOT) }}",
    "{{ '{a.CHAIN}'.format_map({'a': ROOT}) }}",
    "{{ ('{0.CHAIN}'|string).format(ROOT) }}",
    "{{ [ROOT, ROOT]|sort(attribute='CHAIN') }}",
)

WHOLE = (
    "{% include '/etc/hostname' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% from 'os' import system %}",
    "{% extends '/etc/hostname' %}",
    "{% include text ignore missing %}",
    "{{ items.append(1) }}",
    "{{ items.__setitem__(0, 2) }}",
    "{{ user.update(a=1) }}",
    "{{ user.pop('name') }}",
    "{{ ''|attr('__class__') }}",
    "{{ dict.fromkeys.__self__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
    "{{ ['{0.__class__}']|map('format', 1)|list|first|attr('x') }}",
    "{{ '%c%c'|format(95, 95)|attr('x') }}",
    "{{ ([text]|map('string')|first).__class__ }}",
    "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}x{% endcall %}",
    "{% macro m() %}{{ varargs.__class__ }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m._environment }}",
    "{% for a in items %}{{ loop._iterator.__class__ }}{% endfor %}",
    "{% for a in items %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "{% block b %}{{ super.__init__.__globals__ }}{% endblock %}",
    "{% block b %}{{ self.b.__func__ }}{% endblock %}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}{{ ns.__class__ }}",
    "{% filter attr('__class__') %}a{% endfilter %}",
    "{{ _counted }}{{ _joined }}",
    "{{ (items|_counted)._values.__class__ }}",
    "{{ (items|_counted)._spend.__self__ }}",
)


def templates() -> Iterator[str]:
    """Yield the attacks."""
    yield from WHOLE
    for root, chain, access in itertools.product(ROOTS, CHAINS, ACCESSES):
        yield written(root, chain, access)


def written(root: str, chain: tuple[str, ...], access: str) -> str:
    """Return one attack in one way of writing it."""
    items = "".join(f"['{step}']" for step in chain)
    filters = "".join(f"|attr('{step}')" for step in chain)
    for mark, text in (
        ("CHAIN", ".".join(chain)),
        ("ITEMS", items),
        ("ESCAPED", items.replace("_", "\\x5f")),
        ("FILTERS", filters),
        ("ROOT", root),
    ):
        access = access.replace(mark, text)
    return access


ALLOWED = frozenset(
    {"compile", "exec", "object.__getattr__", "code.__new__", "sys._getframe", "resource.setrlimit"}
)
OWN_FILE = "/proc/self/statm"  # the size of the process, for its bound on memory


def main() -> None:
    """Render every attack; print what came of it."""
    with contextlib.suppress(AsyncNodesError):
        render("{{ 'warm' ~ [1]|tojson }}{{ ''.__class__ }}", {})  # what is imported at first use
    seen: list[str] = []
    watching = [True]

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching[0] and event not in ALLOWED:
            if event == "open" and str(arguments[0]) == OWN_FILE:
                return
            seen.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(watch)
    answered: dict[str, str] = {}
    count = 0
    for template in templates():
        count += 1
        try:
            answered[template] = render(template, VALUES)
        except AsyncNodesError as error:
            if error.code != "template_failed":
                answered[template] = repr(error)
    watching[0] = False
    json.dump({"count": count, "answered": answered, "asked": sorted(set(seen))}, sys.stdout)


if __name__ == "__main__":
    main()
