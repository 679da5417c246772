"""Imports point down the list of layers, and the core names no extension."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from tests.in_one_test import in_one_test
from tests.sources import PACKAGE, read_nodes

LAYERS = [
    {"__main__"},
    {"cli"},
    {"testing"},
    {"app"},
    {"transports"},
    {"runtime"},
    {"agents"},
    {"adapters", "actions"},
    {"threads", "security"},
    {"database", "http", "event_order", "agui", "storage"},
    {"config"},
    {"api"},
    {"telemetry"},
    {"base"},
]
"""The rooms of the core, from the highest to the lowest. Extensions stand beside it."""

LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

MOST = {
    "up": 0,
    "core names an extension": 0,
    "extension names what it does not require": 0,
    "modules in a circle": 0,
}
"""Imports that break a rule. These numbers may only fall."""


def room_of(module: str) -> str:
    """Return the room of a module below the package: `threads`, or `extensions.planner`."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "extensions" else parts[0]


def read_imports(
    nodes: Sequence[ast.AST], modules: frozenset[str], *, type_checking: bool = True
) -> Iterator[str]:
    """Yield the modules of our package that some code imports, wherever the statement stands.

    Without `type_checking`, imports for type checkers alone are left out.
    """
    ignored = set[ast.AST]() if type_checking else {*list_type_checking(nodes)}
    for node in nodes:
        if isinstance(node, ast.Import) and node not in ignored:
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node not in ignored:
            names = [
                name if (name := f"{node.module}.{alias.name}") in modules else node.module
                for alias in node.names
            ]
        else:
            continue
        for name in names:
            if name.startswith("copilot_runtime."):
                yield name.removeprefix("copilot_runtime.")


def list_type_checking(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes in the blocks `if TYPE_CHECKING:`."""
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from ast.walk(node)


@cache
def read_package(*, type_checking: bool = True) -> Mapping[str, frozenset[str]]:
    """Return each module below the package, and the modules of the package that it imports."""
    files = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): nodes
        for path, nodes in read_nodes().items()
        if path.parent != PACKAGE or path.name == "__main__.py"
    }
    modules = frozenset(f"copilot_runtime.{name}" for name in files)
    return {
        name: frozenset(read_imports(nodes, modules, type_checking=type_checking))
        for name, nodes in files.items()
    }


def arrows() -> Iterator[tuple[str, str]]:
    """Yield each pair of modules of which the first imports the second, in another room."""
    for module, imported in read_package().items():
        yield from ((module, other) for other in imported if room_of(other) != room_of(module))


def test_imports_of_the_core_point_down() -> None:
    up = [
        f"{module} imports {other}"
        for module, other in arrows()
        if room_of(module) in LEVEL
        and room_of(other) in LEVEL
        and LEVEL[room_of(other)] <= LEVEL[room_of(module)]
    ]
    assert len(up) <= MOST["up"], up


def test_the_core_names_no_extension() -> None:
    named = [
        f"{module} imports {other}"
        for module, other in arrows()
        if room_of(module) in LEVEL and other.startswith("extensions.")
    ]
    assert len(named) <= MOST["core names an extension"], named


def read_requirements() -> Mapping[str, frozenset[str]]:
    """Return the extensions that each extension declares in `requires`, itself included."""
    found: dict[str, frozenset[str]] = {}
    for folder in sorted((PACKAGE / "extensions").iterdir()):
        if not folder.is_dir() or folder.name == "__pycache__":
            continue
        names = {folder.name}
        path = folder / "extension.py"
        code = path.read_text(encoding="utf-8") if path.exists() else ""
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "requires":
                names |= {*ast.literal_eval(node.value)}
        found[folder.name] = frozenset(names)
    return found


def name_extension(module: str) -> str:
    """Return the extension of a module, or an empty string for a module of the core."""
    return module.split(".")[1] if module.startswith("extensions.") else ""


def test_extensions_require_each_other_in_no_circle() -> None:
    requirements = {name: found - {name} for name, found in read_requirements().items()}
    assert list_circles(requirements) == []


def test_extensions_name_only_what_they_require() -> None:
    requirements = read_requirements()
    named = [
        f"{module} imports {other}"
        for module, other in arrows()
        if (user := name_extension(module)) in requirements
        and (used := name_extension(other)) in requirements
        and used not in requirements[user]
    ]
    assert len(named) <= MOST["extension names what it does not require"], named


def list_circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""
    reachable: dict[str, set[str]] = {}
    for start in graph:
        found, waiting = set[str](), [start]
        while waiting:
            for other in graph.get(waiting.pop(), frozenset()) - found:
                found.add(other)
                waiting.append(other)
        reachable[start] = found
    groups = {
        tuple(sorted(other for other in reachable[name] if name in reachable[other]))
        for name in graph
        if name in reachable[name]
    }
    return [[*group] for group in sorted(groups)]


def test_modules_of_a_folder_import_each_other_in_no_circle() -> None:
    package = read_package(type_checking=False)
    circles = [
        circle
        for room in {room_of(module) for module in package}
        for circle in list_circles(
            {
                module: frozenset(other for other in imported if room_of(other) == room)
                for module, imported in package.items()
                if room_of(module) == room
            }
        )
        if len(circle) > 1
    ]
    assert sum(map(len, circles)) <= MOST["modules in a circle"], circles


def test_circles_are_found() -> None:
    graph = {
        "a": frozenset({"b"}),
        "b": frozenset({"c"}),
        "c": frozenset({"a", "d"}),
        "d": frozenset[str](),
    }
    assert list_circles(graph) == [["a", "b", "c"]]


def test_every_room_has_its_place_in_the_list() -> None:
    rooms = {room_of(module) for module in read_package() if not module.startswith("extensions")}
    assert rooms - set(LEVEL) == {"knowledge"}  # the public names of that extension


@in_one_test(
    ("code", "modules"),
    [
        ("import copilot_runtime.threads.memory", ["threads.memory"]),
        ("from copilot_runtime.threads import memory", ["threads.memory"]),
        ("from copilot_runtime.threads.memory import MemoryThreads", ["threads.memory"]),
        ("def build():\n    from copilot_runtime.app import app", ["app"]),
        ("if TYPE_CHECKING:\n    from copilot_runtime.app import app", ["app"]),
        ("import json\nfrom collections.abc import Mapping", []),
    ],
)
def test_every_form_of_an_import_is_read(code: str, modules: list[str]) -> None:
    assert [
        *read_imports([*ast.walk(ast.parse(code))], frozenset({"copilot_runtime.threads.memory"}))
    ] == modules
