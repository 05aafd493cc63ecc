"""The rules of Dify's daemon and SDK: each one is noticed, where it is broken, and nothing else."""

from __future__ import annotations

import pytest

from async_nodes.dify.rules import Finding, check
from tests.unit.dify_sample import sample

M, P, T, G, E = (
    "manifest.yaml",
    "provider/sample.yaml",
    "tools/say.yaml",
    "group/sample.yaml",
    "endpoints/hear.yaml",
)

# File, what is replaced in it, by what, and the place that is named for it, there or elsewhere.
BROKEN = [
    (M, "author: somebody", "author: Somebody", (M, "author")),
    (M, "name: sample", "name: Sam ple", (M, "name")),
    (M, "version: 0.1.0", "version: '0.1'", (M, "version")),
    (M, "type: plugin", "type: bundle", (M, "type")),
    (M, "en_US: Sample, ", "", (M, "label")),
    (M, "en_US: A sample", f"en_US: {'x' * 1024}", (M, "description.en_US")),
    (M, "memory: 268435456", "memory: lots", (M, "resource.memory")),
    (M, "size: 1048576", "size: 1023", (M, "resource.permission.storage.size")),
    (M, "size: 1048576", "size: 1073741825", (M, "resource.permission.storage.size")),
    (M, "amd64, arm64", "riscv", (M, "meta.arch[0]")),
    (M, "language: python", "language: go", (M, "meta.runner.language")),
    (M, "2026-11-30T00:00:00Z", "yesterday", (M, "created_at")),
    (M, "icon: icon.svg", "icon: other.svg", (M, "icon")),
    (M, "meta:", "tags: [weird]\nmeta:", (M, "tags[0]")),
    (M, "meta:", "privacy: PRIVACY.md\nmeta:", (M, "privacy")),
    (M, "meta:", "repo: somewhere\nmeta:", (M, "repo")),
    (M, "tools: [provider/sample.yaml]", "triggers: [t.yaml]", (M, "plugins.triggers")),
    (M, "tools: [provider/sample.yaml]", "models: [m.yaml]", (M, "plugins.models")),
    (
        M,
        "[provider/sample.yaml]",
        "[provider/sample.yaml, provider/sample.yaml]",
        (M, "plugins.tools"),
    ),
    (M, "provider/sample.yaml", "provider/nowhere.yaml", ("provider/nowhere.yaml", "")),
    (M, "entrypoint: main", "entrypoint: start", ("start.py", "")),
    (M, "label: {", "label: {{", (M, "")),
    (M, "author: somebody", "author: 0b5c7f0e-7f0a-4c55-9d0c-3f6a8f6f2b11", (M, "author")),
    (M, "meta:", "version: 0.2.0\nmeta:", (M, "")),
    (M, "meta:", "1: odd\nmeta:", (M, "")),
    (M, "meta:", "odd: .nan\nmeta:", (M, "")),
    (M, "meta:", "odd: !!binary aGk=\nmeta:", (M, "")),
    (M, "meta:", "odd: &odd [*odd]\nmeta:", (M, "")),
    (M, "meta:", f"odd: {'[' * 100}{']' * 100}\nmeta:", (M, "")),
    (M, "meta:", f"odd: {'[' * 5000}\nmeta:", (M, "")),
    (P, "type: secret-input", "type: any", (P, "credentials_for_provider.key.type")),
    (
        P,
        "type: secret-input",
        "scope: llm, type: secret-input",
        (P, "credentials_for_provider.key.scope"),
    ),
    (
        P,
        "type: secret-input",
        "scope: workflow & llm, type: app-selector",
        (P, "credentials_for_provider.key.scope"),
    ),
    (
        P,
        "type: secret-input",
        f"options: [{{value: {'x' * 128}, label: {{en_US: x, zh_Hans: x}}}}], type: select",
        (P, "credentials_for_provider.key.options[0].value"),
    ),
    (P, "tools: [tools/say.yaml]", "tools: []", (P, "tools")),
    (P, "tools/say.yaml", "tools/nowhere.yaml", ("tools/nowhere.yaml", "")),
    (P, "type: secret-input", "type: password", (P, "credentials_for_provider.key.type")),
    (P, "icon: icon.svg", "icon: other.svg", (P, "identity.icon")),
    (P, "source: provider/sample.py", "source: provider/nowhere.py", (P, "extra.python.source")),
    (T, "type: select", "type: choice", (T, "parameters[0].type")),
    (T, "form: form", "form: panel", (T, "parameters[0].form")),
    (T, "default: loud", "default: shrill", (T, "parameters[0].default")),
    (T, "default: loud", "multiple: true\n    default: loud", (T, "parameters[0].default")),
    (T, "type: select", "multiple: true\n    type: string", (T, "parameters[0].multiple")),
    (T, "name: say", "name: say it", (T, "identity.name")),
    (T, "llm: Says it", "llm: ''", (T, "description.llm")),
    (T, "{type: object, p", "{type: array, p", (T, "output_schema.type")),
    (G, "endpoints/hear.yaml", "endpoints/nowhere.yaml", ("endpoints/nowhere.yaml", "")),
    (E, "method: POST", "method: PATCH", (E, "method")),
    (E, "path: /hear", "path: hear", (E, "path")),
]


def test_a_sound_plugin_has_no_finding() -> None:
    """Not even advice."""
    assert check(sample()) == []


@pytest.mark.parametrize(("file", "old", "new", "place"), BROKEN)
def test_what_is_broken_is_named(file: str, old: str, new: str, place: tuple[str, str]) -> None:
    """The finding has the file and the place; nothing unrelated is reported."""
    files = sample()
    text = files[file].decode()
    assert old in text
    files[file] = text.replace(old, new, 1).encode()

    found = check(files)

    assert place in [(one.file, one.where) for one in found if not one.advice], found
    assert {one.file for one in found if not one.advice} <= {place[0], file, M}


@pytest.mark.parametrize(
    ("type", "scope"),
    [
        ("app-selector", "workflow"),
        ("app-selector", "chat & all"),
        ("model-selector", "llm&vision"),
    ],
)
def test_a_scope_of_its_type_is_sound(type: str, scope: str) -> None:  # noqa: A002
    """Words that the type knows, joined as the daemon splits them."""
    files = sample()
    said = f"scope: {scope}, type: {type}"
    files[P] = files[P].decode().replace("type: secret-input", said).encode()

    assert check(files) == []


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("keys/mine.pem", b"-----BEGIN RSA PRIVATE KEY-----\n"),
        ("a.txt", b"x\n-----BEGIN PRIVATE KEY-----\n"),
        (".env", b"KEY=1"),
        (".git/HEAD", b"ref"),
    ],
)
def test_what_should_not_be_given_away_is_advice(path: str, content: bytes) -> None:
    """A daemon would take it all the same."""
    found = check({**sample(), path: content})

    assert [(one.file, one.advice) for one in found] == [(path, True)]


@pytest.mark.parametrize(("content", "sound"), [(b"{}", True), (b"[]", False), (b"{", False)])
def test_a_file_of_verification_is_json(content: bytes, sound: bool) -> None:  # noqa: FBT001
    """The daemon reads it before the signature, and fails at anything else."""
    assert (check({**sample(), ".verification.dify.json": content}) == []) is sound


@pytest.mark.parametrize(
    "gone", ["README.md", "main.py", "requirements.txt", "_assets/icon.svg", "tools/say.py", M]
)
def test_what_is_missing_is_named(gone: str) -> None:
    """A package without it would be refused, or not start."""
    files = sample()
    del files[gone]

    errors = [one for one in check(files) if not one.advice]

    assert any(gone in f"{one.file} {one.text}" for one in errors), errors


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def say(): ...\n", "none"),
        ("from dify_plugin import Tool\nclass A(Tool): ...\nclass B(Tool): ...\n", "2 (A, B)"),
        ("from dify_plugin import Tool\nfrom tools.base import Base\nclass A(Tool): ...\n", "Base"),
    ],
)
def test_a_source_shows_one_class(source: str, says: str) -> None:
    """The SDK refuses a module that shows none or several, imported ones counted."""
    files = sample()
    files["tools/base.py"] = b"from dify_plugin import Tool\nclass Base(Tool): ...\n"
    files["tools/say.py"] = source.encode()

    (one,) = [one for one in check(files) if not one.advice]

    assert one.file == "tools/say.py"
    assert says in one.text


def test_a_source_that_does_not_parse_is_named() -> None:
    """With its line."""
    files = sample()
    files["tools/say.py"] = b"\nclass:\n"

    assert [one[:2] for one in check(files)] == [("tools/say.py", "line 2")]


def test_names_are_unique() -> None:
    """Two tools of one name: Dify would show one."""
    files = sample()
    files[P] = files[P].replace(b"[tools/say.yaml]", b"[tools/say.yaml, tools/two.yaml]")
    files["tools/two.yaml"] = files[T]

    assert [one.file for one in check(files)] == ["tools/two.yaml"]


def test_what_has_no_chinese_is_advice() -> None:
    """It would be installed all the same."""
    files = sample()
    files[T] = files[T].replace(", zh_Hans: 方式".encode(), b"")
    del files["readme/README_zh_Hans.md"]

    assert check(files) == [
        Finding("readme/README_zh_Hans.md", "", "a README in Chinese has its place here", True),
        Finding(T, "parameters[0].label", "has no zh_Hans", True),
    ]
