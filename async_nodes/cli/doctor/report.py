"""Show the checks: a line each, advice below what needs some; or as JSON. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from async_nodes.cli.doctor.check import Check, Outcome, status_of
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import pad, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from async_nodes.cli.terminal import Terminal

_NAME = 12
_LOOKS = {
    Outcome.OK: ("✔", "+", "ok", "正常", "green"),
    Outcome.WARN: ("!", "!", "warn", "注意", "yellow"),
    Outcome.FAIL: ("✖", "x", "fail", "失败", "bold red"),
}


def lines(checks: Sequence[Check], terminal: Terminal) -> list[str]:
    """Return the checks for a person, and what they come to."""
    shown: list[str] = []
    for check in checks:
        icon, plain, english, chinese, style = _LOOKS[check.outcome]
        word = pad(tr(english, chinese), 4)
        mark = terminal.paint(f"{icon if terminal.unicode else plain} {word}", style)
        shown.append(f"{mark}  {pad(check.name, _NAME)} {printable(check.detail)}")
        if check.hint:
            shown.append(" " * (_NAME + 9) + terminal.paint(printable(check.hint), "dim"))
    return [*shown, "", terminal.paint(_sum(checks), _LOOKS[Outcome(status_of(checks))][4])]


def document(checks: Sequence[Check]) -> str:
    """Return the checks as JSON."""
    members = {
        "status": Outcome(status_of(checks)).name.lower(),
        "checks": [
            {
                "name": check.name,
                "outcome": check.outcome.name.lower(),
                "detail": check.detail,
                "hint": check.hint,
                "seconds": round(check.seconds, 3),
            }
            for check in checks
        ],
    }
    return json.dumps(members, ensure_ascii=False, indent=2)


def _sum(checks: Sequence[Check]) -> str:
    failed = sum(check.outcome is Outcome.FAIL for check in checks)
    warned = sum(check.outcome is Outcome.WARN for check in checks)
    seconds = sum(check.seconds for check in checks)
    if not failed and not warned:
        return tr(f"All is well ({seconds:.1f} s).", f"一切正常({seconds:.1f} 秒)。")
    return tr(
        f"{failed} failed, {warned} to look at ({seconds:.1f} s).",
        f"{failed} 项失败,{warned} 项需注意({seconds:.1f} 秒)。",
    )
