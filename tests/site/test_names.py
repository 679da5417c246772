"""The names of this package in the documents exist."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.documents import ROOT, page_name, pages

CHANGELOG = ROOT / "CHANGELOG.md"
RENAMED = {
    "copilot_runtime.adapters._sse",
    "copilot_runtime.runtime.Runtime.agents",
}
"""Names of which a sentence of the changelog says what they became."""

_OLD = re.compile(r"^\| ([^|]*) (?=\|)", re.MULTILINE)
"""The first column of the changelog's table of what moved."""

_NAME = re.compile(r"`(copilot_runtime(?:\.\w+)+)(?!\.?\w*\.(?:yml|toml))")


def exists(name: str) -> bool:
    """Return whether a dotted name can be imported, as a module or as what is in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return _has(value, parts[length:])
    return False


def _has(value: Any, parts: list[str]) -> bool:
    for part in parts:
        if part in getattr(value, "__dataclass_fields__", {}):
            return True
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


@pytest.mark.parametrize("page", [*pages(), CHANGELOG], ids=page_name)
def test_every_name_exists(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    if page == CHANGELOG:
        text = _OLD.sub("", text)
    names = {name for name in _NAME.findall(text) if "/" not in name}
    assert [name for name in sorted(names - RENAMED) if not exists(name)] == []


def test_what_the_changelog_calls_moved_is_gone() -> None:
    columns = " ".join(_OLD.findall(CHANGELOG.read_text(encoding="utf-8")))
    old = _NAME.findall(columns)
    assert len(old) > 10
    assert [name for name in old if exists(name)] == []
