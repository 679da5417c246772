"""Imports only ever point down this list."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LAYERS = [
    {"__main__"},
    {"cli"},
    {"testing", "operation"},
    {"app"},
    {"asgi", "lazy_app", "parts", "upkeep"},
    {"transports"},
    {"runtime", "generative_ui"},
    {"agents"},
    {"adapters", "actions", "knowledge"},
    {"rpc"},
    {"security"},
    {"bus", "threads", "storage"},
    {"hooks"},
    {"a2ui", "agui", "event_order", "http", "transcript", "duck_typing", "argument_checks"},
    {"interfaces", "registry", "config", "jsonpatch", "logs"},
    {"telemetry"},
    {"events", "identity", "jsonvalue"},
    {
        "messages",
        "errors",
        "jsontext",
        "formatting",
        "concurrency",
        "dataclass_copy",
        "expiry",
        "gc_tuning",
        "keyword_arguments",
        "batches",
        "jsonstream",
        "private_file",
        "outages",
        "thread_ids",
    },
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ROOT = Path(__file__).parent.parent / "copilot_runtime"


def _noun(path: Path) -> str:
    """Return the package or module right below ours that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _imported(code: str, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the nouns of our package that a module inside `package` imports."""
    for node in ast.walk(ast.parse(code)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            first, _, rest = name.partition(".")
            if first == "copilot_runtime" and rest:
                yield rest.partition(".")[0]


def _modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def test_imports_point_down() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {target}"
        for path in _modules()
        for target in _imported(
            path.read_text(encoding="utf-8"), path.relative_to(ROOT.parent).parent.parts
        )
        if target in LEVEL and target != _noun(path) and LEVEL[target] <= LEVEL[_noun(path)]
    ]
    assert wrong == []


def test_every_module_has_its_place_in_the_list() -> None:
    assert {_noun(path) for path in _modules()} - set(LEVEL) == set()


@pytest.mark.parametrize(
    ("code", "nouns"),
    [
        ("import copilot_runtime.bus.memory", ["bus"]),
        ("from copilot_runtime import runtime", ["runtime"]),
        ("from copilot_runtime.bus.memory import MemoryBus", ["bus"]),
        ("from . import direct", ["agents"]),
        ("from .direct import DirectAgent", ["agents"]),
        ("from .. import runtime, app", ["runtime", "app"]),
        ("from ..transports.graphql import schema", ["transports"]),
        ("def f():\n    from ..app import build", ["app"]),
        ("import json\nfrom collections.abc import Mapping", []),
    ],
)
def test_absolute_and_relative_imports_are_seen(code: str, nouns: list[str]) -> None:
    assert [*_imported(code, ("copilot_runtime", "agents"))] == nouns
