"""A virtual environment for each library that async_nodes is compared with, made when it is needed.

They are kept in ``benchmarks/out/environments``, one for each state of a requirements file, and
have nothing to do with the product's own. pip installs exactly what the file says, by its hashes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks import _figures
from benchmarks._processes import ROOT, BenchmarkError, clean_environment

FOLDER: Final = ROOT / "benchmarks" / "out" / "environments"
LIMIT: Final = 300.0
NEWEST: Final = (3, 13)

Version = tuple[int, int]


class NotInstalledError(BenchmarkError):
    """Say why a library cannot be measured here."""


def python_of(package: str, *, least: Version) -> Path:
    """Return the Python of a baseline's environment, which is made if it is not there.

    Args:
        package: the folder in ``benchmarks/baselines`` with ``requirements.txt``.
        least: the oldest Python that the library takes.

    Raises:
        NotInstalledError: there is no such Python, or pip cannot install it.

    """
    wanted = ROOT / "benchmarks" / "baselines" / package / "requirements.txt"
    base = _base(least)
    digest = hashlib.sha256(wanted.read_bytes() + base.encode()).hexdigest()[:12]
    folder = FOLDER / f"{package}-{digest}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        _make(folder, base, wanted, package)
    return python


def _base(least: Version) -> str:
    if sys.version_info[:2] >= least:
        return sys.executable
    for minor in range(least[1], NEWEST[1] + 1):
        for candidate in _candidates(f"python3.{minor}"):
            if _runs(candidate):
                return candidate
    text = ".".join(map(str, least))
    raise NotInstalledError(f"it needs Python {text} or newer, and none was found")


def _candidates(name: str) -> list[str]:
    """Return where a Python of this name may be: on PATH, and where pyenv keeps what it has."""
    on_path = shutil.which(name)
    kept = (Path.home() / ".pyenv" / "versions").glob(f"*/bin/{name}")
    return [*([on_path] if on_path else []), *sorted(map(str, kept))]


def _runs(candidate: str) -> bool:
    """Tell whether it is a Python at all: a version manager's shim may only complain."""
    try:
        subprocess.run(
            [candidate, "-c", "import venv"], capture_output=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _make(folder: Path, base: str, wanted: Path, package: str) -> None:
    _figures.say(f"installing {package} into {folder.relative_to(ROOT)}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]
    for argv in ([base, "-m", "venv", str(folder)], [*pip, "-r", str(wanted)]):
        _run(argv, package)
    (folder / "complete").touch()


def _run(argv: list[str], package: str) -> None:
    try:
        subprocess.run(
            argv,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout or "no output").strip().splitlines()
        faults = [line for line in lines if "ERROR" in line.upper()] or lines
        raise NotInstalledError(f"{package} could not be installed: {faults[-1][:200]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(f"{package} could not be installed: {error}") from None
