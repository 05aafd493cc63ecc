"""The key grammar: one prefix, one hash tag, nothing spelt twice."""

from __future__ import annotations

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.priority import LISTS
from async_nodes.storage.keys import Keys

ID = "t_00000000000000000000000001"


def test_the_keys_of_a_task_are_the_documented_ones() -> None:
    """Record, stream, channel, index and sets are spelt as the table of the module says."""
    keys = Keys()

    assert keys.task(ID) == f"an:{{0}}:t:{ID}"
    assert keys.stream(ID) == f"an:{{0}}:e:{ID}"
    assert keys.channel(ID) == f"an:{{0}}:s:{ID}"
    assert keys.control("io-1-a") == "an:{0}:ctl:io-1-a"
    assert keys.index("default") == "an:{0}:x:default"
    assert keys.running("io-1-a") == "an:{0}:r:io-1-a"
    assert keys.unclaimed("io.high") == "an:{0}:q:io.high"


def test_every_key_of_ours_starts_with_the_base() -> None:
    """The scripts are given the base and build the rest from it."""
    keys = Keys("other", 3)
    named = [keys.task(ID), keys.stream(ID), keys.channel(ID)]
    found = [*named, keys.workers, keys.due, keys.dead("a")]

    assert keys.base == "other:{3}:"
    assert all(key.startswith(keys.base) for key in [*found, keys.secret])


def test_queues_are_plain_celery_names_in_the_order_of_the_lists() -> None:
    """Celery's own tools find the queues under names without braces."""
    assert Keys().queues == (
        "an.io.high",
        "an.io.default",
        "an.io.low",
        "an.cpu.high",
        "an.cpu.default",
        "an.cpu.low",
    )
    assert len(LISTS) == len(Keys().queues)


@pytest.mark.parametrize("prefix", ["", "a b", "a:b", "a{b}", "a" * 33, "\u00e4", "an\n", "a.b"])
def test_a_prefix_that_would_break_the_grammar_is_refused(prefix: str) -> None:
    """The error names the setting."""
    with pytest.raises(AsyncNodesError, match="ASYNC_NODES_KEY_PREFIX") as refused:
        Keys(prefix)

    assert refused.value.code == "invalid_setting"
