"""The documents: the README and the pages of the site, their code blocks, their generated parts.

    python -m tests.documents

writes every generated part anew.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.document_parts import PARTS, example_settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
EXAMPLE = ROOT / "copilot.example.yml"
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"^<!-- (\w+)(?: (\w+))? -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code in a document, the page it is on, and the heading it stands under."""

    page: str
    language: str
    heading: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the README, and then every page of the site."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def page_name(path: Path) -> str:
    """Return what a page is called here: `learn/threads`, or `README`."""
    base = DOCS if path.is_relative_to(DOCS) else ROOT
    return str(path.relative_to(base).with_suffix(""))


def blocks(language: str, page: str | None = None) -> list[Block]:
    """Return the blocks of one language, on one page or on all, in their order."""
    return [
        block
        for path in pages()
        if page in (None, page_name(path))
        for block in _blocks(path)
        if block.language == language
    ]


def between(text: str, marker: str) -> str:
    """Return what stands between `<!-- marker -->` and `<!-- /marker -->`."""
    return text.partition(f"<!-- {marker} -->\n")[2].partition(f"<!-- /{marker} -->")[0]


def generated_parts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each marker on a page, and what has to stand between it and its end."""
    for name, argument in _MARKER.findall(path.read_text(encoding="utf-8")):
        make = PARTS[name]
        yield f"{name} {argument}".strip(), f"\n{make(argument)}\n"


def _blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", before), re.MULTILINE)
        line = before.count("\n") + 2
        yield Block(page_name(path), match[1], headings[-1], line, match[2])


def _write() -> None:
    for path in pages():
        text = path.read_text(encoding="utf-8")
        for marker, made in generated_parts(path):
            old = f"<!-- {marker} -->\n{between(text, marker)}"
            text = text.replace(old, f"<!-- {marker} -->\n{made}")
        path.write_text(text, encoding="utf-8")
    EXAMPLE.write_text(example_settings(), encoding="utf-8")


if __name__ == "__main__":
    _write()
