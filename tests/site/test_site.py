"""The site of the documents can be built, is complete, and loads nothing from elsewhere."""

import re
from pathlib import Path

import pytest

from tests.documents import DOCS, README, between, generated_parts, page_name, pages

SECTIONS = [
    *(
        "Start",
        "Learn",
        "Models",
        "Agents",
        "Knowledge",
        "Assistants",
        "Data analyst",
        "Planner",
        "Scenarios",
        "Events",
        "Telemetry",
        "Access",
        "Run it",
        "Look up",
        "Why",
    ),
    "Extend",
]
_LOADED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=[\"']?([^\"'\s>]+)")


def test_every_page_is_built(site: Path) -> None:
    names = {path.relative_to(DOCS).with_suffix(".html") for path in pages() if path != README}
    assert [name for name in names if not (site / name).is_file()] == []


def test_the_sections_stand_in_the_order_in_which_one_learns(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    tabs = re.findall(r'md-tabs__link">\s*([^<]+?)\s*<', home)
    assert tabs == SECTIONS


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loaded = {
        address
        for page in site.rglob("*.html")
        for address in _LOADED.findall(page.read_text(encoding="utf-8"))
        if re.match(r"(?:\w+:)?//", address)
    }
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert (loaded, re.findall(r"url\([\"']?((?:https?:)?//[^)]+)", styles)) == (set(), [])


def test_pages_speak_of_code_as_of_code() -> None:
    person = re.compile(r"\b(?:doors?|wish(?:es)?|(?:is|are) told|hears?|believes?|asks whom)\b")
    found = [
        f"{page_name(path)}: {match[0]}"
        for path in pages()
        if path.name != "changes.md"
        for match in person.finditer(_written_by_hand(path))
    ]
    assert found == []


def _written_by_hand(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    for marker, _ in generated_parts(path):
        text = text.replace(between(text, marker), "")
    return text


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= 8_000


def test_the_readme_says_beside_unchanged_what_is_not_for_everybody() -> None:
    _, _, after = README.read_text(encoding="utf-8").partition("Unchanged CopilotKit applications")
    promise, _, _ = after.partition("```")
    assert [it for it in ("A2UI", "Open Generative UI", "MCP Apps") if it not in promise] == []
    assert "(docs/why/limitations.md)" in promise


@pytest.mark.parametrize("page", [path for path in pages() if path != README], ids=str)
def test_a_page_opens_with_one_title(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    if page.name == "changes.md":  # that of the changelog
        return
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
