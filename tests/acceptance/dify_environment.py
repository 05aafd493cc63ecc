"""The environment that plugins run in: Dify's own SDK, apart from ours, made once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "dify.txt"
VENV = ROOT / ".venv-dify"
PLUGIN = ROOT / "dify" / "async_nodes"


def suitable_python() -> str | None:
    """Return a Python of the version that Dify's SDK wants, 3.12 or later."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    known = [str(path) for path in sorted(pyenv.glob("3.1[23].*/bin/python"))]
    for name in ("python3.12", "python3.13", *known):
        found = shutil.which(name)
        if found and _version(found) in ("3.12", "3.13"):
            return found
    return None


def _version(python: str) -> str:
    """Return a Python's version; nothing where a version manager's shim finds none behind it."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    command = [python, "-I", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def dify_python() -> Path:
    """Return the environment's Python, installing what is pinned where that is not there yet."""
    found = suitable_python()
    if found is None:
        raise LookupError("no Python 3.12 or 3.13: install one to test the plugin for Dify")
    stamp = hashlib.sha256(PINS.read_bytes() + found.encode()).hexdigest()
    with (ROOT / ".venv-dify.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, made = VENV / "bin" / "python", VENV / "made"
        if not made.exists() or made.read_text() != stamp:
            shutil.rmtree(VENV, ignore_errors=True)
            subprocess.run([found, "-m", "venv", VENV], check=True)
            install = ["-m", "pip", "install", "-q", "--require-hashes", "-r", PINS]
            subprocess.run([python, *install], check=True)
            made.write_text(stamp)
    return python
