"""The names of this package in the documents exist."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.documents import ROOT, page_name, pages

CHANGELOG = ROOT / "CHANGELOG.md"

_NAME = re.compile(r"`(copilot_runtime(?:\.\w+)+)(?!\.?\w*\.(?:yml|toml))")


_GROUP = re.compile(r'Registry\(\s*"(copilot_runtime\.\w+)"')
"""The group of entry points of a table: it looks like a module, and need not be one."""

GROUPS = {
    group
    for file in (ROOT / "copilot_runtime").rglob("*.py")
    for group in _GROUP.findall(file.read_text(encoding="utf-8"))
}


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
    names = {name for name in _NAME.findall(text) if "/" not in name}
    assert [name for name in sorted(names - GROUPS) if not exists(name)] == []
