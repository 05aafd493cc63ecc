"""Environments of their own for tools whose dependencies are not ours, each made once.

Made from pinned requirements with their hashes, under a lock: runs beside each other share them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """Describe an environment.

    Attributes:
        name: of its requirements, and behind ``.venv-`` of its folder.
        versions: of Python that it can have, such as ``3.12``, the best first.

    """

    name: str
    versions: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Return where it is."""
        return ROOT / f".venv-{self.name}"

    def suitable_python(self) -> str | None:
        """Return a Python that it can be made with, None where there is none."""
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        for version in self.versions:
            known = [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
            for name in (f"python{version}", *known):
                found = shutil.which(name)
                if found and _version(found) == version:
                    return found
        return None

    def python(self) -> Path:
        """Return its Python, installing what is pinned where that is not there yet.

        Raises:
            LookupError: there is no suitable Python.

        """
        found = self.suitable_python()
        if found is None:
            raise LookupError(f"no Python {' or '.join(self.versions)} for .venv-{self.name}")
        pins = ROOT / "requirements" / f"{self.name}.txt"
        stamp = hashlib.sha256(pins.read_bytes() + found.encode()).hexdigest()
        with (ROOT / f".venv-{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            python, made = self.folder / "bin" / "python", self.folder / "made"
            if not made.exists() or made.read_text() != stamp:
                shutil.rmtree(self.folder, ignore_errors=True)
                subprocess.run([found, "-m", "venv", self.folder], check=True)
                install = ["-m", "pip", "install", "-q", "--require-hashes", "-r", pins]
                subprocess.run([python, *install], check=True)
                made.write_text(stamp)
        return python


def _version(python: str) -> str:
    """Return a Python's version; nothing where a version manager's shim finds none behind it."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    command = [python, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
