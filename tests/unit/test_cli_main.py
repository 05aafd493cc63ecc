from __future__ import annotations

import subprocess
import sys

import pytest

from async_nodes.cli.main import main, needs_gevent
from async_nodes.cli.program import VERBS, program
from async_nodes.version import __version__

HEAVY = {"celery", "kombu", "flask", "gevent", "redis", "msgspec", "urllib3", "prometheus_client"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("serve --port 1", True),
        ("--debug serve", True),
        ("serve --processes 4", False),
        ("serve --port 1 --processes=4", False),
        ("worker --pool io", True),
        ("worker --concurrency 3 --pool=io", True),
        ("worker --pool cpu --pool io", True),
        ("worker --pool io --pool cpu", False),
        ("worker --pool=cpu", False),
        ("worker", False),
        ("worker --pool", False),
        ("dev", False),
        ("demo --once", False),
        ("run serve", False),
        ("run worker --pool io", False),
        ("--help", False),
        ("", False),
    ],
)
def test_only_the_web_and_the_io_pool_are_patched(line: str, *, expected: bool) -> None:
    """The decision for gevent is made from the bare arguments, for exactly two kinds of process."""
    assert needs_gevent(line.split()) is expected


def test_help_imports_nothing_heavy() -> None:
    """The help of the program answers at once because no verb's module is imported for it."""
    code = (
        "import sys; from async_nodes.cli.main import main; main(['--help']);"
        f"print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(verb in done.stdout for verb in VERBS)


# `serve` patches its process, and the model server's options are its own.
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in {"serve", "model-server"}])
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb has a help text of its own and ends with 0 after showing it."""
    assert main([verb, "--help"]) == 0
    assert "Usage: async-nodes " + verb in capsys.readouterr().out


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """``--version`` prints the package's version."""
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    "line", ["rum", "worker", "worker --pool gpu", "dev --port x", "run", "dev x"]
)
def test_wrong_use_ends_with_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong use is told with the usage line and exit status 2."""
    assert main(line.split()) == 2
    assert "Usage:" in capsys.readouterr().err


def test_a_mistyped_verb_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    """A verb that does not exist is answered with the nearest one."""
    main(["docter"])
    assert "did you mean 'doctor'?" in capsys.readouterr().err


def test_a_wrong_setting_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt setting ends with 1 and a sentence, without a traceback."""
    monkeypatch.setenv("ASYNC_NODES_PROT", "1")
    assert main(["run", "echo"]) == 1
    said = capsys.readouterr().err
    assert "did you mean ASYNC_NODES_PORT" in said
    assert "[unknown_setting]" in said
    assert "Traceback" not in said


def test_a_fault_of_ours_is_one_sentence_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unexpected exception is named in one line; ``--debug`` lets it through."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setattr(program, "main", broken)
    assert main(["run", "echo"]) == 1
    assert "unexpected ZeroDivisionError: broken on purpose" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "run", "echo"])


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt becomes the shell's own status for it."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "main", interrupted)
    assert main(["run", "echo"]) == 130


def test_output_that_nobody_reads_is_no_error() -> None:
    """Ending the reader, as ``| head`` does, causes no traceback."""
    line = f"{sys.executable} -m async_nodes.cli --help | true"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_who_looks_after_web_processes_stays_small() -> None:
    """It starts others and waits: what they are made of is not imported."""
    code = (
        "import sys, async_nodes.cli.verbs.serve, async_nodes.cli.web.keeper;"
        f"print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['redis']"  # to look for an embedded store
