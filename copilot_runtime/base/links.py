"""Symbolic links below a folder that was named, and the folder that a pattern names."""

import glob
import os
from pathlib import Path

LEADS_OUT = "leads out of the folder"
LEADS_NOWHERE = "leads nowhere"
IS_ALIAS = "is another name of a file in the folder"
"""The reasons for skipping a symbolic link."""


def find_way_out(path: Path, root: Path) -> Path | None:
    """Return the first symbolic link of a path that leads out of a folder, or `None`."""
    inside = os.path.realpath(root)

    def leads_out(part: Path) -> bool:
        return not Path(os.path.realpath(part)).is_relative_to(inside)

    if not leads_out(path):
        return None
    below = path.relative_to(root)
    parts = (root / part for part in (*reversed(below.parents), below))
    return next(filter(leads_out, parts), path)


def is_alias(path: Path, root: Path) -> bool:
    """Return whether a file in a folder has another name there that is not hidden."""
    real = Path(os.path.realpath(path)).relative_to(os.path.realpath(root))
    return real != path.relative_to(root) and not any(it.startswith(".") for it in real.parts)


def find_fixed_part(pattern: Path) -> Path:
    """Return the folder before the first wildcard of a pattern."""
    parts: list[str] = []
    for part in pattern.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)
