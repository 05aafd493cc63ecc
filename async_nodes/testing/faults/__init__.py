"""Faults on purpose, for tests of ours and of whoever uses us: a network that misbehaves.

    with FaultProxy(("127.0.0.1", 6379), seed=1) as proxy:
        proxy.add(Latency(latency=0.2, jitter=0.1))
        client = connect_to(proxy.url("redis"))

The faults have the names and attributes that Toxiproxy gave them, in seconds and bytes.
"""

from async_nodes.testing.faults.proxy import FaultProxy
from async_nodes.testing.faults.toxics import (
    Bandwidth,
    Latency,
    LimitData,
    ResetPeer,
    Slicer,
    SlowClose,
    Stall,
    Stream,
    Toxic,
    parse_toxic,
)

__all__ = [
    "Bandwidth",
    "FaultProxy",
    "Latency",
    "LimitData",
    "ResetPeer",
    "Slicer",
    "SlowClose",
    "Stall",
    "Stream",
    "Toxic",
    "parse_toxic",
]
