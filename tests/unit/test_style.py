"""What the house asks of every file and a linter does not check."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import bootstrap

ROOT = Path(bootstrap.__file__).parent
A_SCREEN = 60  # lines
WORDS_OF_A_SENTENCE = 3
# Put together here so that this file does not contain them.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(ro" + r"ot|wo" + r"rk|ho" + r"me/\w+)/")
SUFFIXES = frozenset(
    {".py", ".lua", ".md", ".cfg", ".toml", ".txt", ".yml", ".yaml", ".json", ".sh", ""}
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> tuple[Path, ...]:
    """Return every file of the project that is text."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = (ROOT / name for name in listed.split("\0") if name)
    return tuple(sorted(p for p in paths if p.suffix in SUFFIXES and p.is_file()))


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def python(*, tests: bool) -> list[Path]:
    """Return the Python files of the tests or of the product."""
    found = [path for path in files() if path.suffix == ".py"]
    return [path for path in found if (path.relative_to(ROOT).parts[0] == "tests") is tests]


def functions(path: Path) -> Iterator[Function]:
    """Yield every function of a file, nested ones too."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def length(function: Function) -> int:
    """Return the lines of a function's body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def where(path: Path, line: int = 1) -> str:
    """Return ``path:line`` as editors open it."""
    return f"{path.relative_to(ROOT)}:{line}"


def test_there_is_something_to_check() -> None:
    """The checks below would all pass on an empty list."""
    assert ROOT / "bootstrap.py" in python(tests=False)
    assert ROOT / "tests" / "unit" / "test_style.py" in python(tests=True)
    assert ROOT / "run" in files()


def test_every_module_says_what_it_is() -> None:
    """The first lines of a module tell which step it is and what it may not know."""
    silent = [
        where(path)
        for path in python(tests=False)
        if tree(path).body
        and len((ast.get_docstring(tree(path)) or "").split()) < WORDS_OF_A_SENTENCE
    ]

    assert silent == []


def test_functions_fit_on_a_screen() -> None:
    """A function that does not is more than one."""
    long = [
        f"{where(path, function.lineno)} {function.name}: {length(function)} lines"
        for path in (*python(tests=False), *python(tests=True))
        for function in functions(path)
        if length(function) > A_SCREEN
    ]

    assert long == []


def test_every_test_states_its_behaviour() -> None:
    """A test's docstring is one sentence that says what holds."""
    silent = [
        f"{where(path, function.lineno)} {function.name}"
        for path in python(tests=True)
        for function in functions(path)
        if function.name.startswith("test_")
        and len((ast.get_docstring(function) or "").split()) < WORDS_OF_A_SENTENCE
    ]

    assert silent == []


def test_every_test_can_fail() -> None:
    """A test asserts, expects an error, or calls a helper of its file that does."""
    toothless = []
    for path in python(tests=True):
        asserting = {f.name for f in functions(path) if asserts(f, frozenset())}
        # Helpers may call helpers; two rounds reach what people write.
        for _ in range(2):
            asserting |= {f.name for f in functions(path) if asserts(f, frozenset(asserting))}
        toothless += [
            f"{where(path, f.lineno)} {f.name}"
            for f in functions(path)
            if f.name.startswith("test_") and f.name not in asserting
        ]

    assert toothless == []


def asserts(function: Function, helpers: frozenset[str]) -> bool:
    """Tell whether a function asserts, or calls something whose name says that it checks."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in helpers or re.match(
                r"(raises|warns|fail|check|refuse|assert|expect|wait)", name
            ):
                return True
    return False


def test_a_broad_except_says_why() -> None:
    """Catching everything to keep it is rare, and the reason stands on the line or below."""
    unexplained = []
    for path in python(tests=False):
        lines = path.read_text(encoding="utf-8").splitlines()
        unexplained += [
            where(path, node.lineno)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.ExceptHandler)
            and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
            and not reraises(node)
            and not any("#" in line for line in lines[node.lineno - 1 : node.lineno + 1])
        ]

    assert unexplained == []


def reraises(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler only tidies up and lets the error go on."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_every_rule_that_is_off_has_a_reason() -> None:
    """An ignore in ruff.toml or a noqa in the code says why it is there."""
    config = (ROOT / "ruff.toml").read_text(encoding="utf-8")
    ignored = config.partition("ignore = [")[2].partition("\n]")[0].strip().splitlines()
    bare = [line.strip() for line in ignored if not re.search(r'"[A-Z0-9]+", +# \w', line)]
    assert len(ignored) > 10
    assert bare == []

    # A code after the colon is what makes an exception narrow.
    wide = [
        where(path, number)
        for path in (*python(tests=False), *python(tests=True))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"#\s*(noqa(?!: [A-Z])|type: ignore(?!\[))", line)
    ]
    assert wide == []


@pytest.mark.parametrize("pattern", [UNFINISHED, MACHINE_PATH], ids=["unfinished", "machine path"])
def test_nothing_unfinished_and_no_machine_in_it(pattern: re.Pattern[str]) -> None:
    """No marks of unfinished work, no path that exists on one machine only."""
    found = [
        f"{where(path, number)} {line.strip()[:80]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []


def test_the_scripts_can_be_started() -> None:
    """A checkout without the execute bits would be no one-command start."""
    for name in ("run", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111 == 0o111, name


def test_the_shell_scripts_parse() -> None:
    """The launcher is plain sh, CI's script is bash."""
    for shell, name in (("sh", "run"), ("bash", ".ci/run")):
        done = subprocess.run([shell, "-n", ROOT / name], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
