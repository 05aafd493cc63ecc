"""What tests/conftest.py promises: tiers, a clean environment, and no silent skip in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import bootstrap

ROOT = Path(bootstrap.__file__).parent


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return a folder with our conftest and setup.cfg and nothing else."""
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    return tmp_path


def outcome(suite: Path, text: str, *, ci: bool, place: str = "unit/test_it.py") -> tuple[int, str]:
    """Run one module of tests as a suite of its own; return the status and what was printed."""
    path = suite / "tests" / place
    path.write_text(dedent(text))
    environ = {**os.environ, "CI": "true" if ci else "", "ASYNC_NODES_PORT": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        command, cwd=suite, env=environ, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "import pytest\ndef test_it():\n    pytest.skip('no server')\n",
        "import pytest\n@pytest.mark.needs('no-such-program')\ndef test_it(): pass\n",
        "import pytest\npytest.importorskip('no_such_module')\ndef test_it(): pass\n",
    ],
    ids=["skip", "needs", "module"],
)
def test_a_skip_is_a_failure_in_ci_only(suite: Path, text: str) -> None:
    """A missing service or program is named either way, and ends CI."""
    status, out = outcome(suite, text, ci=False)
    assert status in {0, 5}
    assert "1 skipped" in out

    status, out = outcome(suite, text, ci=True)
    assert status in {1, 2}
    assert "skipped, which CI=true does not allow" in out


def test_an_optional_test_may_be_skipped_in_ci(suite: Path) -> None:
    """What is opt-in says so in its reason; an expected failure is no skip."""
    text = """
        import pytest
        def test_it(): pytest.skip("optional: a real model")
        @pytest.mark.xfail
        def test_not_yet(): assert False
        """

    status, out = outcome(suite, text, ci=True)
    assert status == 0
    assert "1 skipped, 1 xfailed" in out


def test_a_persons_settings_do_not_reach_a_test(suite: Path) -> None:
    """ASYNC_NODES_* and CELERY_* are gone before anything is imported."""
    text = """
        import os
        LEFT = [name for name in os.environ if name.startswith(("ASYNC_NODES_", "CELERY_"))]
        def test_it(): assert LEFT == []
        """

    assert outcome(suite, text, ci=False)[0] == 0


def test_a_test_outside_the_tiers_is_refused(suite: Path) -> None:
    """A new folder is a decision, not an accident that ./run test never visits."""
    (suite / "tests" / "misc").mkdir()
    status, _ = outcome(suite, "def test_it(): pass\n", ci=False, place="misc/test_it.py")

    assert status == 4
