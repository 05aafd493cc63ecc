"""Node ``template.render``: what templates give, and all that they are not given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError, TerminalError
from async_nodes.nodes.registry import registry
from async_nodes.nodes.template_sandbox import MAX_TEXT, render
from async_nodes.testing import run_node

ROOT = Path(__file__).parents[2]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def rendered(template: str, /, **values: Any) -> Any:
    """Return what the node gives."""
    return run_node("template.render", {"template": template, "values": values}).output


def refused(template: str, /, **values: Any) -> str:
    """Return why the node fails."""
    with pytest.raises(TerminalError) as caught:
        rendered(template, **values)
    assert caught.value.code == "template_failed"
    return caught.value.detail


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Dear {{ name }},\n", "Dear ann,\n"),
        ("{% for x in xs %}{{ loop.index }}/{{ loop.length }}{{ x }} {% endfor %}", "1/2a 2/2b "),
        ("{% for x in [] %}{% else %}none{% endfor %}", "none"),
        ("{% for x in [1, [2]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "12"),
        ("{% for k, v in user.items() %}{{ k ~ '=' ~ v }}{% endfor %}", "age=3"),
        ("{% macro row(x) %}<{{ x }}>{% endmacro %}{{ row(1) ~ row(2) }}", "<1><2>"),
        ("{% set n = namespace(x=0) %}{% if 1 %}{% set n.x = 1 %}{% endif %}{{ n.x }}", "1"),
        ("{{ '%05.2f|%-4s|%d%%'|format(3.14159, 'a', 7) }}", "03.14|a   |7%"),
        ("{{ '{:>4}{x!r}'.format(1, x='a') }}", "   1'a'"),
        ("{{ 'in 2026 %s'|format('ok') }}", "in 2026 ok"),
        ("{{ [3, 1, 2]|sort|join(', ') }} {{ 'a-b'|replace('-', '+') }}", "1, 2, 3 a+b"),
        ("{{ [1, 2, 3]|batch(2, 0)|list }}{{ 'a\nb'|indent(2) }}", "[[1, 2], [3, 0]]a\n  b"),
        ("{{ nothing|default('d') }}{{ nothing is defined }}", "dFalse"),
        ("{{ 2 ** 10 }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ 7 % 4 }}", "1024 ababab [1, 2] 3"),
        ("{{ 'a'.center(5, '*') }}{{ ', '.join(xs) }}{{ 'x'.replace('x', 'yz') }}", "**a**a, byz"),
        ("{{ 'naïve 你好'|b64encode|b64decode }}", "naïve 你好"),
        ("{{ ('{\"a\": [1]}'|fromjson).a[0] }}", "1"),
        ("{{ dict(a=1)|tojson }}{{ {'b': '<é>'}|tojson }}", '{"a":1}{"b":"<é>"}'),
    ],
)  # fmt: skip
def test_templates_are_jinjas(template: str, text: str) -> None:
    """Loops, macros, namespaces, formats and filters give what Jinja2 gives."""
    assert rendered(template, name="ann", xs=["a", "b"], user={"age": 3}) == text


@given(JSON)
def test_a_value_survives_as_json(value: Any) -> None:
    """What ``tojson`` writes is read back the same, indented or not."""
    for template in ("{{ value|tojson }}", "{{ value|tojson(2) }}"):
        inputs = {"template": template, "values": {"value": value}, "format": "json"}
        assert run_node("template.render", inputs).output == value


@given(st.text(max_size=200).filter(lambda text: "{" not in text))
def test_plain_text_stays_as_it_is(text: str) -> None:
    """What is no markup is not changed; line ends become line feeds, as everywhere in Jinja2."""
    assert render(text, {}) == text.replace("\r\n", "\n").replace("\r", "\n")


def test_markup_is_escaped_on_request() -> None:
    """With autoescape values are, the template's own text is not."""
    inputs = {"template": "<b>{{ x ~ '&' }}</b>", "values": {"x": "<i>"}, "autoescape": True}
    assert run_node("template.render", inputs).output == "<b>&lt;i&gt;&amp;</b>"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("a\nb {{ nmae }}", "line 2: 'nmae' is undefined; did you mean 'name'?"),
        ("{% if nothing %}{% endif %}", "line 1: 'nothing' is undefined"),
        ("\n\n{{ user.agee }}", "line 3: 'dict object' has no attribute 'agee'; did you mean"),
        ("{{ user.a.b }}", "line 1: 'dict object' has no attribute 'a'"),
        ("{{ [nothing] }}", "line 1: 'nothing' is undefined"),
        ("{{ 'a' ~ nothing }}", "line 1: 'nothing' is undefined"),
        ("{{ nothing|tojson }}", "line 1: 'nothing' is undefined"),
        ("\n{% for x in %}{% endfor %}", "line 2: Expected an expression"),
        ("{{ name", "line 1: unexpected end of template"),
        ("{{ name|nope }}", "line 1: No filter named 'nope'"),
        ("\n{{ 1 / 0 }}", "line 2: ZeroDivisionError: division by zero"),
        ("{{ 'a' + 1 }}", "line 1: TypeError: can only concatenate str"),
        ("{{ '{'|fromjson }}", "line 1: a key in double quotes is missing"),
        ("{{ (1e308 * 10)|tojson }}", "inf is not a JSON number"),
        ("{% include 'x' %}", "line 1: there are no other templates to read"),
        ("\n{% extends 'x' %}", "line 2: there are no other templates to read"),
    ],
)  # fmt: skip
def test_a_failure_names_the_line(template: str, why: str) -> None:
    """Whoever wrote the template is told where, and what they may have meant."""
    assert why in refused(template, name="ann", user={"age": 3})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1,", "a value is missing"),
        ('{"a": NaN}', "at /a: NaN is not a JSON number"),
        ("", "a value is missing"),
        ('{"a": 1, "a": 2}', "is there twice"),
    ],
)
def test_json_is_strict(text: str, why: str) -> None:
    """A rendered text that is no strict JSON fails with the place."""
    inputs = {"template": "{{ text }}", "values": {"text": text}, "format": "json"}
    with pytest.raises(TerminalError, match="the rendered text is not JSON") as caught:
        run_node("template.render", inputs)
    assert why in caught.value.detail


def repeat(start: str, step: str) -> str:
    """Return a template that does one thing 99 times over, and prints the result."""
    loop = "{% for i in range(99) %}{% set n.x = STEP %}{% endfor %}{{ n.x }}"
    return "{% set n = namespace(x=START) %}".replace("START", start) + loop.replace("STEP", step)


GROWING = (
    "{{ 'a' * 10**9 }}",
    "{{ 10**9 * 'a' }}",
    "{{ [0] * 10**9 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 2 ** 100000 }}",
    repeat("9", "n.x * n.x"),
    repeat("'a'", "n.x ~ n.x"),
    repeat("'a'", "n.x + n.x"),
    repeat("[1]", "n.x + n.x"),
    repeat("[1]", "[n.x, n.x]"),
    "{{ range(10**9) }}",
    "{{ range(0, -1 * 10**12, -1)|list }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%.999999999f'|format(1) }}",
    "{{ '%*d'|format(999999999, 1) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 999999999) }}",
    "{{ '{a:999999999}'.format_map({'a': 1}) }}",
    "{{ ['{:999999999}']|map('format', 1)|list }}",
    "{{ 'a'.center(10**9) }}{{ 'a'.ljust(10**9) }}",
    "{{ 'a'.zfill(10**9) }}",
    "{{ '\t'.expandtabs(10**9) }}",
    "{{ 'a'|center(10**9) }}",
    "{{ 'a\nb'|indent(10**9) }}",
    "{{ 'a\nb'|indent('x' * 10**5) }}",
    "{{ [1]|batch(10**9, 0)|list }}",
    "{{ [1]|slice(10**9)|list }}",
    "{{ ('a' * 10**5)|replace('a', 'b' * 10**5) }}",
    "{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}",
    "{{ ('b' * 10**5).join('a' * 10**5) }}",
    "{{ range(10**5)|join('b' * 10**5) }}",
    "{{ [1]|tojson(10**9) }}",
    "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
    "{% set x %}{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}{% endset %}",
    "{% macro m() %}{% for i in range(99) %}{{ 'a' * 99999 }}{% endfor %}{% endmacro %}{{ m() }}",
    "{% filter upper %}{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}{% endfilter %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}",
    "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n }}{% endmacro %}{{ m(60) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
    "{{ " + "1" * 5_000 + " }}",
    "{{ 1" + "+1" * 20_000 + " }}",
    "{% if 1 %}" * 4_000 + "{% endif %}" * 4_000,
)  # fmt: skip


@pytest.mark.parametrize("template", GROWING, ids=range(len(GROWING)))
def test_nothing_large_comes_of_something_small(template: str) -> None:
    """Every way to ask for much is refused before there is much: memory stays flat."""
    before = peak()
    refused(template)
    assert peak() - before < 256 << 10, "KiB"


def peak() -> int:
    """Return the most memory that this process has had, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    return 0


def test_the_text_is_bounded_while_it_grows() -> None:
    """As much as allowed is rendered, one character more is not."""
    assert len(rendered("{{ x }}", x="é" * MAX_TEXT)) == MAX_TEXT
    assert "longer than 1,000,000 characters" in refused("{{ x }}!", x="é" * MAX_TEXT)


def test_a_template_is_bounded() -> None:
    """One that is too long is refused where it is submitted."""
    with pytest.raises(AsyncNodesError) as caught:
        registry()["template.render"].validate({"template": "a" * 100_001})
    assert (caught.value.code, caught.value.pointer) == ("invalid_inputs", "/inputs/template")


def test_no_published_way_leads_out() -> None:
    """Thousands of templates that reach for Python's insides get an error each and do nothing."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = [sys.executable, str(Path(__file__).with_name("template_escapes.py"))]
    done = subprocess.run(program, env=environ, capture_output=True, check=True, timeout=60)
    told = json.loads(done.stdout)

    assert told["count"] > 5_000
    assert told["answered"] == {}
    assert told["asked"] == []
