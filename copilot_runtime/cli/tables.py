"""Rows for the commands `copilot-runtime develop plugins` and `settings`."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module, metadata
from operator import attrgetter
from textwrap import shorten

from copilot_runtime.api.registry import PACKAGE, Registry, RegistryEntry, install_command
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.config.problems import SettingOrigins, mask_secrets
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions import NEEDS as EXTENSION_NEEDS
from copilot_runtime.extensions import TABLES as EXTENSION_TABLES

TABLES = (
    ("adapter", "copilot_runtime.adapters:ADAPTERS", "copilot_runtime.adapters"),
    ("agent", "copilot_runtime.agents:AGENTS", "copilot_runtime.agents"),
    ("action source", "copilot_runtime.actions:SOURCES", "copilot_runtime.sources"),
    ("bus", "copilot_runtime.threads:BUSES", "copilot_runtime.bus"),
    ("embedder", "copilot_runtime.adapters.embeddings:EMBEDDERS", "copilot_runtime.embedders"),
    ("storage", "copilot_runtime.storage:STORAGES", "copilot_runtime.storage"),
    ("store of threads", "copilot_runtime.threads:STORES", "copilot_runtime.threads"),
    ("transport", "copilot_runtime.transports:TRANSPORTS", "copilot_runtime.transports"),
    *EXTENSION_TABLES,
)
"""All registries: the noun for their entries, their table, and the group of their entry points."""

NEEDS = {
    ("adapter", "bedrock"): ("botocore", "bedrock"),
    ("adapter", "langchain"): ("langchain-core", "langchain"),
    ("store of threads", "postgres"): ("asyncpg", "postgres"),
    ("store of threads", "postgresql"): ("asyncpg", "postgres"),
    **EXTENSION_NEEDS,
}
"""Third-party packages of built-in parts: (noun, name) to (package, extra). These packages are only
imported when the part is created, so a successful import of the part proves nothing."""

Row = Sequence[str]


def registries() -> Iterator[Registry]:
    """Yield every registry with the entry points that extend it."""
    for noun, target, group in TABLES:
        module, _, name = target.partition(":")
        yield Registry(group, getattr(import_module(module), name, {}), noun=noun)


def plugin_rows() -> Iterator[tuple[str, Sequence[Row]]]:
    """Yield each registry's group and its rows.

    Every part is imported to check whether it works.
    """
    for registry in registries():
        entries = registry.entries
        rows = [
            (entry.name, entry.origin, entry.target, _state(registry, entry.name))
            for entry in entries.values()
        ]
        rows += [
            (entry.name, entry.origin, entry.target, f"not used: {_clash(entry, entries)}")
            for entry in registry.clashes()
        ]
        yield registry.group, rows or [("(none)", "", "", "")]


def setting_rows(settings: CoreSettings, origins: SettingOrigins) -> Sequence[Row]:
    """Return a head and one row per setting.

    Values that differ from the default show their source.
    """
    head = ("SETTING", "VARIABLE", "VALUE", "MEANING [FROM]")
    rows = [
        (
            row.name,
            row.variable,
            _format_value(row.name, settings),
            f"{row.description} [{source}]"
            if (source := origins.find_source(row.name))
            else row.description,
        )
        for row in type(settings).describe()
    ]
    return [head, *rows]


def format_table(rows: Sequence[Sequence[object]]) -> str:
    """Return rows as text in aligned columns; the last column is not padded."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in cells
    )
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def _state(registry: Registry, name: str) -> str:
    try:
        registry[name]
    except CopilotError as error:
        return error.message
    except Exception as error:  # a broken part must not hide the others
        return f"broken: {type(error).__name__}: {error}"
    if registry.entries[name].origin != PACKAGE or (registry.noun, name) not in NEEDS:
        return "ready"
    package, extra = NEEDS[registry.noun, name]
    try:
        return f"ready ({package} {metadata.version(package)})"
    except metadata.PackageNotFoundError:
        return f"needs {package}: {install_command(extra)}"


def _clash(entry: RegistryEntry, entries: Mapping[str, RegistryEntry]) -> str:
    return f"the name is taken by {entries[entry.name].origin}"


def _format_value(name: str, settings: CoreSettings) -> str:
    value = mask_secrets(attrgetter(name)(settings))
    if name.endswith(("options", "telemetry.headers")):  # they may contain a key
        return ", ".join(value) or "-"
    if name == "instructions":  # they may be pages long
        return shorten(value, 60, placeholder=" …") or "-"
    if name.endswith(("secret", "secrets", "_token", "audit.key")):
        return "(set)" if value else "-"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "-" if value in (None, "", {}) else REDACTOR.redact(str(value))
