"""What our documents hold that is made from the code: `python -m tests.documents` writes it anew."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from copilot_runtime import Settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
EXAMPLE = ROOT / "copilot.example.yml"

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code in a document, and the heading it stands under."""

    language: str
    heading: str
    code: str
    line: int


def blocks(path: Path, language: str) -> list[Block]:
    """Return the blocks of one language, in order."""
    return [block for block in _blocks(path.read_text(encoding="utf-8")) if language in block]


def between(text: str, marker: str) -> str:
    """Return what stands between `<!-- marker -->` and `<!-- /marker -->`."""
    return text.partition(f"<!-- {marker} -->\n")[2].partition(f"<!-- /{marker} -->")[0]
