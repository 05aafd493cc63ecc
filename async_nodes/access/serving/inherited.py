"""Step 5, expose: what one of several web processes is given by the one that looks after them.

Open descriptors and two numbers, as one word of its command line.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """Say who a process is among its like, and which descriptors are for it.

    Attributes:
        number: of the process, from 0; a successor has its predecessor's.
        processes: how many there are.
        listeners: accept connections, each that of the process at its place; or a single one for
            all of them.
        seats: a file that all processes have mapped, see `seats`.
        ready: a pipe that is written to once this process does its work.
        tickets: a pipe with the key of TLS tickets; -1 without.
        metrics: accepts connections that ask for this process's metrics; -1 without.

    """

    number: int
    processes: int
    listeners: tuple[int, ...]
    seats: int
    ready: int
    tickets: int = -1
    metrics: int = -1

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return those that are there."""
        found = (*self.listeners, self.seats, self.ready, self.tickets, self.metrics)
        return tuple(descriptor for descriptor in found if descriptor >= 0)

    def word(self) -> str:
        """Return it as a word."""
        listeners = ":".join(map(str, self.listeners))
        numbers = {f.name: getattr(self, f.name) for f in fields(self)} | {"listeners": listeners}
        return ",".join(f"{name}={value}" for name, value in numbers.items())

    @classmethod
    def read(cls, word: str) -> Self:
        """Return what a word says.

        Raises:
            ValueError: nothing of ours wrote it.

        """
        texts = {name: text for name, _, text in (part.partition("=") for part in word.split(","))}
        if texts.keys() != {field.name for field in fields(cls)}:
            raise ValueError(word)
        listeners = tuple(map(int, texts.pop("listeners").split(":")))
        return cls(listeners=listeners, **{name: int(text) for name, text in texts.items()})

    def tell_ready(self) -> None:
        """Say that this process does its work; whoever asked may have gone."""
        try:
            os.write(self.ready, b"+")
        except OSError:
            return
        finally:
            os.close(self.ready)
