"""The pages in docs/ against what they describe: catalogue, settings, routes, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import settings
from async_nodes.access.openapi.document import document as openapi
from async_nodes.nodes.registry import BUILT_IN, registry
from async_nodes.settings import OUR_TYPES
from docs import generate_metrics
from docs.generate_errors import PAGE, document

ROOT = Path(settings.__file__).parent
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
AREAS = {path.name: path.read_text("utf-8") for path in ROOT.glob("docs/api/[!A-Z]*.md")}
METHODS = {"get", "post", "put", "delete", "patch"}
LINK = re.compile(r"\]\(([^)\s]+)\)")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def anchor(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Return the anchors of a page."""
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def test_the_page_of_errors_is_that_of_the_catalogue() -> None:
    """docs/errors.md is what docs/generate_errors.py makes; run that after a change."""
    assert PAGE.read_text(encoding="utf-8") == document()


def test_the_page_of_metrics_is_that_of_the_catalogue() -> None:
    """docs/metrics.md is what docs/generate_metrics.py makes; run that after a change."""
    made = generate_metrics.document()
    assert generate_metrics.PAGE.read_text(encoding="utf-8") == made


@pytest.mark.parametrize("name", ["ASYNC_NODES", "CELERY"])
def test_every_setting_is_described(name: str) -> None:
    """Each name of settings.py has a place in a table of docs/configuration.md."""
    described = set(re.findall(r"`([A-Z_]+)`", page("docs/configuration.md")))
    declared = {word for word in vars(settings) if word.startswith(name + "_")}

    assert declared
    assert declared - described == set()


def test_defaults_are_described_as_they_are() -> None:
    """The table of our own settings shows the defaults of settings.py; none stands for none."""
    row = re.compile(r"^\| `(ASYNC_NODES_\w+)` \| (.*?) \|", re.MULTILINE)
    rows = dict(row.findall(page("docs/configuration.md")))
    declared = {name: settings.DECLARED[name] for name in rows}
    del declared["ASYNC_NODES_DATA_DIR"]  # depends on where it is installed
    shown = {
        name: f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
        for name, value in declared.items()
    }

    assert {name: rows[name] for name in declared} == {
        name: "none" if declared[name] in (None, ()) else text for name, text in shown.items()
    }


def test_no_setting_is_described_that_is_none() -> None:
    """A name of ours in any page is one that the settings know, or stands for a mistake there."""
    wrong = {"ASYNC_NODES_PROT"}
    found = {
        name for path in PAGES for name in re.findall(r"\bASYNC_NODES_[A-Z_]+\b", path.read_text())
    }

    assert found - set(OUR_TYPES) <= wrong


def test_every_route_has_a_section() -> None:
    """Each method of each path has a heading in a page of docs/api, and the index leads there."""
    index = page("docs/api/README.md")
    missing = []
    for path, item in openapi([])["paths"].items():
        for method in METHODS & item.keys():
            written = path.replace("{", "<").replace("}", ">")
            route = f"{method.upper()} {written}"
            homes = [name for name, text in AREAS.items() if f"\n## `{route}`\n" in text]
            row = f"[`{route}`]({''.join(homes)}#{anchor(route)})"
            if len(homes) != 1 or row not in index:
                missing.append(row)

    assert missing == []


def test_every_field_of_a_task_is_described() -> None:
    """Each member of a request and of a record is in docs/api/tasks.md."""
    schemas = openapi([])["components"]["schemas"]
    described = set(re.findall(r"`(\w+)`", AREAS["tasks.md"]))

    for name in ("SubmitRequest", "Task"):
        assert set(schemas[name]["properties"]) - described == set(), name


def test_every_built_in_node_is_described() -> None:
    """Each node that is there without any setting is in the table of docs/nodes.md."""
    names = [name for name in registry(()) if registry(())[name].function.__module__ in BUILT_IN]

    assert names
    assert [name for name in names if f"`{name}`" not in page("docs/nodes.md")] == []


@pytest.mark.parametrize(
    ("name", "heading"), [("README.md", "## Figures"), ("README.zh-CN.md", "## 性能数字")]
)
def test_figures_are_those_of_the_benchmarks(name: str, heading: str) -> None:
    """A figure in a README is in docs/benchmarks.md too, where it was measured."""
    section = page(name).partition(heading)[2].partition("\n## ")[0]
    quoted = set(re.findall(r"\d+\.\d+", section))
    measured = set(re.findall(r"\d+\.\d+", page("docs/benchmarks.md")))

    assert quoted
    assert quoted - measured == set()


def test_the_translation_has_all_of_the_readme() -> None:
    """The Chinese README has as many parts, rows and points, the same links and figures."""
    english, chinese = page("README.md"), page("README.zh-CN.md")
    for shape in (r"^## ", r"^\s*\| ", r"^\* "):
        in_both = [len(re.findall(shape, text, re.MULTILINE)) for text in (english, chinese)]
        assert in_both[0] == in_both[1] > 0, shape

    for kind in (LINK, re.compile(r"\d+\.\d+")):
        said = [set(kind.findall(text)) for text in (english, chinese)]
        said = [found - {"README.md", "README.zh-CN.md"} for found in said]
        assert said[0] == said[1]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_leads_nowhere(path: Path) -> None:
    """A link to a file of the project finds it, and a heading in it where it names one."""
    broken = []
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        if "://" in link:
            continue
        file = path.parent / target if target else path
        if not file.exists() or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            broken.append(link)

    assert broken == []
