"""What a check is: a name, an outcome, one line of detail, one line of advice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum

from async_nodes.cli.client_options import client_for
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.core.errors import AsyncNodesError
from async_nodes.settings import Settings


class Outcome(IntEnum):
    """Say how a check went; the worst one is the exit status."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: what was checked.
        outcome: how it went.
        detail: what was seen, without secrets.
        hint: what to do, empty when nothing is to be done.
        seconds: how long it took.

    """

    name: str
    outcome: Outcome
    detail: str
    hint: str = ""
    seconds: float = 0.0


class SkippedError(Exception):
    """Say that a check cannot be made, because of what an earlier one found."""


@dataclass(slots=True)
class Patient:
    """What the checks share, filled in from check to check.

    Attributes:
        url: of the server, None for the one the settings name.
        deadline: when all checks must be over, on the monotonic clock.
        settings: once they are read.
        store_answers: whether Redis did.
        web_answers: whether the server did.

    """

    url: str | None
    deadline: float
    settings: Settings | None = None
    store_answers: bool = False
    web_answers: bool = False
    _client: Client | None = field(default=None, repr=False)

    def left(self, most: float) -> float:
        """Return the seconds a step may take: ``most``, or what the whole has left.

        Raises:
            SkippedError: nothing is left.

        """
        left = min(most, self.deadline - time.monotonic())
        if left <= 0:
            raise SkippedError(tr("there was no time left", "时间已用完"))
        return left

    def known_settings(self) -> Settings:
        """Return the settings.

        Raises:
            SkippedError: they could not be read.

        """
        if self.settings is None:
            raise SkippedError(tr("the settings are wrong", "设置有误"))
        return self.settings

    def client(self) -> Client:
        """Return a client of the server."""
        if self._client is None:
            self._client = client_for(self.url)
        return self._client

    def close(self) -> None:
        """Close the client's connection."""
        if self._client is not None:
            self._client.close()


Examination = Callable[[Patient], Check]


def examine(patient: Patient, examinations: Iterable[Examination]) -> list[Check]:
    """Make the checks in order; one that breaks is a failed check and not the end."""
    checks = []
    for examination in examinations:
        began = time.monotonic()
        check = _made(patient, examination)
        checks.append(replace(check, seconds=time.monotonic() - began))
    patient.close()
    return checks


def status_of(checks: Iterable[Check]) -> int:
    """Return the exit status: 0 all well, 1 there are warnings, 2 something fails."""
    return int(max((check.outcome for check in checks), default=Outcome.OK))


def _made(patient: Patient, examination: Examination) -> Check:
    name = (examination.__doc__ or examination.__name__).partition(":")[0]
    try:
        return examination(patient)
    except SkippedError as reason:
        detail = tr(f"not checked: {reason}", f"未检查:{reason}")
        return Check(name, Outcome.WARN, detail)
    except AsyncNodesError as error:
        hint = tr(error.kind.hint, error.kind.hint_zh)
        return Check(name, Outcome.FAIL, error.detail, hint)
    except Exception as error:  # noqa: BLE001 - whatever broke is what the person should see
        return Check(name, Outcome.FAIL, f"{type(error).__name__}: {error}")
