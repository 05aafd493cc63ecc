"""The layout of a record: both languages read the same columns, nothing overflows."""

from __future__ import annotations

import struct

import pytest

from async_nodes.core.machine import TABLE
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType, NodeState, Reason
from async_nodes.storage import layout
from async_nodes.storage.keys import Keys
from async_nodes.storage.script_library import ALLOW_OOM, NAMES, render

SIZES = {"B": 1, "H": 2, "I4": 4, "d": 8}
MESSAGES = dict.fromkeys(LISTS, '{"id":"%ID%","d":%DISPATCH%,"at":%AT%,"t":%HARD%,"x":"a\\nb\\"c"}')


def stored(**columns: object) -> bytes:
    """Return a record with the given columns and a small document."""
    values = []
    for field in layout.FIELDS:
        blank: object = b" " * int(field.lua[1:]) if field.lua[0] == "c" else 0
        values.append(columns.get(field.name, blank))
    private, document = b"private", b'{"a":1}'
    index = [field.name for field in layout.FIELDS].index("json_at")
    values[index] = layout.CONTROL_SIZE + len(private)
    return layout._STRUCTS[layout.SCHEMA].pack(*values) + private + document


@pytest.mark.parametrize("field", layout.FIELDS, ids=lambda field: field.name)
def test_both_languages_give_a_column_the_same_width(field: layout.Field) -> None:
    """Lua's format and Python's describe the same bytes."""
    width = SIZES.get(field.lua) or int(field.lua.removeprefix("c"))

    assert struct.calcsize("<" + field.python) == width


def test_columns_have_names_of_their_own() -> None:
    """No name twice, none that a Document has already."""
    names = [field.name for field in layout.FIELDS]

    assert len(set(names)) == len(names)
    assert not set(names) & {"raw", "json", "why", "etag", "private", "columns"}


def test_a_document_is_its_columns_and_its_json() -> None:
    """Columns are read by name, the rest is sliced."""
    raw = stored(
        schema=layout.SCHEMA,
        state=layout.STATES.index(NodeState.RUNNING),
        reason=layout.REASONS.index(Reason.CANCELLING),
        version=7,
        created_at=1_796_074_669_727.0,
        tenant=b"default".ljust(32),
    )
    document = layout.parse(raw)

    assert (document.state, document.why) == (NodeState.RUNNING, Reason.CANCELLING)
    assert (document.version, document.etag, document.created_at) == (7, '"7"', 1_796_074_669_727)
    assert (document.tenant, document.private, document.json) == (
        "default",
        b"private",
        b'{"a":1}',
    )
    with pytest.raises(AttributeError):
        _ = document.no_such_column


@pytest.mark.parametrize("schema", [layout.SCHEMA + 1, layout.SCHEMA - 2, 255])
def test_other_schemas_are_not_read(schema: int) -> None:
    """A process reads its own schema and the one before."""
    if schema < 0:
        schema = 254
    with pytest.raises(ValueError, match="cannot be read"):
        layout.parse(bytes([schema]) + stored()[1:])


def test_codes_fit_their_columns() -> None:
    """States, reasons and lists are one byte each."""
    assert max(len(layout.STATES), len(layout.REASONS), len(LISTS)) < 256


# -- the scripts -----------------------------------------------------------------------------------


def test_the_scripts_guards_are_the_table() -> None:
    """NEXT[state][event] names every row of the table and no other."""
    text = render(Keys(), MESSAGES)["finish"].text
    line = next(line for line in text.splitlines() if line.startswith("local NEXT"))

    for code, state in enumerate(layout.STATES):
        row = line.split(f"[{code}]={{")[1].split("}")[0]
        found = dict(pair.split("=") for pair in row.split(", ") if pair)
        expected = {
            event.name: str(layout.STATES.index(TABLE[state, event].target))
            for event in EventType
            if (state, event) in TABLE
        }
        assert found == expected


def test_every_script_is_rendered_and_named_by_its_digest() -> None:
    """The same settings give the same scripts; other ones give others."""
    scripts = render(Keys(), MESSAGES)

    assert set(scripts) == set(NAMES)
    assert {len(script.sha) for script in scripts.values()} == {40}
    assert scripts == render(Keys(), MESSAGES)
    assert scripts["submit"].sha != render(Keys(), MESSAGES, gate_limit=5)["submit"].sha
    assert scripts["submit"].sha != render(Keys("b"), MESSAGES)["submit"].sha
    assert "--@constants@" not in scripts["submit"].text


def test_the_flag_is_used_where_it_may_be() -> None:
    """Scripts that free more than they take run without memory, if the server knows the flag."""
    flagged = {
        name
        for name, script in render(Keys(), MESSAGES, allow_oom=True).items()
        if script.text.startswith("#!lua flags=allow-oom\n")
    }

    assert flagged == ALLOW_OOM
    assert not {"submit", "apply"} & ALLOW_OOM
    assert not any(script.text.startswith("#!") for script in render(Keys(), MESSAGES).values())


def test_a_message_template_survives_quotes_and_newlines() -> None:
    """Whatever JSON is in a template reaches Lua as a string of the same characters."""
    text = render(Keys(), MESSAGES)["submit"].text

    assert r"a\nb\\\"c" in text.replace(r"\\n", r"\n")
    assert all(slot not in text for slot in ("%ID%", "%DISPATCH%", "%AT%", "%HARD%"))
