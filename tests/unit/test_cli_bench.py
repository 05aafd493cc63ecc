from __future__ import annotations

import json
from pathlib import Path

import pytest

from async_nodes.cli.main import main
from async_nodes.cli.verbs import bench

SOURCE = """
import json, sys
open(sys.argv[sys.argv.index("--json") + 1], "w").write(json.dumps(sys.argv[1:]))
raise SystemExit(3)
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "benchmarks"
    (folder / "whole").mkdir(parents=True)
    (folder / "whole" / "__main__.py").write_text('"""Everything.\n\nAnd more."""\n')
    (folder / "chinese.json").write_text('{"whole": "全部。"}', encoding="utf-8")
    (folder / "first_token.py").write_text(SOURCE)
    (folder / "_shared.py").touch()
    monkeypatch.setattr(bench, "checkout", lambda _part: tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_benchmarks_are_listed(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name those of the checkout are listed with a line each, helpers are not."""
    assert main(["bench"]) == 0
    assert capsys.readouterr().out.splitlines() == ["first-token", "whole        Everything."]


def test_the_list_is_in_the_language_of_the_user(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chinese where there is a Chinese line, English where there is none."""
    monkeypatch.setattr(bench, "tr", lambda _english, chinese: chinese)

    assert bench.listing(checkout).splitlines() == ["first-token", "whole        全部。"]


def test_an_unknown_benchmark_is_refused(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is none is answered with the nearest one and the list."""
    assert main(["bench", "first-tokens"]) == 1
    said = capsys.readouterr().err
    assert "did you mean 'first-token'?" in said
    assert "There are: first-token, whole" in said


def test_a_benchmark_gets_its_options_and_its_status_counts(checkout: Path) -> None:
    """--json and everything else is handed on; the status comes back."""
    assert main(["bench", "first-token", "--json", "out.json", "--rounds", "2"]) == 3
    assert json.loads((checkout / "out.json").read_text()) == [
        "--json",
        "out.json",
        "--rounds",
        "2",
    ]


def test_a_benchmark_has_a_help_of_its_own(
    checkout: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What follows its name is the benchmark's own, --help too."""
    (checkout / "benchmarks" / "first_token.py").write_text("import sys; print(sys.argv[1:])")

    assert main(["bench", "first-token", "--help"]) == 0
    assert capfd.readouterr().out == "['--help']\n"
