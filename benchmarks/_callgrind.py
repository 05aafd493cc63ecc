"""What runs under valgrind: every hot function N and 2N times, each loop counted by itself.

Started as ``valgrind --tool=callgrind --instr-atstart=no … python -m benchmarks._callgrind``.
Valgrind does not count until it is asked to, so that the imports take seconds instead of half a
minute. It is asked by a "client request", a sequence of instructions that does nothing on the
processor and that valgrind recognises: its header ``valgrind.h`` has it for C programs, and this
file has it as eleven instructions in a page of memory, called through ctypes.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
from collections.abc import Callable
from itertools import repeat
from typing import Any, Final

MACHINES: Final = ("x86_64", "AMD64")
"""Processors whose sequence is written here."""

LOOP: Final = 32
WARM_UP: Final = 32
CALIBRATION: Final = "plain Python"

_CODE: Final = bytes.fromhex(
    "4889f8"  # mov rax, rdi      the request and its five arguments
    "4889f2"  # mov rdx, rsi      what comes back where valgrind is not there
    "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi by 3, 13, 61, 51: 128 bits, so nothing
    "4887db"  # xchg rbx, rbx
    "4889d0"  # mov rax, rdx
    "c3"  # ret
)
_RUNNING_ON_VALGRIND: Final = 0x1001
_CALLGRIND: Final = int.from_bytes(b"CT\0\0")
_ZERO, _DUMP_AT, _START, _STOP = (_CALLGRIND + number for number in (1, 3, 4, 5))


class Valgrind:
    """Speak to the valgrind that this process runs under.

    Raises:
        RuntimeError: there is none, or the processor has another sequence.

    """

    def __init__(self) -> None:
        if platform.machine() not in MACHINES:
            message = f"no client request is written for {platform.machine()}"
            raise RuntimeError(message)
        self._page = mmap.mmap(
            -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        )
        self._page.write(_CODE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)
        self._call = kind(start)
        if not self._ask(_RUNNING_ON_VALGRIND):
            message = "this process does not run under valgrind"
            raise RuntimeError(message)

    def _ask(self, request: int, argument: int = 0) -> Any:
        words = (ctypes.c_uint64 * 6)(request, argument, 0, 0, 0, 0)
        return self._call(ctypes.addressof(words), 0)

    def count(self, label: str, work: Callable[[], object]) -> None:
        """Count what `work` takes, in a dump of its own under this label."""
        name = ctypes.create_string_buffer(label.encode())
        self._ask(_START)
        self._ask(_ZERO)
        work()
        self._ask(_DUMP_AT, ctypes.addressof(name))
        self._ask(_STOP)


def calibration() -> int:
    """Do a little of everything that Python does: another build takes another number for it."""
    words: dict[str, int] = {}
    for number in range(50):
        name = f"{number % 7}-{number:x}"
        words[name] = words.get(name, 0) + len(name.encode().split(b"-"))
    return sum(sorted(words.values()))


def repeated(work: Callable[[], object], times: int) -> Callable[[], None]:
    """Return what does `work` so many times."""

    def loop() -> None:
        for _ in repeat(None, times):
            work()

    return loop


def main() -> None:
    """Count every function twice; the dumps are valgrind's files."""
    from benchmarks._hot import operations

    valgrind = Valgrind()
    named = {CALIBRATION: calibration, **operations()}
    for work in named.values():
        repeated(work, WARM_UP)()
    gc.collect()
    gc.disable()  # when it runs depends on everything before
    for name, work in named.items():
        for times in (LOOP, 2 * LOOP):
            valgrind.count(f"{name}: {times}", repeated(work, times))


if __name__ == "__main__":
    main()
