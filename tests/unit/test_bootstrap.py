"""./run and bootstrap.py, in checkouts of their own, with stand-ins for uv and no downloads."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import bootstrap

ROOT = Path(bootstrap.__file__).parent
# The Python below the environment that runs the tests; a venv of a venv would be another case.
BASE = getattr(sys, "_base_executable", sys.executable)
TOOLS = ("cat", "chmod", "dirname", "env", "mkdir", "readlink", "sh", "sleep", "touch")

UV = """\
    #!/bin/sh
    # Stands in for uv: notes what it is asked, and brings the program with the project.
    echo "$@" >>"$HOME/uv.log"
    case "$1" in python) exit 1 ;; esac
    [ ! -e "$HOME/slow" ] || { touch "$HOME/started"; sleep "$(cat "$HOME/slow")"; }
    [ ! -e "$HOME/uv-fails" ] || { echo "no route to anything"; exit 1; }
    case "$*" in *" -e "*) ;; *) exit 0 ;; esac
    bin=$(dirname "$4")
    printf '#!/bin/sh\\necho verb: "$@"\\nexit 7\\n' >"$bin/async-nodes"
    chmod +x "$bin/async-nodes"
    """

BACKEND = '''\
    """Builds an editable wheel with one program; stands in for setuptools."""
    import zipfile

    def build_editable(directory, config_settings=None, metadata_directory=None):
        name = "async_nodes-0-py3-none-any.whl"
        with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
            info = "async_nodes-0.dist-info/"
            code = "def main():\\n    print('verb from pip')\\n"
            wheel.writestr("stand_in.py", code)
            metadata = "Metadata-Version: 2.1\\nName: async_nodes\\nVersion: 0\\n"
            wheel.writestr(info + "METADATA", metadata)
            tag = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
            wheel.writestr(info + "WHEEL", tag)
            script = "[console_scripts]\\nasync-nodes = stand_in:main\\n"
            wheel.writestr(info + "entry_points.txt", script)
            wheel.writestr(info + "RECORD", "")
        return name
    '''


class Checkout:
    """A copy of what ./run needs, a home of its own, and a PATH with nothing unexpected on it."""

    def __init__(self, base: Path) -> None:
        self.root = base / "check out"  # with a space, as people's folders have
        self.home = base / "home"
        self.bin = base / "bin"
        for folder in (self.root / "requirements", self.home, self.bin):
            folder.mkdir(parents=True)
        for name in ("run", "bootstrap.py"):
            shutil.copy(ROOT / name, self.root / name)
        for layer in ("runtime", "test"):
            (self.root / "requirements" / f"{layer}.txt").write_text("# nothing\n")
        (self.root / "setup.cfg").write_text("[metadata]\nname = async_nodes\n")
        (self.root / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        )
        (self.root / "backend.py").write_text(dedent(BACKEND))
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self.bin / tool).symlink_to(found)
        self.program("python3.11", f'#!/bin/sh\nexec "{BASE}" "$@"\n')

    def program(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        path = self.bin / name
        path.write_text(dedent(text))
        path.chmod(0o755)

    def environ(self) -> dict[str, str]:
        """Return all the environment that a run gets."""
        return {"PATH": str(self.bin), "HOME": str(self.home), "PIP_NO_INDEX": "1"}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start ./run."""
        return subprocess.Popen(
            [str(self.root / "run"), *words],
            env=self.environ(),
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Return the exit status, stdout and stderr of ./run."""
        child = self.start(*words)
        out, err = child.communicate(timeout=60)
        return child.returncode, out, err

    def asked(self) -> list[str]:
        """Return what the stand-in for uv was asked to install, in order."""
        log = self.home / "uv.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.startswith("pip install")]

    def use_interpreter(self, text: str) -> None:
        """Replace every Python on PATH by one stand-in."""
        (self.bin / "python3.11").unlink()
        self.program("python3", text)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def with_uv(checkout: Checkout) -> Checkout:
    checkout.program("uv", UV)
    return checkout


@pytest.fixture
def ready(with_uv: Checkout) -> Checkout:
    assert with_uv.run("x")[0] == 7
    (with_uv.home / "uv.log").unlink()
    return with_uv


# -- setting up ------------------------------------------------------------------------------------


def test_the_first_run_sets_up_and_becomes_the_verb(with_uv: Checkout) -> None:
    """Pinned packages with hashes, then this checkout; stdout and exit status are the verb's."""
    status, out, err = with_uv.run("run", "echo", "a b=c")

    assert (status, out) == (7, "verb: run echo a b=c\n")
    packages, project = with_uv.asked()
    assert "--require-hashes -r" in packages
    assert "requirements/runtime.txt" in packages
    assert "--no-deps --no-build-isolation -e" in project
    assert "installing into .venv (uv" in err


def test_without_a_verb_it_is_the_demo(ready: Checkout) -> None:
    """./run alone is ./run demo."""
    assert ready.run()[1] == "verb: demo\n"


def test_nothing_changed_means_quiet_and_quick(ready: Checkout) -> None:
    """The second run says nothing, installs nothing and is there in well under 0.3 s."""
    times = []
    for _ in range(5):
        started = time.monotonic()
        status, out, err = ready.run("x")
        times.append(time.monotonic() - started)

        assert (status, out, err) == (7, "verb: x\n", "")
    assert ready.asked() == []
    assert min(times) < 0.3


@pytest.mark.parametrize("name", ["requirements/runtime.txt", "setup.cfg", "pyproject.toml"])
def test_a_changed_input_installs_again(ready: Checkout, name: str) -> None:
    """Whatever decides about the packages is part of the stamp."""
    with (ready.root / name).open("a") as file:
        file.write("\n")

    assert ready.run("x")[0] == 7
    assert len(ready.asked()) == 2
    assert ready.run("x")[2] == ""


def test_without_uv_pip_does_it(checkout: Checkout) -> None:
    """The venv's own pip, with hashes and without build isolation, in a path with a space."""
    status, out, err = checkout.run("x")

    assert (status, out) == (0, "verb from pip\n"), err
    assert "installing into .venv (pip" in err
    assert checkout.run("x") == (0, "verb from pip\n", "")


def test_pip_takes_over_where_uv_fails(with_uv: Checkout) -> None:
    """A uv that cannot reach its index or trust its certificate does not end the set-up."""
    (with_uv.home / "uv-fails").touch()
    status, out, err = with_uv.run("x")

    assert (status, out) == (0, "verb from pip\n"), err
    assert "uv could not do it, trying pip instead: no route to anything" in err


def test_a_failed_set_up_says_why_and_can_be_repeated(checkout: Checkout) -> None:
    """The last lines of what failed are shown, the exit status tells, the next run starts over."""
    (checkout.root / "requirements" / "runtime.txt").write_text("nowhere==1 --hash=sha256:00\n")
    status, out, err = checkout.run("x")

    assert (status, out) == (1, "")
    assert "packages:" in err
    assert "nowhere" in err
    assert "Traceback" not in err
    (checkout.root / "requirements" / "runtime.txt").write_text("\n")
    assert checkout.run("x")[0] == 0


def test_an_environment_of_the_tests_serves_every_verb(with_uv: Checkout) -> None:
    """The test layer contains the runtime, so no verb after ./run test installs again."""
    with_uv.run("test", "--version")
    assert "requirements/test.txt" in with_uv.asked()[0]

    assert with_uv.run("x") == (7, "verb: x\n", "")
    assert len(with_uv.asked()) == 2


def test_it_starts_through_a_link_from_anywhere(ready: Checkout) -> None:
    """A link in ~/bin leads to the checkout, relative links included."""
    link = ready.home / "an"
    link.symlink_to(os.path.relpath(ready.root / "run", ready.home))
    done = subprocess.run(
        [str(link), "x"], env=ready.environ(), cwd="/", capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (7, "verb: x\n")


# -- two at once, and what is left behind ----------------------------------------------------------


def test_two_at_once_install_once(with_uv: Checkout) -> None:
    """The second waits for the first and finds the work done."""
    (with_uv.home / "slow").write_text("0.4")
    children = [with_uv.start("x"), with_uv.start("x")]
    ends = [child.communicate(timeout=60) for child in children]

    assert [child.returncode for child in children] == [7, 7]
    assert len(with_uv.asked()) == 2
    assert sum("another ./run is setting up" in err for _, err in ends) == 1


def test_a_killed_set_up_is_made_anew(with_uv: Checkout) -> None:
    """What a SIGKILL leaves half-made is not trusted, and not kept either."""
    (with_uv.home / "slow").write_text("30")
    child = with_uv.start("x")
    wait_for((with_uv.home / "started").exists)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    (with_uv.home / "slow").unlink()
    half = with_uv.root / ".venv" / "half-made"
    half.touch()

    assert with_uv.run("x")[0] == 7
    assert not half.exists()
    assert not list(with_uv.root.glob(".venv.replaced-*"))


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_dangling_interpreter_is_replaced(ready: Checkout) -> None:
    """The Python below .venv was removed, as by an upgrade of the system."""
    python = ready.root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")

    assert ready.run("x")[0] == 7
    assert len(ready.asked()) == 2


def test_an_upgraded_interpreter_is_noticed(ready: Checkout) -> None:
    """A .venv whose Python became another version has its packages in the wrong place."""
    packages = next((ready.root / ".venv" / "lib").iterdir())
    packages.rename(packages.with_name("python3.0"))
    (ready.root / "setup.cfg").write_text("# changed\n")

    assert ready.run("x")[0] == 7
    assert not (ready.root / ".venv" / "lib" / "python3.0").exists()


def test_a_missing_program_is_brought_back(ready: Checkout) -> None:
    """The stamp alone proves nothing."""
    (ready.root / ".venv" / "bin" / "async-nodes").unlink()

    assert ready.run("x")[0] == 7


def test_a_moved_checkout_is_made_anew(ready: Checkout) -> None:
    """Scripts in .venv name the old place."""
    moved = ready.root.with_name("else where")
    ready.root.rename(moved)
    ready.root = moved
    stale = moved / ".venv" / "bin" / "some-script"
    stale.touch()

    assert ready.run("x")[0] == 7
    assert not stale.exists()
    assert str(moved) in ready.asked()[0]
    assert ready.run("x")[2] == ""


def test_a_persons_own_environment_is_used(with_uv: Checkout) -> None:
    """A working .venv that somebody made is kept with what is in it."""
    venv = with_uv.root / ".venv"
    subprocess.run([BASE, "-m", "venv", "--without-pip", str(venv)], check=True)
    (venv / "mine").touch()

    assert with_uv.run("x")[0] == 7
    assert (venv / "mine").exists()


def test_a_persons_broken_environment_is_put_aside(with_uv: Checkout) -> None:
    """What ./run did not make it does not delete."""
    venv = with_uv.root / ".venv"
    venv.mkdir()
    (venv / "mine").touch()
    status, _, err = with_uv.run("x")

    assert status == 7
    assert (with_uv.root / ".venv.replaced-1" / "mine").exists()
    assert "is now .venv.replaced-1" in err


def test_packages_do_not_go_where_pip_is_told_to_put_them(with_uv: Checkout) -> None:
    """PIP_TARGET and its like are a person's habit, not meant for .venv."""
    with_uv.program("uv", UV + '    echo "target=$PIP_TARGET$PIP_USER" >>"$HOME/uv.log"\n')
    environ = with_uv.environ() | {"PIP_TARGET": "/elsewhere", "PIP_USER": "1"}
    subprocess.run([str(with_uv.root / "run")], env=environ, capture_output=True, check=False)

    log = (with_uv.home / "uv.log").read_text()
    assert "target=\n" in log
    assert "elsewhere" not in log


# -- interpreters ----------------------------------------------------------------------------------


def test_no_python_at_all_gets_one_sentence(checkout: Checkout) -> None:
    """It says which versions, and what to install on which system."""
    (checkout.bin / "python3.11").unlink()
    status, out, err = checkout.run()

    assert (status, out) == (1, "")
    assert "needs Python 3.11, 3.12 or 3.13" in err
    assert "python3-venv" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\necho 'pyenv: python3: command not found' >&2\nexit 127\n",
        "#!/bin/sh\nexit 1\n",
        "#!/nowhere/at/all\n",
        f'#!/bin/sh\n[ "$1" = -I ] || exit 1\nexec "{BASE}" -c "raise SystemExit(1)"\n',
    ],
    ids=["a shim that complains", "fails", "cannot be executed", "too old"],
)
def test_a_python_that_does_not_suit_is_passed_over(checkout: Checkout, text: str) -> None:
    """A name on PATH proves nothing; the search goes on, and ends in the sentence."""
    checkout.use_interpreter(text)
    assert "needs Python 3.11" in checkout.run()[2]

    checkout.program("uv", UV)
    checkout.program("python", f'#!/bin/sh\nexec "{BASE}" "$@"\n')
    assert checkout.run("x")[0] == 7


def test_a_python_that_only_uv_knows_is_found(checkout: Checkout) -> None:
    """The tool uv keeps interpreters of its own that are not on PATH."""
    (checkout.bin / "python3.11").unlink()
    checkout.program("uv", UV.replace("python) exit 1", f'python) echo "{BASE}"; exit 0'))

    assert checkout.run("x")[0] == 7


def test_an_old_python_can_read_the_bootstrap() -> None:
    """Started by hand with an old Python it must get as far as its sentence."""
    text = (ROOT / "bootstrap.py").read_text()
    tree = ast.parse(text, feature_version=(3, 6))

    guard = next(node for node in tree.body if isinstance(node, ast.If))
    first_function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    assert "sys.version_info" in ast.unparse(guard.test)
    assert guard.lineno < first_function.lineno
    assert "from __future__ import annotations" not in text  # a syntax error in 3.6


def test_missing_ensurepip_names_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Debian has that part of Python in a package of its own."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(bootstrap, "STATE", tmp_path / "never-made")

    with pytest.raises(bootstrap.SetupError, match=r"lacks ensurepip.* python3-venv .*apt install"):
        bootstrap.create(with_pip=True)
    assert not (tmp_path / "never-made").exists()


def test_a_folder_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, a sentence and status 1."""
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path / "gone")
    monkeypatch.setattr(bootstrap, "STATE", tmp_path / "gone" / ".venv" / "state")
    monkeypatch.setattr(bootstrap, "LOCK", tmp_path / "gone" / ".run.lock")

    assert bootstrap.main(["x"]) == 1
    assert "cannot write in" in capsys.readouterr().err


# -- the verb test ---------------------------------------------------------------------------------


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Run nothing; note the commands, and let them fail by a word in them."""
    noted: list[list[str]] = []

    def call(command: list[str], stdout: Any = None, **_: Any) -> int:
        noted.append(command[1:])
        if stdout is not None:
            os.write(stdout.fileno(), b"said beside\n")
        return 1 if "mypy" in command else 0

    for tier in ("unit", "integration"):
        (tmp_path / "tests" / tier).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "PROGRAMS", ())
    monkeypatch.setattr(bootstrap, "has_server", lambda: True)
    monkeypatch.setattr(
        bootstrap, "CHECKS", (("ruff check", ["-m", "ruff"]), ("contracts", ["-m", "contracts"]))
    )
    monkeypatch.setattr(subprocess, "call", call)
    return noted


def test_test_runs_every_check_and_tier(
    commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Checks first, then the tiers that are there and some again under gevent, then the list."""
    assert bootstrap.run_tests([]) == 0

    assert [c[1] for c in commands] == ["ruff", "contracts", "pytest", "pytest", "tests.patched"]
    assert [c[2] for c in commands[2:4]] == ["tests/unit", "tests/integration"]
    summary = capsys.readouterr().out.partition("== summary")[2]
    assert "tests/acceptance   no tests" in summary


def test_a_tier_that_waits_runs_beside_the_others(
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What it says is shown whole, behind the others; the tier that kills runs alone, at last."""
    order: list[str] = []
    others_run = threading.Event()

    def call(command: list[str], stdout: Any = None, **_: Any) -> int:
        order.append(command[-1])
        if stdout is None:
            others_run.set()
            sys.stdout.write(f"{command[-1]} in sight\n")
            return 0
        assert others_run.wait(10)
        os.write(stdout.fileno(), b"beside\n")
        order.append("beside is over")
        return 1

    for tier in ("acceptance", "faults"):
        (tmp_path / "tests" / tier).mkdir()
    monkeypatch.setattr(subprocess, "call", call)

    assert bootstrap.run_tests([]) == 1

    assert order.index("beside is over") < order.index("tests/faults")
    assert order[-1] == "tests/faults"
    out = capsys.readouterr().out
    assert out.index("tests.patched in sight") < out.index("beside\n") < out.index("tests/faults")
    assert "failed: tests/acceptance" in out


def test_arguments_go_to_pytest_alone(commands: list[list[str]]) -> None:
    """./run test -k word runs no checks."""
    bootstrap.run_tests(["-k", "word"])

    assert commands == [["-m", "pytest", "-k", "word"]]


def test_a_failing_check_fails_the_run_but_stops_nothing(
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All results are wanted, not the first bad one."""
    monkeypatch.setattr(bootstrap, "CHECKS", (("mypy", ["-m", "mypy"]),))

    assert bootstrap.run_tests([]) == 1
    assert len(commands) == 4
    assert "failed: mypy" in capsys.readouterr().out


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_what_cannot_run_is_listed_and_fails_in_ci(
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str,
    status: int,
) -> None:
    """A missing server or program is named; with CI=true it is a failure."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(bootstrap, "has_server", lambda: False)
    monkeypatch.setattr(bootstrap, "PROGRAMS", (("no-such-program", "some tests"),))

    assert bootstrap.run_tests([]) == status
    out = capsys.readouterr().out
    assert "tests/integration  not run: no Redis server" in out
    assert "no-such-program    not run: some tests" in out
    assert ["-m", "pytest", "tests/unit"] in commands


def test_a_run_without_any_test_fails(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Green without a test would be a lie."""
    monkeypatch.setattr(subprocess, "call", lambda command, **_: 5 if "pytest" in command else 0)

    assert bootstrap.run_tests([]) == 1


# -- what is installed -----------------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["runtime", "test"])
def test_every_pin_has_hashes_and_nothing_names_a_place(layer: str) -> None:
    """The pinned files can be used anywhere: no address, no index, no path of a machine."""
    text = (ROOT / "requirements" / f"{layer}.txt").read_text()
    blocks = [block for block in text.split("\n") if "==" in block]

    assert len(blocks) > 30
    assert all(block.endswith("\\") for block in blocks)
    assert "://" not in text
    assert not any(word in text for word in ("--index", "--find-links", "--extra-index"))


def test_the_pins_fulfil_setup_cfg() -> None:
    """What setup.cfg asks for is pinned, within its bounds; the tests' file contains the other."""
    from configparser import ConfigParser

    from packaging.requirements import Requirement

    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    runtime, test = pins("runtime"), pins("test")
    extras = config["options.extras_require"]
    wanted = {
        "runtime": config["options"]["install_requires"]
        + "".join(extras[name] for name in ("embedded", "dify", "build")),
        "test": "".join(extras[name] for name in ("test", "dev", "otel", "profiling")),
    }

    for layer, found in (("runtime", runtime), ("test", test)):
        for line in filter(None, wanted[layer].splitlines()):
            requirement = Requirement(line)
            assert requirement.specifier.contains(found[requirement.name]), line
    assert runtime.items() <= test.items()


def pins(layer: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{layer}.txt").read_text().splitlines()
    pairs = [line.split(";")[0].rstrip(" \\").split("==") for line in lines if "==" in line]
    return {name: version.strip() for name, version in pairs}
