"""The source code of the package, read and parsed once for all tests of it."""

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "copilot_runtime"


@cache
def read_sources() -> Mapping[Path, str]:
    """Return the text of each module of the package that people wrote."""
    return {
        path: path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
        if "_pb2" not in path.name
    }


@cache
def read_nodes() -> Mapping[Path, Sequence[ast.AST]]:
    """Return all nodes of each module's syntax tree, the module itself first."""
    return {path: [*ast.walk(ast.parse(text))] for path, text in read_sources().items()}
