from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.serving.inherited import Inherited
from async_nodes.cli.web.roll import START_SECONDS, Roll, Step

NUMBERS = st.integers(0, 1 << 16)


def test_a_successor_comes_first() -> None:
    """Nothing is handed over before the successor is ready; then the next one's turn has come."""
    roll = Roll((0, 1))
    assert roll.step(0.0) is Step.START
    roll = roll.begun(0.0)
    assert roll.step(1.0) is Step.WAIT
    assert roll.step(1.0, ready=True) is Step.HAND_OVER
    assert roll.handed_over() == Roll((1,))
    assert roll.handed_over().handed_over().step(2.0) is Step.DONE


def test_it_ends_with_a_successor_that_does_not_come_up() -> None:
    """Dead, even if it was ready, or too slow; one that is ready late is taken all the same."""
    roll = Roll((0, 1)).begun(5.0)
    assert roll.step(6.0, dead=True) is Step.GIVE_UP
    assert roll.step(6.0, ready=True, dead=True) is Step.GIVE_UP
    assert roll.step(5.0 + START_SECONDS) is Step.GIVE_UP
    assert roll.step(5.0 + START_SECONDS, ready=True) is Step.HAND_OVER


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 8))
def test_every_process_is_replaced_once_and_in_order(waits: list[bool], count: int) -> None:
    """However long each takes within its bound, and one after the other."""
    roll, now, started, replaced = Roll(tuple(range(count))), 0.0, 0, []
    slow = iter(waits)
    while (step := roll.step(now, ready=not next(slow, False))) is not Step.DONE:
        now += 0.1
        if step is Step.START:
            started += 1
            roll = roll.begun(now)
        elif step is Step.HAND_OVER:
            replaced.append(roll.left[0])
            roll = roll.handed_over()
        assert started - len(replaced) in (0, 1)
    assert replaced == list(range(count))


@given(
    st.integers(0, 63),
    st.lists(NUMBERS, min_size=1, max_size=64),
    NUMBERS,
    st.sampled_from([-1, 17]),
    st.sampled_from([-1, 23]),
)
def test_what_is_inherited_travels_in_a_word(
    number: int, listeners: list[int], seats: int, tickets: int, metrics: int
) -> None:
    """What is read is what was written, and descriptors that are not there are none."""
    given_ = Inherited(
        number=number,
        processes=64,
        listeners=tuple(listeners),
        seats=seats,
        ready=9,
        tickets=tickets,
        metrics=metrics,
    )
    assert Inherited.read(given_.word()) == given_
    assert " " not in given_.word()
    assert all(descriptor >= 0 for descriptor in given_.descriptors)
