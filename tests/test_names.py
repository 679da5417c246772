"""Names are the field's terms, and a folder is one maker or engine."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.in_one_test import in_one_test
from tests.sources import PACKAGE, read_nodes


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


BANNED = _words(
    "asked begun given heard held kept known lacked made noted owed said seen shown "
    "spoken taken told wanted wished wishes"
)
"""Participles that once stood for nouns: no reader can guess what a value called `told` holds."""

IRREGULAR = BANNED | _words(
    "bound broken built chosen done driven found gone grown hidden left lost meant "
    "met paid sent thrown understood worn written"
)
NO_PARTICIPLE = _words("bed embed exceed feed indeed need proceed red seed shared speed")

MOST_ELSEWHERE = 12
"""Private names and names of values in which a participle is left. This number may only fall."""


def words(name: str) -> list[str]:
    """Split a name in either style: `_ToolCall` and `tool_call` are both `tool`, `call`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("_")).lower().split("_")


def is_participle(word: str) -> bool:
    return word in IRREGULAR or (word.endswith("ed") and word not in NO_PARTICIPLE)


def _is_flag(node: ast.AST) -> bool:
    """Return whether a function answers yes or no: then its name may be an adjective."""
    returns = getattr(node, "returns", None)
    return returns is not None and "bool" in ast.unparse(returns)


def _is_error(node: ast.AST) -> bool:
    """Return whether a class is an error: those are named for what happened."""
    bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    return any(
        is_participle(words(base)[-1]) or base.endswith(("Error", "Exception", "Refusal"))
        for base in bases
    )


def ends_in_participle(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Return whether a function or a class is called by a participle in place of a noun or verb."""
    last = words(node.name)[-1]
    return is_participle(last) and not _is_flag(node) and not _is_error(node)


def definitions(
    nodes: Iterable[ast.AST],
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def values(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names of variables and parameters, once for each place that makes one."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def families(folder: Path) -> dict[str, list[str]]:
    """Return the files of a folder that a common prefix holds together: they want a folder."""
    files = [path for path in sorted(folder.glob("*.py")) if "_pb2" not in path.stem]  # generated
    names = [path.stem for path in files if path.stem != "__init__"]
    prefixes = Counter(
        name.strip("_").partition("_")[0] for name in names if "_" in name.strip("_")
    )
    return {
        prefix: [name for name in names if name.strip("_").startswith(f"{prefix}_")]
        for prefix, count in prefixes.items()
        if count > 1
    }


def public_participles() -> list[str]:
    return [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path, nodes in read_nodes().items()
        for node in definitions(nodes)
        if not node.name.startswith("_") and ends_in_participle(node) and node.name not in PROTOCOL
        if path.name != "events.py"  # what happened is named in the past tense, as everywhere
    ]


def other_participles() -> list[str]:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path, nodes in read_nodes().items()
        for node in definitions(nodes)
        if node.name.startswith("_") and ends_in_participle(node)
    ]
    return found + [
        f"{path.relative_to(PACKAGE)} {name}"
        for path, nodes in read_nodes().items()
        for name in values(nodes)
        if BANNED & {*words(name)}
    ]


PROTOCOL = _words("connection_made data_received connection_lost")
"""Callbacks as asyncio calls them."""


def test_no_public_name_is_a_participle() -> None:
    assert public_participles() == []


def test_hardly_any_other_name_is_a_participle() -> None:
    found = other_participles()
    assert len(found) <= MOST_ELSEWHERE, found


def test_no_family_of_files_wants_to_be_a_folder() -> None:
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir())]
    assert {str(folder): family for folder in folders if (family := families(folder))} == {}


@in_one_test(
    ("code", "is_one"),
    [
        ("def told(): ...", True),
        ("def _shown(value): ...", True),
        ("class Asked: ...", True),
        ("def handed_over(): ...", False),
        ("def is_closed() -> bool: ...", False),
        ("def unfinished(run) -> bool: ...", False),
        ("class NotFound(CopilotError): ...", False),
        ("class StoredRun: ...", False),
        ("def feed(): ...", False),
    ],
)
def test_a_participle_in_place_of_a_noun_is_seen(code: str, is_one: bool) -> None:
    assert [ends_in_participle(node) for node in definitions(ast.walk(ast.parse(code)))] == [is_one]


def test_a_family_of_files_is_seen(tmp_path: Path) -> None:
    for name in ("_cut_one", "cut_two", "cut", "other_one"):
        (tmp_path / f"{name}.py").touch()
    assert families(tmp_path) == {"cut": ["_cut_one", "cut_two"]}
