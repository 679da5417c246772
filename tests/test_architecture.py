"""What our documents say about the tree, and about each other, is so."""

import re
from pathlib import Path
from typing import get_args

import pytest

from copilot_runtime import __version__
from copilot_runtime.api.events import Event
from tests.documents import ARCHITECTURE, README, ROOT, between
from tests.in_one_test import in_one_test
from tests.test_layers import LAYERS

DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("examples/*/*.md")),
    *sorted(ROOT.glob("copilot_runtime/**/README.md")),
    ROOT / "tests" / "README.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "tests" / "conformance" / "DIVERGENCES.md",
]
PACKAGE = ROOT / "copilot_runtime"

MOST_LONG_FILES = 31
"""Files of the package with more than 450 lines. This number may only fall."""

_PATH = re.compile(r"`([\w.-]+/[\w./-]*|[\w-]+\.(?:py|md|yml|toml|graphql))`")
_MODULE = re.compile(r"\w+/[\w/]+\.py")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_every_path_named_in_the_architecture_exists() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    drawing = text.partition("```\n")[2].partition("```")[0]
    modules = _MODULE.findall(drawing)
    paths = [path for path in _PATH.findall(text) if "/" in path]

    assert [path for path in modules if not (PACKAGE / path).exists()] == []
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(paths) > 30
    assert len(modules) > 20


@pytest.mark.parametrize(
    ("name", "most"),
    [("ARCHITECTURE.md", 2500), ("CHANGELOG.md", 900), ("CONTRIBUTING.md", 700)],
)
def test_a_document_at_the_root_is_short_enough_to_be_read(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").split()) <= most


def test_every_room_and_extension_has_a_short_readme() -> None:
    folders = [*PACKAGE.iterdir(), *(PACKAGE / "extensions").iterdir()]
    expected = [
        folder / "README.md"
        for folder in folders
        if (folder / "__init__.py").exists() and folder.name not in {"extensions", "knowledge"}
    ]
    expected += [PACKAGE / "extensions" / "knowledge" / "README.md", ROOT / "tests" / "README.md"]
    assert [path for path in expected if not path.exists()] == []
    long = [path for path in PACKAGE.rglob("README.md") if path.read_text("utf-8").count("\n") > 40]
    assert long == []


def test_few_files_are_long() -> None:
    lines = {path: path.read_text("utf-8").count("\n") for path in PACKAGE.rglob("*.py")}
    long = sorted(str(path.relative_to(PACKAGE)) for path in lines if lines[path] > 450)
    assert len(long) <= MOST_LONG_FILES, long
    assert max(lines.values()) <= 800


def test_the_layers_are_those_the_imports_are_held_to() -> None:
    table = between(ARCHITECTURE.read_text(encoding="utf-8"), "layers")
    rows = re.findall(r"^ *(\d+)  (.+?)(?:   .*)?$", table, re.MULTILINE)
    assert [set(names.split()) for _, names in rows] == LAYERS
    assert [int(number) for number, _ in rows] == [*reversed(range(len(LAYERS)))]


def test_the_glossary_is_short_enough_to_be_learned() -> None:
    table = between(ARCHITECTURE.read_text(encoding="utf-8"), "glossary")
    terms = re.findall(r"^\| ([\w-]+) \| [^|]+ \|$", table, re.MULTILINE)
    assert terms[0] == "word"
    assert len({*terms[1:]}) == len(terms[1:]) == len(table.strip().splitlines()) - 2 <= 23


def test_the_words_are_the_events_of_the_code() -> None:
    table = between(ARCHITECTURE.read_text(encoding="utf-8"), "events")
    events = [event.__name__ for event in get_args(Event)]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(events)


@in_one_test("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    local = [link for link in _LINK.findall(text) if not re.match(r"\w+:", link)]
    assert [link for link in local if not _leads_somewhere(document, link)] == []


def _leads_somewhere(document: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (document.parent / path).resolve() if path else document
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(document: Path) -> set[str]:
    """Return the names GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## ([\d.]+)", text, re.MULTILINE)[0] == __version__


def test_the_readme_shows_every_example() -> None:
    text = README.read_text(encoding="utf-8")
    examples = [path.name for path in sorted((ROOT / "examples").iterdir()) if path.is_dir()]
    assert [name for name in examples if f"(examples/{name}/" not in text] == []
