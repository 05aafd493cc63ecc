"""Check a plugin by the rules of Dify's daemon and SDK, before one of them refuses it. Pure."""

from __future__ import annotations

import ast
import json
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from async_nodes.dify import shapes
from async_nodes.dify.files import Files

BASES: Final = {"provider": "ToolProvider", "tool": "Tool", "endpoint": "Endpoint"}
MOST_DEPTH: Final = 60
VERIFICATION: Final = ".verification.dify.json"
ALONE: Final = ("models", "agent_strategies", "datasources", "triggers")
"""Kinds of plugins that the daemon refuses beside any other kind."""


class Finding(NamedTuple):
    """Hold one thing that is wrong, or could be better.

    Attributes:
        file: its path in the plugin.
        where: the place in it, like ``parameters[2].form``; may be empty.
        text: what is wrong.
        advice: it would be installed all the same.

    """

    file: str
    where: str
    text: str
    advice: bool = False


@dataclass(slots=True)
class _Part:
    """A YAML file of the plugin: what kind it is, what it says."""

    kind: str
    path: str
    said: dict[str, Any]


def check(files: Files) -> list[Finding]:
    """Return what is wrong with a plugin; no error among it means that a daemon takes it."""
    found: list[Finding] = []
    manifest = _read(files, "manifest.yaml", shapes.MANIFEST, found)
    parts = list(_parts(files, manifest, found)) if manifest else []
    if manifest:
        found += _kinds(manifest)
        found += _icons(files, manifest, parts)
    for part in parts:
        found += _source(files, part)
        found += _parameters(part) if part.kind == "tool" else []
    found += _names(parts)
    found += [scope for part in parts for scope in _scopes(part.path, part.said)]
    found += _beside(files, manifest)
    found += _secrets(files)
    found += [advice for part in parts for advice in _languages(part.path, part.said)]
    return found


# -- the YAML files --------------------------------------------------------------------------------


def _read(
    files: Files, path: str, shape: shapes.Schema, found: list[Finding]
) -> dict[str, Any] | None:
    """Return what a YAML file says, or None after noting why it cannot be used."""
    import jsonschema_rs
    import yaml

    if path not in files:
        found.append(Finding(path, "", "there is no such file in the package"))
        return None
    try:
        said: Any = yaml.load(files[path], Loader=_loader())  # noqa: S506 - a safe one
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        found.append(Finding(path, "", f"is no YAML: {' '.join(str(error).split())}"))
        return None
    except RecursionError:
        found.append(Finding(path, "", "is nested too deeply"))
        return None
    if not isinstance(said, dict):
        found.append(Finding(path, "", "must hold names with values"))
        return None
    if (odd := _odd(said)) is not None:
        found.append(Finding(path, "", odd))
        return None
    wrong = jsonschema_rs.validator_for(shape).iter_errors(said)
    found += [Finding(path, _place(one.instance_path), one.message) for one in wrong]
    return said


def _odd(said: Any, depth: int = 0) -> str | None:
    """Return what a value holds that the SDK could not send to the daemon as JSON."""
    if depth > MOST_DEPTH:
        return "is nested too deeply, or within itself"
    if isinstance(said, dict):
        for key in said:
            if not isinstance(key, str):
                return f"the name {key!r} must be a text: put it in quotes"
    elif not isinstance(said, list):
        finite = not isinstance(said, float) or math.isfinite(said)
        known = said is None or isinstance(said, str | bool | int | float)
        return None if known and finite else f"{said!r} is nothing that JSON has"
    below = (_odd(one, depth + 1) for one in (said.values() if isinstance(said, dict) else said))
    return next((one for one in below if one is not None), None)


def _loader() -> Any:
    """Return YAML's safe loader, as strict as the daemon's: no name twice, times as their text."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for place, key in enumerate(keys):
                if key in keys[:place] and key != "<<":
                    problem = f"the name {key!r} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return super().construct_mapping(node, deep=deep)

    Loader.yaml_implicit_resolvers = {
        first: [(tag, regexp) for tag, regexp in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _place(path: list[str | int]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _parts(files: Files, manifest: dict[str, Any], found: list[Finding]) -> Iterator[_Part]:
    plugins = _dict(manifest.get("plugins"))
    for path in _texts(plugins.get("tools")):
        yield from _family(files, path, ("provider", "tools", "tool"), found)
    for path in _texts(plugins.get("endpoints")):
        yield from _family(files, path, ("group", "endpoints", "endpoint"), found)


def _family(
    files: Files, path: str, kinds: tuple[str, str, str], found: list[Finding]
) -> Iterator[_Part]:
    """Yield a file that names others, and those."""
    kind, members, member_kind = kinds
    head = _read(files, path, _SHAPES[kind], found)
    if head is None:
        return
    yield _Part(kind, path, head)
    for member in _texts(head.get(members)):
        said = _read(files, member, _SHAPES[member_kind], found)
        if said is not None:
            yield _Part(member_kind, member, said)


_SHAPES: Final = {
    "provider": shapes.PROVIDER,
    "tool": shapes.TOOL,
    "group": shapes.GROUP,
    "endpoint": shapes.ENDPOINT,
}


# -- what one schema cannot say --------------------------------------------------------------------


def _kinds(manifest: dict[str, Any]) -> Iterator[Finding]:
    plugins = _dict(manifest.get("plugins"))
    given = [kind for kind in ("tools", "endpoints", *ALONE) if plugins.get(kind)]
    if _is_uuid(str(manifest.get("author"))):
        text = "must be no UUID: the daemon takes such a plugin for one that is being debugged"
        yield Finding("manifest.yaml", "author", text)
    if not given:
        yield Finding("manifest.yaml", "plugins", "names nothing: no tools, no endpoints, no other")
    for kind in ALONE:
        if kind in given and len(given) > 1:
            yield Finding("manifest.yaml", f"plugins.{kind}", "must be the only kind in a plugin")
    for kind in ("tools", "endpoints"):
        if len(_texts(plugins.get(kind))) > 1:
            text = "names several files, and the daemon keeps the last one only"
            yield Finding("manifest.yaml", f"plugins.{kind}", text)


def _icons(files: Files, manifest: dict[str, Any], parts: list[_Part]) -> Iterator[Finding]:
    named = [("manifest.yaml", key, manifest.get(key)) for key in ("icon", "icon_dark")]
    named += [
        (part.path, f"identity.{key}", _dict(part.said.get("identity")).get(key))
        for part in parts
        if part.kind == "provider"
        for key in ("icon", "icon_dark")
    ]
    for path, where, icon in named:
        if isinstance(icon, str) and icon and f"_assets/{icon}" not in files:
            yield Finding(path, where, f"there is no _assets/{icon}")


def _source(files: Files, part: _Part) -> Iterator[Finding]:
    """Check the Python file of a provider, tool or endpoint: the SDK loads its one subclass."""
    base = BASES.get(part.kind)
    source = _dict(_dict(part.said.get("extra")).get("python")).get("source")
    if base is None or not isinstance(source, str):
        return
    if source not in files:
        yield Finding(part.path, "extra.python.source", f"there is no {source}")
        return
    try:
        classes = _classes(files, source, base)
    except SyntaxError as error:
        yield Finding(source, f"line {error.lineno}", f"is no Python: {error.msg}")
        return
    if len(classes) != 1:
        there = f"{len(classes)} ({', '.join(classes)})" if classes else "none"
        text = f"must show exactly one subclass of {base}, its imports counted; there are {there}"
        yield Finding(source, "", text)


def _classes(files: Files, source: str, base: str) -> list[str]:
    """Return the subclasses of an SDK class that a module defines or imports from the plugin."""
    names: list[str] = []
    for statement in ast.parse(files[source]).body:
        if isinstance(statement, ast.ClassDef):
            if any(base in (_name(one), _name(one).rpartition(".")[2]) for one in statement.bases):
                names.append(statement.name)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            other = statement.module.replace(".", "/") + ".py"
            if other in files and other != source:
                theirs = _classes(files, other, base)
                names += [one.name for one in statement.names if one.name in theirs]
    return names


def _name(node: ast.expr) -> str:
    return ast.unparse(node)


def _parameters(tool: _Part) -> Iterator[Finding]:
    given = [one for one in _list(tool.said.get("parameters")) if isinstance(one, dict)]
    names = [str(one.get("name")) for one in given]
    for number, one in enumerate(given):
        where = f"parameters[{number}]"
        if names.index(names[number]) != number:
            yield Finding(tool.path, f"{where}.name", f"{names[number]!r} is there twice")
        values = [_dict(option).get("value") for option in _list(one.get("options"))]
        default = one.get("default")
        if one.get("type") == "select" and not values:
            yield Finding(tool.path, f"{where}.options", "a select needs some")
        for value in default if isinstance(default, list) else [default]:
            if values and value is not None and value not in values:
                yield Finding(tool.path, f"{where}.default", f"{value!r} is none of the options")
        several = one.get("type") in ("select", "dynamic-select")
        if one.get("multiple") and not several:
            yield Finding(tool.path, f"{where}.multiple", "is for select and dynamic-select only")
        if (
            several
            and default is not None
            and isinstance(default, list) != bool(one.get("multiple"))
        ):
            text = "must be a list exactly where multiple is true"
            yield Finding(tool.path, f"{where}.default", text)


def _scopes(path: str, said: Any, where: str = "") -> Iterator[Finding]:
    """Check each scope of a parameter or setting: of three types, words joined by ``&``."""
    if isinstance(said, dict):
        scope, kind = said.get("scope"), said.get("type")
        if isinstance(scope, str) and "type" in said and "label" in said:
            known = shapes.SCOPES.get(str(kind), ())
            wrong = [word for word in scope.split("&") if word.strip() not in known]
            if wrong:
                text = f"{wrong[0]!r} is no scope of {kind}: " + (", ".join(known) or "it has none")
                yield Finding(path, f"{where}.scope".removeprefix("."), text)
        for key, value in said.items():
            yield from _scopes(path, value, f"{where}.{key}")
    elif isinstance(said, list):
        for number, value in enumerate(said):
            yield from _scopes(path, value, f"{where}[{number}]")


def _secrets(files: Files) -> Iterator[Finding]:
    """Look for what should not be given away with a plugin."""
    for path, content in files.items():
        if path.startswith(".git/") or path == ".env":
            yield Finding(path, "", "does not belong into a package: see .difyignore", advice=True)
        elif b"PRIVATE KEY-----" in content[:4096]:
            yield Finding(path, "", "holds a private key: see .difyignore", advice=True)
    if (said := files.get(VERIFICATION)) is not None and not _is_object(said):
        yield Finding(VERIFICATION, "", "must be a JSON object, or the daemon reads no signature")


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def _is_uuid(text: str) -> bool:
    try:
        return bool(uuid.UUID(text))
    except ValueError:
        return False


def _names(parts: list[_Part]) -> Iterator[Finding]:
    seen: dict[tuple[str, str], str] = {}
    for part in parts:
        name = str(_dict(part.said.get("identity")).get("name", ""))
        if part.kind == "endpoint":
            name = f"{part.said.get('method')} {part.said.get('path')}"
        first = seen.setdefault((part.kind, name), part.path) if name else part.path
        if first != part.path:
            yield Finding(part.path, "", f"{name!r} is in {first} too")


def _beside(files: Files, manifest: dict[str, Any] | None) -> Iterator[Finding]:
    """Check the files that no YAML file names."""
    runner = _dict(_dict(_dict(manifest).get("meta")).get("runner"))
    entry = f"{str(runner.get('entrypoint', 'main')).replace('.', '/')}.py"
    for path in ("README.md", entry):
        if path not in files:
            yield Finding(path, "", "a plugin must have it")
    if not any(path.startswith("_assets/") for path in files):
        yield Finding(
            "_assets/", "", "a plugin must have this folder, and the SDK does not start without"
        )
    if "requirements.txt" not in files and "pyproject.toml" not in files:
        yield Finding("requirements.txt", "", "nothing would be installed, not even dify-plugin")
    privacy = _dict(manifest).get("privacy")
    if (
        isinstance(privacy, str)
        and "://" not in privacy
        and privacy.removeprefix("./") not in files
    ):
        yield Finding("manifest.yaml", "privacy", f"there is no {privacy}")
    if "readme/README_zh_Hans.md" not in files:
        text = "a README in Chinese has its place here"
        yield Finding("readme/README_zh_Hans.md", "", text, advice=True)


def _languages(path: str, said: Any, where: str = "") -> Iterator[Finding]:
    """Yield the labels that have no Chinese."""
    if isinstance(said, dict):
        if "en_US" in said and not said.get("zh_Hans"):
            yield Finding(path, where.removeprefix("."), "has no zh_Hans", advice=True)
        for key, value in said.items():
            yield from _languages(path, value, f"{where}.{key}")
    elif isinstance(said, list):
        for number, value in enumerate(said):
            yield from _languages(path, value, f"{where}[{number}]")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [one for one in _list(value) if isinstance(one, str)]
