"""Hold the functions of the hot path to their budgets of processor instructions.

``async-nodes bench instructions`` counts, ``--write`` makes what it counted the new budgets.
"""

from __future__ import annotations

import os

import pytest

from benchmarks import instructions
from benchmarks._callgrind import CALIBRATION, LOOP

pytestmark = pytest.mark.native

BUILD = instructions.build()


def of_version(**more: object) -> dict[str, object]:
    """One function with a budget of 1,000 instructions, and 100 for the calibration."""
    return {"build": BUILD, "instructions": {CALIBRATION: 100, "make a row": 1_000}, **more}


@pytest.mark.needs("valgrind")
@pytest.mark.timeout(150)
def test_no_hot_function_grows() -> None:
    """None takes 5 % more instructions than when the budgets were last written."""
    known = instructions.budgets().get(instructions.minor())
    reason = instructions.why_not()
    if reason is None and known is None:
        reason = (
            f"optional: no budgets for Python {instructions.minor()}: bench instructions --write"
        )
    if reason is not None:
        pytest.skip(reason)

    found = instructions.counted()

    assert found.keys() == known["instructions"].keys(), "other functions: write the budgets anew"
    assert instructions.grown(known, found) == []


def test_a_function_that_grows_is_named() -> None:
    """With the figures of then and now."""
    found = {CALIBRATION: 100, "make a row": 1_051}

    (said,) = instructions.grown(of_version(), found)

    assert said.startswith("make a row: 1,051 instructions a call, 1,000 at the last count")
    assert instructions.grown(of_version(), {**found, "make a row": 1_049}) == []


def test_another_build_of_python_is_allowed_for() -> None:
    """What costs half more in plain Python may do so in the product, and somewhat beyond."""
    known = of_version(build="another")

    assert instructions.grown(known, {CALIBRATION: 150, "make a row": 1_799}) == []
    assert instructions.grown(known, {CALIBRATION: 150, "make a row": 1_801})
    assert instructions.grown(known, {CALIBRATION: 100, "make a row": 1_201})


def test_room_is_given_on_top() -> None:
    """While functions are being worked on, budgets may be wide."""
    assert instructions.grown(of_version(room=0.2), {CALIBRATION: 100, "make a row": 1_259}) == []
    assert instructions.grown(of_version(room=0.2), {CALIBRATION: 100, "make a row": 1_261})


def test_start_up_cancels() -> None:
    """What a loop takes beside its calls is in both lengths, and not in the figure."""

    def dump(times: int) -> str:
        name = f"desc: Trigger: Client Request: make a row: {times}\n"
        return f"version: 1\n{name}\ntotals: {5_000 + 70 * times}\n"

    dumps = [dump(LOOP), dump(2 * LOOP), "totals: 99\n"]

    assert instructions.per_call(dumps) == {"make a row": 70}


def test_valgrind_is_missed_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command says what to install."""
    monkeypatch.setitem(os.environ, "PATH", "")

    assert instructions.why_not() == "valgrind is not installed (Debian: apt install valgrind)"
