"""The checkout this program was installed from, for the verbs that only make sense in one."""

from __future__ import annotations

from pathlib import Path

from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr


def checkout(part: str) -> Path:
    """Return the checkout's folder.

    Args:
        part: a file or folder that must be in it.

    Raises:
        Failure: this is an installed package, without that part.

    """
    root = Path(__file__).resolve().parents[2]
    if not (root / "setup.cfg").is_file() or not (root / part).exists():
        raise Failure(
            tr(f"there is no {part} beside this installation", f"此安装旁没有 {part}"),
            tr("Run it in a checkout of the sources.", "请在源码目录中运行。"),
        )
    return root
