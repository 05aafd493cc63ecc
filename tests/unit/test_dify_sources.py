"""The plugin's sources and the sample apps agree with each other, with the SDK and with Dify."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from async_nodes.dify.files import of_folder
from async_nodes.dify.rules import check
from async_nodes.version import __version__

DIFY = Path(__file__).parents[2] / "dify"
PLUGIN = DIFY / "async_nodes"
APPS = sorted((DIFY / "apps").glob("*.yml"))
TOOLS: dict[str, dict[str, Any]] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((PLUGIN / "tools").glob("*.yaml"))
}
OURS = {"text": "string", "json": "array[object]", "files": "array[file]"}
"""What every tool node of Dify gives beside the tool's own variables."""


def test_the_plugin_is_sound() -> None:
    """No error, and no advice left."""
    assert check(of_folder(PLUGIN)) == []


def test_the_plugin_has_our_version() -> None:
    """They are released together."""
    manifest = yaml.safe_load((PLUGIN / "manifest.yaml").read_text())

    assert manifest["version"] == __version__
    assert f"{manifest['author']}/{manifest['name']}" == "async-nodes/async_nodes"


def test_every_tool_is_listed() -> None:
    """In the provider, each under its own name."""
    provider = yaml.safe_load((PLUGIN / "provider" / "async_nodes.yaml").read_text())

    assert {Path(path).stem for path in provider["tools"]} == set(TOOLS)
    assert all(tool["identity"]["name"] == name for name, tool in TOOLS.items())


def test_a_parameter_is_the_same_wherever_it_is() -> None:
    """Its words, its bounds and its options; only `on_failure` differs, in its default."""
    seen: dict[str, Any] = {}
    for tool in TOOLS.values():
        for given in tool["parameters"]:
            same = {key: value for key, value in given.items() if key != "default"}
            assert seen.setdefault(given["name"], same) == same, given["name"]


def test_the_tools_about_one_task_give_the_same() -> None:
    """So an app can put one in place of another."""
    outputs = [tool["output_schema"] for name, tool in TOOLS.items() if name != "run_batch"]

    assert all(output == outputs[0] for output in outputs)


def test_dify_alone_is_needed() -> None:
    """The package installs nothing but Dify's SDK."""
    lines = (PLUGIN / "requirements.txt").read_text().split()

    assert [re.split("[<>=]", line)[0] for line in lines] == ["dify-plugin"]


def test_nothing_of_ours_is_imported() -> None:
    """The plugin runs where async_nodes is not installed."""
    found = [
        path.name
        for path in PLUGIN.rglob("*.py")
        if re.search(r"^\s*(from|import) async_nodes", path.read_text(), re.MULTILINE)
    ]

    assert found == []


# -- the sample apps -------------------------------------------------------------------------------


class App:
    """A sample app, as far as its parts must fit together."""

    def __init__(self, path: Path) -> None:
        self.whole = yaml.safe_load(path.read_text(encoding="utf-8"))
        graph = self.whole["workflow"]["graph"]
        self.nodes = {node["id"]: node for node in graph["nodes"]}
        self.edges = graph["edges"]

    def outputs(self, node: str) -> set[str]:
        """Return the variables that a node gives."""
        data = self.nodes[node]["data"]
        kind = data["type"]
        if kind == "start":
            return {one["variable"] for one in data["variables"]}
        if kind == "tool":
            return {*TOOLS[data["tool_name"]]["output_schema"]["properties"], *OURS}
        if kind == "code":
            return set(data["outputs"])
        if kind == "loop":
            return {one["label"] for one in data["loop_variables"]}
        return {"item", "index", "output"} if kind == "iteration" else set()

    def before(self, node: str) -> set[str]:
        """Return the nodes that have run when a node begins, those it lies in among them."""
        sources = {edge["source"] for edge in self.edges if edge["target"] == node}
        parent = self.nodes[node].get("parentId")
        around = {parent} if parent else set()
        return set().union(sources, around, *(self.before(one) for one in sources | around))


@pytest.fixture(params=APPS, ids=lambda path: path.stem)
def app(request: pytest.FixtureRequest) -> App:
    return App(request.param)


def selectors(value: Any) -> Iterator[list[str]]:
    """Yield every reference to a variable, in selectors and in texts."""
    if isinstance(value, dict):
        for key, one in value.items():
            if isinstance(one, list) and (key == "value" or key.endswith("selector")):
                yield one
            else:
                yield from selectors(one)
    elif isinstance(value, list):
        for one in value:
            yield from selectors(one)
    elif isinstance(value, str):
        for name in re.findall(r"\{\{#([^#]+)#\}\}", value):
            yield name.split(".")


def test_there_is_an_app_for_each_way() -> None:
    """Wait, submit and poll, fan out."""
    assert [path.stem for path in APPS] == ["fan-out", "submit-and-poll", "wait"]


def test_an_app_is_one_of_dify(app: App) -> None:
    """The members that its import reads."""
    assert (app.whole["kind"], app.whole["app"]["mode"]) == ("app", "workflow")
    assert isinstance(app.whole["version"], str)
    assert [node["data"]["type"] for node in app.nodes.values()].count("start") == 1


def test_every_edge_joins_two_nodes(app: App) -> None:
    """And says which kinds they are."""
    for edge in app.edges:
        kinds = [app.nodes[edge[side]]["data"]["type"] for side in ("source", "target")]
        assert kinds == [edge["data"]["sourceType"], edge["data"]["targetType"]]


def test_every_variable_is_there_when_it_is_read(app: App) -> None:
    """It is an output of a node that has run before, or one of Dify's own."""
    for name, node in app.nodes.items():
        inside = {one for one, other in app.nodes.items() if other.get("parentId") == name}
        known = app.before(name) | inside | {name}
        for first, *rest in selectors(node["data"]):
            assert first == "sys" or (first in known and rest[0] in app.outputs(first)), (
                name,
                rest,
            )


def test_every_tool_is_called_as_it_is_declared(app: App) -> None:
    """Parameters that exist, in their place, with values they take; the required ones given."""
    for node in app.nodes.values():
        data = node["data"]
        if data["type"] != "tool":
            continue
        assert data["provider_id"] == "async-nodes/async_nodes/async_nodes"
        declared = {one["name"]: one for one in TOOLS[data["tool_name"]]["parameters"]}
        given = {**data["tool_parameters"], **data["tool_configurations"]}
        assert {name for name, one in declared.items() if one["required"]} <= set(given)
        for name in data["tool_parameters"]:
            assert declared[name]["form"] == "llm", name
        for name, one in data["tool_configurations"].items():
            assert declared[name]["form"] == "form", name
            options = [option["value"] for option in declared[name].get("options", [])]
            assert not options or one["value"] in options, name
