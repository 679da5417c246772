"""The parts of the documents that are generated from the code."""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import yaml

import copilot_runtime
from copilot_runtime import Settings
from copilot_runtime.adapters.capabilities import CAPABILITIES, UNDOCUMENTED, UNSUPPORTED
from copilot_runtime.adapters.error_classes import ERROR_CLASSES
from copilot_runtime.adapters.media.limits import LIMITS
from copilot_runtime.adapters.openai.presets import PRESETS
from copilot_runtime.adapters.openai.request import OPENAI, Preset
from copilot_runtime.adapters.toolset.rules import COMMON, TOOL_RULES
from copilot_runtime.base import errors
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.config.settings import SettingRow
from copilot_runtime.extensions.knowledge.policies.cedar import SCHEMA
from copilot_runtime.telemetry.semconv import (
    ATTRIBUTES,
    EXPORTED_OPERATIONS,
    METRICS,
    Attribute,
    Metric,
)
from tests.telemetry.span_conventions import CONVENTIONS, DATABASE, MCP_CLIENT, MCP_SERVER, RPC

ADAPTER_NAMES = {
    "openai": "OpenAI",
    "openai_responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "google": "Google",
    "bedrock": "Bedrock",
    "langchain": "LangChain",
    "openai_assistants": "OpenAI Assistants",
    "azure": "Azure",
    "deepseek": "DeepSeek",
    "github": "GitHub",
    "groq": "Groq",
    "mistral": "Mistral",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "openrouter": "OpenRouter",
    "together": "Together",
    "unify": "Unify",
    "vllm": "vLLM",
}
"""Name of an adapter → what the table of capabilities calls it."""

SETTINGS_PAGES = {
    "server": "host port path transports realtime_url allowed_hosts cors_origins cors_credentials "
    "forward_headers deny_headers introspection workers worker_timeout carrier bus stop_timeout "
    "drain_timeout log_level log_format log_debug deployment",
    "limits": "max_body_bytes max_values max_messages max_items max_document_length max_depth "
    "max_aliases max_tokens_in_document max_concurrent_runs max_turns max_events_per_run "
    "max_bytes_per_run run_timeout action_timeout read_timeout write_timeout keep_alive log_ttl "
    "limits",
    "models": "instructions page_instructions page_models cloud_base_url adapter parameters "
    "guardrails transcription",
    "threads": "threads thread_retention thread_names when_busy history secret hand_over "
    "shared_state interrupt_events reasoning_events subagent_events",
    "tools": "tools serve_mcp serve_a2a a2a_url serve_remote mcp grpc webhooks",
    "pages": "console a2ui mcp_apps open_generative_ui",
    "knowledge": "knowledge events",
    "analyst": "analyst",
    "planner": "planner assistants",
    "access": "access api_keys jwt proxy service_tokens audit",
    "telemetry": "telemetry",
}
"""The pages of `docs/reference/settings`, and which settings and sections each has."""


def settings_tables(page: str) -> str:
    """Return a table of the settings of a page that have no section, and one of each section."""
    names = SETTINGS_PAGES[page].split()
    rows = [row for row in Settings.describe() if _section(row.name) in names]
    rows.sort(key=lambda row: ("." in row.name, names.index(_section(row.name))))
    lines: list[str] = []
    for group, some in groupby(rows, key=lambda row: row.name.rpartition(".")[0]):
        lines += [f"## `{group}`", ""] if group else []
        lines += ["| setting | default, or type | meaning |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {_default(row)} | {row.description} |" for row in some]
        lines.append("")
    return _lines(lines)


def _section(name: str) -> str:
    """Return the section of a setting, or its name if it has none."""
    return name.partition(".")[0]


def example_settings() -> str:
    """Return a file with every setting at its default."""
    head = [
        "# Every setting with its default. Copy to copilot.yml what you want to change.",
        "# ${NAME} and ${NAME:-default} stand for environment variables. The variable that is",
        "# named beside a setting wins over this file; a mapping is JSON in it.",
    ]
    return _lines([*head, *_example()])


def capabilities_table() -> str:
    """Return which adapters lack what, as a table in Markdown."""
    lacking = {ability: ", ".join(_name_lacking(ability)) for ability in CAPABILITIES}
    rows = [f"| {CAPABILITIES[ability]} | {names} |" for ability, names in lacking.items() if names]
    return _lines(["| what | adapters that lack it |", "|---|---|", *rows])


def _name_lacking(ability: str) -> Iterator[str]:
    for name, words in ADAPTER_NAMES.items():
        if ability in UNDOCUMENTED.get(name, ()):
            yield f"{words} (unknown)"
        elif ability in UNSUPPORTED.get(name, {}):
            yield words


def tool_rules_table() -> str:
    """Return the rules of providers for tools as a table in Markdown, with their documents."""
    rows: list[str] = []
    for rules in dict.fromkeys((*TOOL_RULES.values(), COMMON)):
        names = [f"`{name}`" for name, one in TOOL_RULES.items() if one == rules]
        words = {
            f"{rules.max_tools} tools in a request": rules.max_tools,
            f"{rules.max_description} characters in a description": rules.max_description,
            f"names of parameters: `{rules.key}`": rules.key,
            "no `$ref`": rules.inlines,
            f"at the root only {_quote(rules.root)}": rules.root,
            f"only {_quote(rules.keywords)}; `enum` for texts only": rules.keywords,
        }
        links = [f"[{at}]({url})" for at, url in enumerate(rules.sources, 1)]
        rows.append(
            f"| {', '.join(names) or 'others'} "
            f"| {'; '.join(one for one, is_set in words.items() if is_set)} | {' '.join(links)} |"
        )
    return _lines(["| adapter | rules | documents and reports |", "|---|---|---|", *rows])


def _quote(names: Iterable[str] | None) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names or ()))


def media_limits_table() -> str:
    """Return the limits of services for files as a table in Markdown."""
    rows = [
        f"| {name} | {', '.join(one.removeprefix('image/') for one in limits.image_types)} "
        f"| {_size(limits.image_bytes)} | {limits.image_side or ''} | {limits.images or ''} "
        f"| {_size(limits.pdf_bytes)} | {_size(limits.request_bytes)} "
        f"| {', '.join(f'[{at}]({url})' for at, url in enumerate(limits.sources, 1))} |"
        for name, limits in LIMITS.items()
    ]
    head = "| adapter | images | image | pixels on a side | images in a request | PDF | request | |"
    return _lines([head, "|---|---|---|---|---|---|---|---|", *rows])


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1_000_000:.1f} MB"


def presets_table(group: str) -> str:
    """Return the addresses and keys of OpenAI, of services or of local servers, in Markdown."""
    head = "| service | preset | API key | address | default model |"
    return _lines([head, "|---|---|---|---|---|", *map(_preset, _list_presets(group))])


def _list_presets(group: str) -> Iterable[Preset]:
    groups = {True: "services", False: "local"}
    for preset in PRESETS.values():
        if group == ("openai" if preset is OPENAI else groups[preset.needs_key]):
            yield preset


def _preset(preset: Preset) -> str:
    key = f"`{preset.key_variable}`" if preset.needs_key else f"none, or `{preset.key_variable}`"
    addresses = [preset.base_url and f"`{preset.base_url}`", f"`{preset.url_variable}`"]
    address = " or ".join(it for it in addresses if it.strip("`"))
    model = f"`{preset.model}`" if preset.model else "none: name one"
    return f"| {preset.name} | `{preset.adapter}` | {key} | {address} | {model} |"


def errors_table() -> str:
    """Return every error as a table in Markdown: a row for each code."""
    kinds = sorted(_list_errors(), key=lambda kind: kind.code)
    rows = [
        f"| [`{code}`](#{code.lower()}) "
        f"| {', '.join(f'`{_class_name(kind)}`' for kind in some)} "
        f"| {', '.join(dict.fromkeys(map(_status, some)))}{_visibility(some[0])} |"
        for code, group in groupby(kinds, key=lambda kind: kind.code)
        if (some := [*group])
    ]
    return _lines(["| code | class | status |", "|---|---|---|", *rows])


def _visibility(kind: type[CopilotError]) -> str:
    """Return how React shows an error, or an empty text if it is a banner."""
    return "" if kind.visibility == "banner" else f"; `{kind.visibility}`"


def _list_errors() -> list[type[CopilotError]]:
    """Return all errors of `errors`, and of each other code one that has it."""
    kinds = [*_list_classes(errors)]
    codes = {kind.code for kind in kinds}
    package = Path(inspect.getfile(copilot_runtime)).parent
    files = [file for file in package.rglob("*.py") if '\n    code = "' in file.read_text("utf-8")]
    for file in sorted(files, key=lambda file: (len(file.parts), file)):
        name = ".".join(file.relative_to(package.parent).with_suffix("").parts)
        for kind in _list_classes(import_module(name)):
            if kind.__module__ == name and "code" in vars(kind) and kind.code not in codes:
                codes.add(kind.code)
                kinds.append(kind)
    return kinds


def _list_classes(module: ModuleType) -> Iterator[type[CopilotError]]:
    for kind in vars(module).values():
        if inspect.isclass(kind) and issubclass(kind, CopilotError):
            yield kind


def _class_name(kind: type[CopilotError]) -> str:
    name = f"{kind.__module__}.{kind.__name__}"
    return name.removeprefix("copilot_runtime.base.errors.")


def _status(kind: type[CopilotError]) -> str:
    """Return its status; Node's of GraphQL is another than that of HTTP for an unknown agent."""
    if kind is errors.AgentNotFound:
        return f"{kind.status_code}; over GraphQL 500"
    return str(kind.status_code)


def command_line() -> str:
    """Return every command with its arguments and the first paragraph of its help, in Markdown."""
    from typer.main import get_command

    from copilot_runtime.cli.main import cli

    return _lines(["| command | what it does |", "|---|---|", *_commands(get_command(cli), "")])


def spans_table() -> str:
    """Return the kinds of spans: those with content and their attributes of it as a table."""
    rows: list[str] = []
    others: list[str] = []
    for one in (*CONVENTIONS, MCP_SERVER, MCP_CLIENT, DATABASE, RPC):
        operations = ", ".join(f"`{operation}`" for operation in one.operations)
        is_exported = all(EXPORTED_OPERATIONS[operation] for operation in one.operations)
        content = ", ".join(f"`{name}`" for name in one.opt_in)
        if content:
            rows.append(f"| {operations} | `{one.name}` | {content} |")
        else:
            operation = next(iter(one.operations), "")
            names = (operation, one.name.removeprefix(operation).strip())
            words = " ".join(f"`{name}`" for name in names if name)
            others.append(words if is_exported else f"{words} (never exported)")
    head = ["| operation | name | content |", "|---|---|---|"]
    return _lines([*head, *rows, "", f"Without content: {', '.join(others)}."])


def attributes_tables() -> str:
    """Return the attributes by what lets them leave the machine: those of conventions by name."""
    lines: list[str] = []
    groups: dict[str, list[Attribute]] = {}
    for one in ATTRIBUTES.values():
        groups.setdefault(_name_policy(one), []).append(one)
    for title, attributes in groups.items():
        ours = [one for one in attributes if one.name.startswith("copilot.")]
        theirs = [f"`{one.name}`" for one in attributes if one not in ours]
        lines += [f"### {title}", ""]
        lines += [", ".join(theirs), ""] if theirs else []
        lines += ["| attribute | meaning |", "|---|---|"] if ours else []
        lines += [f"| `{one.name}`{_type(one)} | {one.about} |" for one in ours]
        lines += [""] if ours else []
    return _lines(lines)


def _type(attribute: Attribute) -> str:
    return "" if attribute.type == "string" else f" ({attribute.type})"


def _name_policy(attribute: Attribute) -> str:
    if attribute.is_foreign:
        return "Written by others"
    if attribute.is_content:
        return "Content"
    return "Identity" if attribute.is_identity else "Exported"


def metrics_table() -> str:
    """Return the metrics: the names of those of conventions, and ours as a table."""
    ours = [one for one in METRICS.values() if one.name.startswith("copilot.")]
    theirs = [f"`{one.name}`{_dialect(one)}" for one in METRICS.values() if one not in ours]
    rows = [f"| `{one.name}` | {one.kind}, `{one.unit}` | {one.about} |" for one in ours]
    head = ["| metric | kind, unit | meaning |", "|---|---|---|"]
    return _lines([", ".join(theirs), "", *head, *rows])


def _dialect(metric: Metric) -> str:
    return "" if metric.dialect == "dual" else f" ({metric.dialect})"


def entry_points_table() -> str:
    """Return the entry points of a server with everything, and for whom each is."""
    from tests.extensions.access.matrix.table import doors_table  # which loads all that has a door

    return doors_table()


def provider_errors_table() -> str:
    """Return the classes of providers' errors as a table."""
    rows = [
        f"| {one.name} | {_statuses(one.statuses)} | `{one.error.code}` "
        f"| {'yes' if one.is_retried else 'no'} |"
        for one in ERROR_CLASSES
    ]
    head = ["| class | statuses | code of our error | repeated |", "|---|---|---|---|"]
    return _lines([*head, *rows])


def _statuses(statuses: Collection[int]) -> str:
    """Return statuses, those in a row as `500 to 599`."""
    spans: list[list[int]] = []
    for status in sorted(statuses):
        if spans and spans[-1][-1] == status - 1:
            spans[-1].append(status)
        else:
            spans.append([status])
    return ", ".join(
        f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(map(str, span)) for span in spans
    )


PARTS: Mapping[str, Callable[[str], str]] = {
    "capabilities": lambda _: capabilities_table(),
    "media_limits": lambda _: media_limits_table(),
    "tool_rules": lambda _: tool_rules_table(),
    "presets": presets_table,
    "settings": settings_tables,
    "errors": lambda _: errors_table(),
    "provider_errors": lambda _: provider_errors_table(),
    "commands": lambda _: command_line(),
    "spans": lambda _: spans_table(),
    "attributes": lambda _: attributes_tables(),
    "metrics": lambda _: metrics_table(),
    "entry_points": lambda _: entry_points_table(),
    "cedar_schema": lambda _: f"```text\n{SCHEMA}```\n",
}
"""Marker in a page → what makes the text between it and its end, of the marker's argument."""


def _commands(command: Any, name: str) -> Iterator[str]:
    """Yield a row of a table for a command, or for each of those below it."""
    if below := getattr(command, "commands", None):
        for child in below:
            yield from _commands(below[child], f"{name} {child}".strip())
        return
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context)[1:])
    usage = usage.replace("[[", "[").replace("]]", "]").replace("]...]", "]")
    help = (command.help or "").replace("\b", "").strip().partition("\n\n")[0]
    what = " ".join(help.split()).replace("|", "\\|")
    yield f"| `{f'{name} {usage}'.strip()}` | {what} |"


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


def _default(row: SettingRow) -> str:
    """Return the default of a setting, with the other words it may be, or else its type."""
    if row.default in (None, "", (), {}):
        return row.type.replace(" | ", ", ")
    default = f"`{_yaml(row.default)}`"
    words = row.type.split(" | ")
    if row.default not in words:  # a text, a number, or true or false
        return default
    return ", ".join([default, *(word for word in words if word != row.default)])


def _yaml(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=1000)
    return text.removesuffix("...\n").strip()


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
