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
from copilot_runtime.adapters.capabilities import ABILITIES, LACKING, SILENT

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
EXAMPLE = ROOT / "copilot.example.yml"

COLUMNS = (
    {
        "openai": "OpenAI",
        "openai_responses": "OpenAI Responses",
        "anthropic": "Anthropic",
        "google": "Google",
        "bedrock": "Bedrock",
        "langchain": "LangChain",
        "openai_assistants": "OpenAI Assistants",
    },
    {
        "azure": "Azure",
        "deepseek": "DeepSeek",
        "groq": "Groq",
        "mistral": "Mistral",
        "ollama": "Ollama",
        "lmstudio": "LM Studio",
        "openrouter": "OpenRouter",
        "together": "Together",
        "unify": "Unify",
        "vllm": "vLLM",
    },
)
"""The adapters of each table of abilities, and how their columns are called."""

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


def abilities_tables() -> str:
    """Return what adapters do and lack as tables in Markdown: first our own, then the presets."""
    parts: list[str] = []
    for columns in COLUMNS:
        rows = [
            f"| {words} | {' | '.join(_cell(name, ability) for name in columns)} |"
            for ability, words in ABILITIES.items()
            if any(_cell(name, ability) != "yes" for name in columns)
        ]
        parts += [
            f"| | {' | '.join(columns.values())} |",
            f"|---{'|:-:' * len(columns)}|",
            *rows,
            "",
        ]
    parts += ["All of them:", ""]
    everywhere = [
        words
        for ability, words in ABILITIES.items()
        if not any(ability in table for table in (*LACKING.values(), *SILENT.values()))
    ]
    return _lines([*parts, *(f"- {words}" for words in everywhere)])


def reasons_table() -> str:
    """Return why each adapter lacks what it lacks as a table in Markdown."""
    rows = [
        f"| {head} | {ABILITIES[ability]} | {why} |"
        for columns in COLUMNS
        for name, head in columns.items()
        for ability, why in LACKING.get(name, {}).items()
    ]
    return _lines(["| adapter | lacks | because |", "|---|---|---|", *rows])


PARTS = {"abilities": abilities_tables, "reasons": reasons_table, "settings": settings_table}
"""Marker in the README → what stands between it and its end."""


def _cell(name: str, ability: str) -> str:
    if ability in SILENT.get(name, ()):
        return "?"
    return "no" if ability in LACKING.get(name, {}) else "yes"


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
    for marker, made in PARTS.items():
        old = f"<!-- {marker} -->\n{between(text, marker)}"
        text = text.replace(old, f"<!-- {marker} -->\n{made()}")
    README.write_text(text, encoding="utf-8")
    EXAMPLE.write_text(example_settings(), encoding="utf-8")


if __name__ == "__main__":
    _write()
