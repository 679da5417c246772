"""What our documents hold: blocks of code, and parts made of the code, which

    python -m tests.documents

writes anew.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from copilot_runtime import Settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
EXAMPLE = ROOT / "copilot.example.yml"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code in a document, and the heading it stands under."""

    language: str
    heading: str
    line: int
    code: str


def blocks(path: Path, language: str) -> list[Block]:
    """Return the blocks of one language, in their order."""
    return [
        block for block in _blocks(path.read_text(encoding="utf-8")) if block.language == language
    ]


def between(text: str, marker: str) -> str:
    """Return what stands between `<!-- marker -->` and `<!-- /marker -->`."""
    return text.partition(f"<!-- {marker} -->\n")[2].partition(f"<!-- /{marker} -->")[0]


def settings_table() -> str:
    """Return every setting as a table in Markdown."""
    rows = [
        f"| `{row.name}` | {_shown(row.default)} | {row.description} |"
        for row in Settings.describe()
    ]
    return _lines(["| setting | default | meaning |", "|---|---|---|", *rows])


def example_settings() -> str:
    """Return a file with every setting at its default."""
    head = [
        "# Every setting with its default. Copy to copilot.yml what you want to change.",
        "# ${NAME} and ${NAME:-default} stand for environment variables. The variable that is",
        "# named beside a setting wins over this file.",
    ]
    return _lines([*head, *_example()])


def _blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", before), re.MULTILINE)
        yield Block(match[1], headings[-1], before.count("\n") + 2, match[2])


def _example() -> Iterator[str]:
    section = ""
    for row in Settings.describe():
        inside, _, key = row.name.rpartition(".")
        indent = "  " if inside else ""
        yield ""
        if inside != section:
            section = inside
            yield f"{section}:"
        yield f"{indent}# {row.description}"
        yield f"{indent}{key}: {_yaml(row.default)}  # {row.type}, {row.variable}"


def _shown(value: Any) -> str:
    return "" if value in (None, "", (), {}) else f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _write() -> None:
    text = README.read_text(encoding="utf-8")
    old = f"<!-- settings -->\n{between(text, 'settings')}"
    new = f"<!-- settings -->\n{settings_table()}"
    README.write_text(text.replace(old, new), encoding="utf-8")
    EXAMPLE.write_text(example_settings(), encoding="utf-8")


if __name__ == "__main__":
    _write()
