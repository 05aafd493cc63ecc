"""Benchmarks: what async_nodes costs, next to what it would cost without it.

Each module that does not begin with an underscore is one benchmark; run it with
``async-nodes bench NAME`` or ``python -m benchmarks NAME``. How they measure is written in
``docs/benchmarks.md``.
"""
