"""The generated parts of the documents are those of the code."""

import re
from pathlib import Path

import pytest

from copilot_runtime import Settings
from copilot_runtime.adapters import ADAPTERS
from copilot_runtime.adapters.capabilities import UNDOCUMENTED, UNSUPPORTED
from copilot_runtime.extensions.settings import load_settings
from copilot_runtime.transports.agui import routes
from tests.document_parts import ADAPTER_NAMES, PARTS, example_settings
from tests.documents import DOCS, EXAMPLE, ROOT, between, generated_parts, page_name, pages

GENERATED = [
    pytest.param(path, marker, text, id=f"{page_name(path)}-{marker}")
    for path in pages()
    for marker, text in generated_parts(path)
]


@pytest.mark.parametrize(("path", "marker", "text"), GENERATED)
def test_a_generated_part_is_that_of_the_code(path: Path, marker: str, text: str) -> None:
    written = between(path.read_text(encoding="utf-8"), marker)
    assert written == text, "python -m tests.documents writes it anew"


def test_every_part_that_can_be_generated_stands_on_a_page() -> None:
    markers = [marker for path in pages() for marker, _ in generated_parts(path)]
    assert {marker.partition(" ")[0] for marker in markers} == set(PARTS)


def test_every_setting_is_on_one_page_of_settings() -> None:
    pages = DOCS.joinpath("reference/settings").glob("*.md")
    shown = [
        name
        for page in pages
        for name in re.findall(r"^\| `([\w.]+)` \|", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(shown) == sorted(row.name for row in Settings.describe())


def test_every_route_is_on_the_page_of_routes() -> None:
    text = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
    table = routes.REST_ROUTES
    every = [f"{method} /{path}" for path, methods in table.items() for method in methods]
    assert [route for route in every if not re.search(rf"`{re.escape(route)}[`?]", text)] == []


def test_every_code_of_an_error_has_a_paragraph() -> None:
    text = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| \[`(\w+)`\]", text, re.MULTILINE)
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == set(codes)


def test_every_code_that_a_class_of_the_package_has_is_on_the_page_of_errors() -> None:
    text = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    sources = [file.read_text("utf-8") for file in (ROOT / "copilot_runtime").rglob("*.py")]
    codes = {
        code for source in sources for code in re.findall(r'^    code = "(\w+)"', source, re.M)
    }

    assert len(codes) > 30
    assert {code for code in codes if f"\n### {code}\n" not in text} == set()


def test_the_table_of_abilities_shows_every_adapter_that_lacks_something() -> None:
    assert {*UNSUPPORTED, *UNDOCUMENTED} <= {*ADAPTER_NAMES}
    assert {*ADAPTER_NAMES} - {"openai_responses"} == set(ADAPTERS) - {"demo", "empty", "scripted"}


def test_the_example_of_settings_holds_every_setting_at_its_default() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text == example_settings(), "python -m tests.documents writes it anew"
    assert load_settings(EXAMPLE, {}) == Settings()
    assert [row.name for row in Settings.describe() if row.variable not in text] == []
