"""Logs of our own processes: one line per record, whatever is in it.

For people a line is a time, a level, the sentence and ``key=value`` for each of its facts; for
machines it is a JSON object. What is logged while an attempt or a request is under way names its
trace. Only our processes call `configure`; the library never does.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, TextIO

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS: Final[Mapping[str, str]] = {
    "DEBUG": "2",
    "WARNING": "33",
    "ERROR": "31",
    "CRITICAL": "1;31",
}
MAX_VALUE: Final = 500
_HANDLER: Final = "async_nodes"


UNDER_WAY: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("under_way", default=None)
"""Names that every line gets which does not have them: the trace, and the task if there is one."""


def configure(
    *, level: int = logging.INFO, stream: TextIO | None = None, as_json: bool = False
) -> None:
    """Send the records of this process to standard error; again only changes the level and format.

    Args:
        level: the least severe that is written.
        stream: instead of standard error.
        as_json: whether machines are to read the lines.

    """
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.set_name(_HANDLER)
    human = LineFormatter(colour=wants_colour(out, os.environ))
    handler.setFormatter(JsonFormatter() if as_json else human)
    handler.addFilter(_named)
    root = logging.getLogger()
    for old in [known for known in root.handlers if known.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)


def _named(record: logging.LogRecord) -> bool:
    """Give a record the names of what is under way."""
    for name, value in (UNDER_WAY.get() or {}).items():
        record.__dict__.setdefault(name, value)
    return True


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Tell whether to colour: ``NO_COLOR``, then ``FORCE_COLOR``, then whether it is a terminal."""
    if environ.get("NO_COLOR"):
        return False
    return bool(environ.get("FORCE_COLOR")) or stream.isatty()


class JsonFormatter(logging.Formatter):
    """Write a record as one JSON object: at, level, message, logger, facts, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found: dict[str, Any] = {
            "at": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and name not in found and value is not None:
                found[name] = value if isinstance(value, int | float) else str(value)[:MAX_VALUE]
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=True, allow_nan=True)


class LineFormatter(logging.Formatter):
    """Write a record as one line; only a traceback, which is ours, follows on lines of its own."""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        facts = "".join(
            f" {name}={_value(value)}"
            for name, value in vars(record).items()
            if name not in _STANDARD and value is not None
        )
        head = f"{moment}.{int(record.msecs):03d} {record.levelname:<7}"
        line = f"{head} {one_line(record.getMessage())}{facts}"
        colour = _COLOURS.get(record.levelname) if self._colour else None
        if colour:
            line = f"\033[{colour}m{line}\033[0m"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def one_line(text: str) -> str:
    """Return a text without anything that could start a line or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else f"{value:.3f}" if _is_float(value) else str(value)
    text = one_line(text[:MAX_VALUE])
    return json.dumps(text, ensure_ascii=False) if not text or set(text) & set(' "=') else text


def _is_float(value: object) -> bool:
    return isinstance(value, float)
