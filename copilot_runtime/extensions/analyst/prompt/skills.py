"""Skills: instructions in `SKILL.md` files for one kind of question, selected by trigger words."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

from pydantic import BaseModel, ConfigDict, field_validator

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.file_watcher import read_text
from copilot_runtime.config.yaml_model import parse_yaml_model, split_front_matter
from copilot_runtime.extensions.analyst.prompt.untrusted import quote_attribute, quote_block

BUILTIN = Path(__file__).parent / "builtin"
"""The folder of the built-in skills."""

MOST_SKILLS = 3
"""Default number of skills per request."""

MOST_CHARS = 12_000
"""Maximum characters of all skills of one request."""

CONTEXT = 3
"""Number of latest conversation entries that are searched for triggers as well."""

_MOST_BYTES = 256 * 1024

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Instructions, with trigger words of the questions that they are for."""

    name: str
    body: str = ""
    description: str = ""
    version: str = "1.0"
    priority: int = 0
    triggers: Sequence[str] = ()
    """Trigger words; without any, it applies to every question, ranked after skills with a match.
    """
    source: str = ""


class _Fields(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    description: str = ""
    version: str = "1.0"
    priority: int = 0
    triggers: Any = ()

    @field_validator("version", mode="before")
    @classmethod
    def _read_number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int | float) else value

    @field_validator("name")
    @classmethod
    def _require_name(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("it is empty")
        return value.strip()


def parse_skill(text: str, source: str = "SKILL.md") -> Skill | None:
    """Parse a skill file; log a warning and return `None` if it is malformed."""
    front_matter, body = split_front_matter(text)
    if front_matter is None:
        return _skip(source, "it has no front matter: fields between two lines ---")
    try:
        fields = parse_yaml_model(_Fields, front_matter, source, first_line=2)
    except ConfigurationFailed as error:
        return _skip(source, error.message)
    body = body.replace("\r\n", "\n").strip()
    if not body:
        return _skip(source, "it has no instructions below its front matter")
    if len(body) > MOST_CHARS:
        logger.warning(
            "The skill %r (%s) has more than %d characters: it is never used.",
            fields.name,
            source,
            MOST_CHARS,
        )
    return Skill(
        name=fields.name,
        body=body,
        description=fields.description,
        version=fields.version,
        priority=fields.priority,
        triggers=_read_triggers(fields.triggers, fields.name, source),
        source=source,
    )


def load_skills(custom: Iterable[Path] = (), *, builtin: Path = BUILTIN) -> Mapping[str, Skill]:
    """Return the built-in skills, and those of files, which replace them by name.

    `custom` are files returned by `find_skill_files`.
    """
    return merge_skills(_read_files(find_skill_files(builtin)), _read_files(custom))


def merge_skills(*layers: Iterable[Skill]) -> Mapping[str, Skill]:
    """Return skills by name: a later layer replaces skills of an earlier one."""
    skills: dict[str, Skill] = {}
    for layer in layers:
        names: dict[str, Skill] = {}
        for skill in layer:
            if (other := names.get(skill.name)) is not None:
                logger.warning(
                    "Two skills are called %r: %s is left out.", skill.name, skill.source
                )
                skill = other
            names[skill.name] = skill
        skills.update(names)
    return skills


def find_skill_files(folder: Path) -> Sequence[Path]:
    """Return `SKILL.md` of each subfolder, and the Markdown files of the folder itself."""
    if not folder.is_dir():
        return []
    return [*sorted(folder.glob("*/SKILL.md")), *sorted(folder.glob("*.md"))]


def select_skills(
    message: str,
    context: Sequence[str],
    skills: Iterable[Skill],
    limit: int = MOST_SKILLS,
) -> Sequence[Skill]:
    """Return the skills for a question, at most `limit`.

    A trigger in the message scores two, one in the latest entries of the conversation scores one.
    Ties are ordered by priority, then by name. Skills without triggers follow the others.
    """
    recent = [*context][-CONTEXT:]
    ranks: list[tuple[int, int, int, str, Skill]] = []
    for skill in skills:
        score = 2 * len(find_triggers(skill.triggers, [message]))
        score += len(find_triggers(skill.triggers, recent))
        if score or not skill.triggers:
            ranks.append((not skill.triggers, -score, -skill.priority, skill.name, skill))
    return [rank[-1] for rank in sorted(ranks, key=lambda rank: rank[:-1])][: max(0, limit)]


def render_skills(skills: Iterable[Skill]) -> str:
    """Return the block of skills for a prompt, of at most `MOST_CHARS` characters."""
    blocks: list[str] = []
    size = len("<skills>\n</skills>")
    for skill in skills:
        name = quote_attribute(skill.name)
        block = f'<skill name="{name}">\n{quote_block(skill.body)}\n</skill>\n'
        size += len(block)
        if size > MOST_CHARS:
            break
        blocks.append(block)
    return f"<skills>\n{''.join(blocks)}</skills>" if blocks else ""


def _read_files(files: Iterable[Path]) -> Sequence[Skill]:
    skills: list[Skill] = []
    for file in files:
        try:
            if file.stat().st_size > _MOST_BYTES:
                _skip(str(file), f"it is larger than {_MOST_BYTES // 1024} kB")
                continue
            skill = parse_skill(read_text(file), str(file))
        except ConfigurationFailed as error:
            _skip(str(file), error.message)
            continue
        except OSError as error:  # deleted since it was found
            _skip(str(file), error.strerror or str(error))
            continue
        if skill is not None:
            skills.append(skill)
    return skills


def _read_triggers(value: Any, name: str, source: str) -> Sequence[str]:
    if value is None or value == ():
        return ()
    if not isinstance(value, list):
        logger.warning(
            "The triggers of the skill %r (%s) are no list, so they are left out and it is used "
            "for every question: write 'triggers: [chart, plot]'.",
            name,
            source,
        )
        return ()
    texts = [item for item in value if isinstance(item, str) and fold(item)]
    if len(texts) < len(value):
        logger.warning(
            "Some triggers of the skill %r (%s) are no texts and are left out: write words such as "
            "yes, on and 2024 in quotes.",
            name,
            source,
        )
    return tuple(dict.fromkeys(texts))


def _skip(source: str, reason: str) -> None:
    logger.warning("The skill in %s is left out: %s.", source, reason.rstrip("."))


MOST_TRIGGER_CHARS = 8_000
"""Maximum characters of a text that is searched for triggers."""

_UNSPACED = ((0x0E00, 0x0EFF), (0x1000, 0x11FF), (0x3040, 0x30FF), (0x3400, 0x9FFF))
"""Scripts that are written without spaces between words."""


def find_triggers(triggers: Iterable[str], texts: Sequence[str]) -> frozenset[str]:
    """Return the triggers that occur in a text as whole words, case-insensitively."""
    bodies = [normalize("NFKC", text[:MOST_TRIGGER_CHARS]) for text in texts]
    names = {fold(trigger) for trigger in triggers} - {""}
    return frozenset(name for name in names if any(_compile(name).search(body) for body in bodies))


def fold(trigger: str) -> str:
    """Normalise a trigger for comparison: case-folded, with single spaces."""
    return " ".join(normalize("NFKC", trigger).casefold().split())


@lru_cache(maxsize=2_048)
def _compile(name: str) -> re.Pattern[str]:
    body = r"\s+".join(re.escape(word) for word in name.split())
    before = "" if _is_unspaced(name[0]) else r"(?<!\w)"
    after = "" if _is_unspaced(name[-1]) else r"(?!\w)"
    return re.compile(f"{before}{body}{after}", re.IGNORECASE)


def _is_unspaced(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _UNSPACED)
