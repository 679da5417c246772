"""The settings of the core. Extensions add theirs in `extensions/settings.py`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from copilot_runtime.config.checks import check_secret, check_store_address
from copilot_runtime.config.console import Console, ConsoleSettings
from copilot_runtime.config.problems import SettingOrigins, explain
from copilot_runtime.config.section import (
    CarrierAddress,
    Count,
    Seconds,
    SecondsOrNone,
    Section,
    Words,
)
from copilot_runtime.config.sections import (
    AccessSettings,
    AdapterSettings,
    Hosts,
    Origins,
    ParameterSettings,
    ProxySettings,
    TranscriptionSettings,
)

PREFIX = "COPILOT_"
_SHORTEST_SECRET = 16
_PATH = re.compile(r"/[^\s\x00-\x1f\x7f{}?#%]*")

NEVER_FORWARDED = frozenset(
    {"connection", "content-length", "cookie", "host", "set-cookie", "te", "transfer-encoding"}
)
"""Headers that actions, agents and hooks never see, whatever `forward_headers` is."""


NOT_FORWARDED = (
    *("x-forwarded-*", "x-real-ip", "x-request-id", "x-correlation-id", "x-trace-id"),
    *("x-amz-*", "x-amzn-*", "x-vercel-*", "x-azure-*", "x-fastly-*", "x-middleware-*"),
    *("x-b3-*", "x-datadog-*", "x-cloud-trace-*"),
)
"""Headers set by proxies, clouds and tracers, as in the Node runtime 1.74."""


S = TypeVar("S", bound=Section)


def _check_patterns(names: tuple[str, ...]) -> tuple[str, ...]:
    if odd := [name for name in names if "*" in name[:-1]]:
        raise ValueError(f"{odd[0]!r} has a * that is not its last character")
    return names


def _check_headers(names: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name.lower() for name in names)
    if forbidden := NEVER_FORWARDED.intersection(names):
        raise ValueError(f"{', '.join(sorted(forbidden))} cannot be forwarded")
    return _check_patterns(names)


_Headers = Annotated[Words, AfterValidator(_check_headers)]


class CoreSettings(Section):
    """The settings of the core. Times are in seconds, sizes in bytes."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address to listen on; 0.0.0.0 for every network.",
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port; 0 picks a free one.")
    path: str = Field(
        default="/graphql",
        description="URL path for all clients.",
    )
    transports: Words = Field(
        default=("agui", "graphql"),
        description="Client protocols: built-in ones, or those of plugins.",
    )
    realtime_url: str = Field(
        default="",
        pattern=r"^(off|wss?://\S+|/[^/\s]\S*)?$",
        description="WebSocket URL for CopilotKit's useThreads, such as "
        "wss://example.com/graphql, or a path on the page's host; off for none. "
        "Empty: derived, for clients on this machine.",
    )
    log_level: Literal["critical", "error", "warning", "info", "debug"] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_debug: Words = Field(
        default=(),
        description="Namespaces whose debug lines are always logged: threads:*, httpx, *. Also "
        "the variable DEBUG.",
    )
    deployment: str = Field(
        default="",
        description="Name of the deployment, for error hooks.",
    )
    log_format: Literal["text", "json"] = Field(default="text", description="Format of log lines.")
    workers: Count = Field(default=1, description="Server processes on this machine.")
    worker_timeout: SecondsOrNone = Field(
        default=60,
        description="Seconds after which a hanging worker is replaced, if there are several; 0 "
        "for never.",
    )
    carrier: CarrierAddress = Field(
        default="auto",
        description="How processes that share threads reach each other: auto (sockets beside "
        "the file, or the PostgreSQL database), redis://..., or none, for a single "
        "process.",
        repr=False,  # it may hold a password
    )

    allowed_hosts: Hosts = Field(
        default=(),
        description="Hosts that a server on loopback accepts besides localhost; * for any.",
    )
    cors_origins: Origins = Field(
        default=("auto",),
        description="Origins of pages that may call: scheme://host[:port]; * for any; auto for "
        "any, but on loopback only pages of this machine.",
    )
    cors_credentials: bool = Field(
        default=True, description="Whether these pages may send cookies."
    )
    forward_headers: _Headers = Field(
        default=("authorization", "x-*"),
        description="Headers that reach actions and agents: names or patterns. Never cookies.",
    )
    deny_headers: _Headers = Field(
        default=NOT_FORWARDED,
        description="Headers that are never forwarded.",
    )
    introspection: bool = Field(
        default=True, description="Whether clients may read the GraphQL schema."
    )

    max_body_bytes: Count = Field(default=16 * 1024 * 1024, description="Largest request body.")
    max_values: Count = Field(default=250_000, description="Most JSON values in a request body.")
    max_messages: Count = Field(default=2000, description="Most messages in a request.")
    max_items: Count = Field(
        default=5000,
        description="Most tools, context, answers, parts and calls in a request.",
    )
    max_document_length: Count = Field(
        default=64 * 1024, description="Longest GraphQL document, in characters."
    )
    max_depth: Count = Field(default=15, description="Deepest nesting of a GraphQL document.")
    max_aliases: int = Field(default=50, ge=0, description="Most aliases in a GraphQL document.")
    max_tokens_in_document: Count = Field(
        default=2000, description="Longest GraphQL document, in lexical tokens."
    )

    action_timeout: Seconds = Field(
        default=60,
        description="Seconds for an action of the server that has no timeout of its own.",
    )
    run_timeout: Seconds = Field(default=600, description="Seconds for a whole run.")
    read_timeout: Seconds = Field(
        default=60, description="Seconds a client may pause while sending."
    )
    write_timeout: Seconds = Field(default=60, description="Seconds a client may read nothing.")
    stop_timeout: Seconds = Field(
        default=5, description="Seconds for open answers to end when the server stops."
    )
    drain_timeout: SecondsOrNone = Field(
        default=0,
        description="Seconds a stopping server still takes requests, while /health/ready is 503.",
    )
    bus: str = Field(default="memory", description="Run logs: memory, or the name of a plugin.")
    max_events_per_run: Count = Field(default=200_000, description="Most events in a run's log.")
    max_bytes_per_run: Count = Field(default=16 * 1024 * 1024, description="Largest log of a run.")
    log_ttl: SecondsOrNone = Field(default=300, description="Seconds a finished run's log is kept.")
    max_concurrent_runs: int = Field(
        default=0, ge=0, description="Most concurrent runs; 0 for no limit."
    )
    max_turns: Count = Field(default=8, description="Most turns of the model in a run.")

    threads: Annotated[str, AfterValidator(check_store_address)] = Field(
        default="sqlite:.copilot/threads.db",
        description="Store of threads: sqlite:PATH, postgresql://..., or memory.",
        repr=False,  # it may hold a password
    )
    secret: str = Field(
        default="",
        description="Secret for the thread ids of remote agents. Empty: the store's.",
        repr=False,
    )
    when_busy: Literal["refuse", "supersede", "queue"] = Field(
        default="refuse",
        description="What happens to a question whose thread is being answered.",
    )
    history: Literal["client", "server"] = Field(
        default="client",
        description="Source of an agent's conversation: the request, or the thread.",
    )
    thread_names: bool = Field(
        default=False, description="Whether the model names threads, in an extra request."
    )
    thread_retention: SecondsOrNone = Field(
        default=0, description="Seconds after which an unused thread is deleted; 0 for never."
    )
    keep_alive: SecondsOrNone = Field(
        default=15,
        description="Seconds of silence before AG-UI streams send a comment; 0 for never.",
    )
    reasoning_events: bool = Field(
        default=True,
        description="Whether AG-UI clients get reasoning. React 1.51.3 and 1.51.4 fail at it.",
    )
    subagent_events: bool = Field(
        default=False,
        description="Whether AG-UI clients get events of subagents. Those before 1.71 fail.",
    )
    interrupt_events: Literal["auto", "outcome", "custom", "both"] = Field(
        default="auto",
        description="Form of interrupts for AG-UI clients. auto: custom from LangGraph, else "
        "outcome.",
    )
    shared_state: bool = Field(
        default=True,
        description="Whether the model may change the state shared with an AG-UI client.",
    )

    instructions: str = Field(
        default="",
        description="System prompt of the plain chat.",
        repr=False,
    )
    page_instructions: Literal["keep", "context", "drop"] = Field(
        default="keep",
        description="A page's system messages: kept, shown as context, or dropped.",
    )
    page_models: Annotated[Words, AfterValidator(_check_patterns)] = Field(
        default=(),
        description="Models a page may choose: names or patterns; * for any.",
    )
    hand_over: Literal["v1", "always", "never"] = Field(
        default="v1",
        description="Chats that may hand off to agents: of CopilotKit v1, all, or none.",
    )

    console: Console = ConsoleSettings()
    adapter: AdapterSettings = AdapterSettings()
    parameters: ParameterSettings = ParameterSettings()
    access: AccessSettings = AccessSettings()
    proxy: ProxySettings = ProxySettings()
    transcription: TranscriptionSettings = TranscriptionSettings()

    @field_validator("path")
    @classmethod
    def _without_last_slash(cls, path: str) -> str:
        if path and _PATH.fullmatch(f"/{path}") is not None and not path.startswith("/"):
            raise ValueError(f"a path begins with a slash: write /{path}")
        if _PATH.fullmatch(path) is None:
            raise ValueError("a path begins with a slash and has no spaces and none of {}?#%")
        return path.rstrip("/") or "/"

    @field_validator("secret")
    @classmethod
    def _long_enough(cls, secret: str) -> str:
        if secret and len(secret) < _SHORTEST_SECRET:
            raise ValueError(
                f"it must have {_SHORTEST_SECRET} characters or more; it has {len(secret)}: "
                "`openssl rand -hex 32` prints some"
            )
        return check_secret(secret)

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        """Convert pydantic's error to a `ConfigurationFailed` with locations and suggestions."""
        try:
            return handler(data)
        except ValidationError as error:
            names = [row.name for row in cls.describe()]
            raise explain(error, names, info.context or SettingOrigins()) from None

    @property
    def named_origins(self) -> tuple[str, ...]:
        """The configured origins, without `auto`."""
        return tuple(origin for origin in self.cors_origins if origin != "auto")

    def forwards(self, header: str) -> bool:
        """Return whether actions, agents and hooks may see a request header."""
        header = header.lower()
        if header in NEVER_FORWARDED or _matches(header, self.deny_headers):
            return False
        return _matches(header, self.forward_headers)

    def allows_model(self, name: str) -> bool:
        """Return whether a page may choose a model."""
        return _matches(name, self.page_models)

    def section(self, kind: type[S]) -> S:
        """Return the section of this class, or its defaults if these settings do not have it."""
        for name in type(self).model_fields:
            if isinstance(value := getattr(self, name), kind):
                return value
        return kind()

    @classmethod
    def describe(cls) -> "list[SettingRow]":
        """Return one row per setting, those outside of sections first."""
        rows = [*_rows(cls)]
        return [row for row in rows if "." not in row.name] + [
            row for row in rows if "." in row.name
        ]


def _matches(text: str, names: Iterable[str]) -> bool:
    return any(text.startswith(name[:-1]) if name.endswith("*") else text == name for name in names)


class SettingRow(NamedTuple):
    """A row of the settings table: `name` has a dot between section and key."""

    name: str
    variable: str
    type: str
    default: Any
    description: str


def _rows(section: type[Section], prefix: str = "") -> Iterator[SettingRow]:
    for name, field in section.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from _rows(annotation, f"{prefix}{name}.")
            continue
        variable = PREFIX + f"{prefix}{name}".replace(".", "_").upper()
        yield SettingRow(
            f"{prefix}{name}",
            variable,
            _type_name(annotation, field.description or ""),
            field.default,
            field.description or "",
        )


def _type_name(annotation: Any, description: str) -> str:
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    if len(kinds) < len(get_args(annotation)):  # it may be null
        return _type_name(kinds[0], description)
    if get_origin(annotation) is Literal:
        return " | ".join(get_args(annotation))
    names = {
        str: "text",
        int: "number",
        float: "seconds" if description.startswith("Seconds") else "number",
        bool: "true | false",
        tuple[str, ...]: "list",
        Mapping[str, Any]: "mapping",
        Mapping[str, str]: "mapping",
        str | Mapping[str, Any]: "text | mapping",
        tuple[str, ...] | Mapping[str, tuple[str, ...]]: "list | mapping",
    }
    if annotation in names:
        return names[annotation]
    return {tuple: "list", list: "list", dict: "mapping"}.get(get_origin(annotation), "text")
