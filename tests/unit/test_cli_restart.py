from __future__ import annotations

from async_nodes.cli.restart import RestartPolicy

POLICY = RestartPolicy(first=0.5, longest=5.0, settled=10.0, patience=5)


def test_the_pause_grows_to_its_bound() -> None:
    """Restarts of a process that keeps dying come ever later, never later than the bound."""
    delays = [POLICY.delay(n, status=-9, is_starting=False) for n in range(1, 6)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 5.0]


def test_a_crash_loop_ends() -> None:
    """After its patience the policy gives up."""
    assert POLICY.delay(6, status=1, is_starting=False) is None


def test_a_process_that_settled_starts_anew() -> None:
    """A death after a long life is the first of a new row."""
    assert POLICY.deaths(4, 10.0) == 1
    assert POLICY.deaths(4, 9.9) == 5


def test_while_starting_only_a_killed_process_comes_back() -> None:
    """Before the whole was ready, a process that ends by itself would only say the same again."""
    assert POLICY.delay(1, status=1, is_starting=True) is None
    assert POLICY.delay(1, status=0, is_starting=True) is None
    assert POLICY.delay(1, status=-9, is_starting=True) == 0.5
