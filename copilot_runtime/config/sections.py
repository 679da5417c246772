"""The sections of the settings, and the types of what stands in them."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from copilot_runtime.config.published_secrets import check_secret
from copilot_runtime.config.store_url import (
    check_bucket_url,
    check_store_url,
    check_web_url,
)

_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:(?P<port>\d{1,5}))?/?"
)
_HOST = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\]")
_ADDRESS = r"https?://[^\s@]+"
_ADDRESS_RULE = (
    "should begin with http:// or https://, and have no user or password in it: those are for "
    "telemetry.headers."
)
_USUAL_PORTS = {("http", "80"), ("https", "443")}
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+$")

TELEMETRY_EXPORTERS = ("otlp-http", "otlp-grpc", "console", "file")
TELEMETRY_SIGNALS = ("traces", "metrics", "logs")

KNOWLEDGE_TOOLS = ("search_content", "query_by_pattern", "get_ontology", "get_subjects", "recall")
"""The actions by which models and agents use knowledge."""


def _split(value: Any) -> Any:
    """Read `a, b` as a list: environment variables are text."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def read_object(value: Any) -> Any:
    """Read JSON text as a mapping: environment variables are text."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError('it is no JSON object, such as {"model": "gpt-4o"}')
    return cast("dict[str, Any]", found)


def _normalize_origin(text: str) -> str:
    """Return an origin as browsers send it. Raises `ValueError` for what none ever sends."""
    if text in ("*", "auto"):
        return text
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        raise ValueError(
            f"{text!r} is not an origin: write scheme://host or scheme://host:port, without a path "
            "or a pattern, as in https://app.example.com, http://localhost:3000; "
            "or * for every origin; or auto"
        )
    scheme, host, port = found["scheme"], found["host"], found["port"]
    is_usual = port is None or (scheme, port) in _USUAL_PORTS
    return f"{scheme}://{host}" if is_usual else f"{scheme}://{host}:{port}"


def _normalize_host(text: str) -> str:
    """Return a host as a `Host` header has it, without a port. Raises `ValueError`."""
    if _HOST.fullmatch(text.lower()) is None:
        raise ValueError(
            f"{text!r} is not a host: write a name without scheme, port and path, as in "
            "app.example.com, *.example.com; or * for every host"
        )
    return text.lower()


def _normalize_hosts(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_normalize_host, texts))


def _normalize_origins(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_normalize_origin, texts))


def _check_names(names: tuple[str, ...], choices: tuple[str, ...], noun: str) -> tuple[str, ...]:
    """Return names. Raises `ValueError` for one that is none of the choices."""
    for name in names:
        if name not in choices:
            raise ValueError(f"{name!r} is not {noun}: there are {', '.join(choices)}")
    return names


def _check_seconds(value: Any) -> Any:
    """Refuse a text that is no number, such as one with a unit."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            raise ValueError("should be a number of seconds, such as 86400 for a day") from None
    return value


def _check_match(pattern: str, rule: str) -> AfterValidator:
    """Refuse a text that a pattern does not match, in the words of `rule`."""

    def check(value: str) -> str:
        if re.search(pattern, value) is None:
            raise ValueError(f"should be {rule}")
        return value

    return AfterValidator(check)


def _check_urls(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if re.match(r"(\w+=)?postgres(ql)?://", text):
            check_store_url(text)
    return texts


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
Origins = Annotated[Words, AfterValidator(_normalize_origins)]
Hosts = Annotated[Words, AfterValidator(_normalize_hosts)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_check_seconds)]
SecondsOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_check_seconds)]
Count = Annotated[int, Field(gt=0)]
CarrierAddress = Annotated[
    str,
    _check_match(r"^(auto|none|(rediss?|unix)://.+)$", "auto, none, or redis://HOST:PORT"),
    AfterValidator(check_store_url),
]


def _check_web_urls(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(check_web_url, texts))


class Section(BaseModel):
    """Settings that belong together: what is not one of them is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,  # it may have a secret
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_switches(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse yes and no for a number: pydantic would read 1 and 0, YAML's `yes` one second."""
        if not isinstance(value, bool):
            return value
        field = cls.model_fields[info.field_name or ""]
        kinds = get_args(field.annotation) or (field.annotation,)
        if bool not in kinds and {int, float}.intersection(kinds):
            way_out = "" if field.default is None else f": write one, such as {field.default:g}"
            raise ValueError(f"it is true or false, and no number{way_out}")
        return value


class AdapterSettings(Section):
    """The model `copilot-runtime serve` talks to when it is not given a module."""

    name: str = Field(
        default="",
        description="Name in the table of adapters. Empty: openai if it has a key, else demo.",
    )
    options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Arguments of the adapter, such as model; as JSON in the environment.",
        repr=False,  # it may hold a key
    )


class ParameterSettings(Section):
    """Parameters of the model, where a page asks for no others. Null means the adapter's own.

    There is no `tool_choice` that demands a call: with each result, it would demand the next.
    """

    model: str | None = Field(
        default=None, min_length=1, description="The model, if not the adapter's own."
    )
    temperature: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="How much chance is in an answer."
    )
    max_tokens: int | None = Field(
        default=None, gt=0, description="Longest answer, in the model's tokens."
    )
    stop: tuple[str, ...] | None = Field(default=None, description="Texts at which an answer ends.")
    tool_choice: Literal["auto", "none"] | None = Field(
        default=None, description="Whether the model may call tools."
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether the model may call several tools at once."
    )
    top_p: float | None = Field(
        default=None, ge=0, le=1, description="Share of the likeliest tokens that count."
    )
    seed: int | None = Field(default=None, description="Seed for answers that can be repeated.")
    frequency_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="How much repeated tokens are avoided."
    )
    presence_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="How much known subjects are avoided."
    )
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = Field(
        default=None, description="How long the model thinks."
    )
    response_schema: Mapping[str, Any] | None = Field(
        default=None, description="JSON schema of every answer; as JSON in the environment."
    )
    response_name: str | None = Field(
        default=None, min_length=1, description="The name of what the schema describes."
    )

    @field_validator("stop", mode="before")
    @classmethod
    def _list_of_texts(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else _split(value)

    @field_validator("response_schema", mode="before")
    @classmethod
    def _json_object(cls, value: Any) -> Any:
        return read_object(value)


class TranscriptionSettings(Section):
    """What turns speech into text, with the key and address of OpenAI's variables."""

    model: str = Field(
        default="",
        description="Its model. Empty: whisper-1 if there is a key for OpenAI. Or: none.",
    )
    base_url: str | None = Field(
        default=None, description="Its address, if it is not OPENAI_BASE_URL."
    )
    language: str | None = Field(
        default=None, description="ISO 639-1 code, if all recordings are in one language."
    )


class McpSettings(Section):
    """MCP servers whose tools models may use, and those that pages may name."""

    servers: Annotated[Words, AfterValidator(_check_web_urls)] = Field(
        default=(), description="Addresses of MCP servers whose tools are actions.", repr=False
    )
    allowed: Words = Field(
        default=(), description="Origins or addresses of MCP servers that a page may name."
    )


class GuardrailSettings(Section):
    """Rules for questions and answers; an empty list is no rule."""

    allow: Words = Field(
        default=(), description="Topics of which a question must name at least one."
    )
    deny: Words = Field(default=(), description="Topics that a question must not name.")
    words: Words = Field(
        default=(), description="Words that neither question nor answer may contain."
    )
    message: str = Field(
        default="I cannot help with that topic.",
        min_length=1,
        description="What the person reads instead of an answer.",
    )


class KnowledgeSettings(Section):
    """Resources that models and agents may search. There is knowledge with a storage or sources."""

    storage: Annotated[str, AfterValidator(check_bucket_url)] = Field(
        default="",
        description="Where knowledge is: local:PATH, memory, or s3://BUCKET/PREFIX. "
        "Empty: local:.copilot/knowledge, if there are sources; else there is no knowledge.",
    )
    sources: Words = Field(
        default=(),
        description="Files and folders to take in when the server starts, from its working "
        "directory: HTML, Markdown, PDF, CSV, text.",
    )
    base: str = Field(
        default="https://example.invalid/",
        description="IRI that relative names of things in HTML are resolved against.",
    )
    policy: str = Field(
        default="",
        description="File or folder with rules of who may do what: .yml, .cedar or .rego. Empty: "
        "everybody may read what belongs to no user.",
    )
    embedder: str = Field(
        default="hashing",
        min_length=1,
        description="What turns texts into vectors: a name, and a model behind a colon, as in "
        "openai:text-embedding-3-small. hashing needs no model: it compares words.",
    )
    embedder_options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Arguments of the embedder, such as model; as JSON in the environment.",
        repr=False,  # it may hold a key
    )
    graph_options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Options of the graph, such as prefixes and limits of SPARQL; as JSON in the "
        "environment.",
    )
    vector_engine: Literal["exact", "faiss"] = Field(
        default="exact",
        description="How vectors are searched: exact compares all; faiss, an extra, only those in "
        "the nearest clusters, for millions.",
    )
    vector_database: Annotated[str, AfterValidator(check_store_url)] = Field(
        default="",
        description="Where vectors are, if not with the resources: postgresql://..., a database "
        "with the extension pgvector.",
        repr=False,  # an address may hold a password
    )
    tools: Words = Field(
        default=KNOWLEDGE_TOOLS,
        description="Actions by which models and agents use knowledge; an empty list for none.",
    )
    tool_tokens: Count = Field(
        default=2000, description="Largest result of one such call, in tokens."
    )
    retrieval: bool = Field(
        default=True,
        description="Whether each question in the plain chat is searched for, and what was found "
        "is given to the model.",
    )
    retrieval_limit: Count = Field(default=5, description="Most passages given to the model.")
    retrieval_tokens: Count = Field(
        default=2000, description="Longest text of these passages, in tokens."
    )
    retrieval_threshold: float | None = Field(
        default=0.15,
        ge=-1,
        le=1,
        description="How like a question a passage is at least, from -1 to 1. Null: 0.",
    )
    uploads: Literal["thread", "owner", "off"] = Field(
        default="thread",
        description="Whether files that people attach to questions in the plain chat are stored, "
        "and where they are found: in their thread, in all threads of their owner, or nowhere.",
    )
    upload_bytes: Count = Field(default=10 * 1024 * 1024, description="Largest such file.")
    upload_files: Count = Field(default=20, description="Most files in a thread.")
    upload_total: Count = Field(
        default=200 * 1024 * 1024, description="Most bytes in all files of an owner."
    )
    upload_tokens: Count = Field(
        default=4000, description="Longest text of files that is given to the model, in tokens."
    )
    context_tokens: Count = Field(
        default=8000,
        description="Tokens of a context window that is optimised, where no other number is given.",
    )
    link: str = Field(
        default="",
        description="Address of this server for readers of other pages, such as "
        "https://chat.example.com: citations begin with it. Empty: they begin with the path.",
    )

    suggestions: Words = Field(
        default=(), description="Questions about it that the page at / offers to ask."
    )

    @field_validator("base")
    @classmethod
    def _is_iri(cls, text: str) -> str:
        if _IRI.match(text) is None:
            raise ValueError("it is no IRI, such as https://example.com/")
        return text

    @field_validator("link")
    @classmethod
    def _is_origin(cls, text: str) -> str:
        if text and not text.startswith(("http://", "https://")):
            raise ValueError("it is no address, such as https://chat.example.com")
        return text.rstrip("/")

    @field_validator("tools")
    @classmethod
    def _are_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in KNOWLEDGE_TOOLS]:
            raise ValueError(
                f"there is no tool {unknown[0]!r}; there are {', '.join(KNOWLEDGE_TOOLS)}"
            )
        return names

    @property
    def address(self) -> str:
        """Where knowledge is; empty if there is none."""
        return self.storage or ("local:.copilot/knowledge" if self.sources else "")


class EventSettings(Section):
    """What happened to resources, plans and runs, for those who come back to it."""

    store: Annotated[
        str, _check_match(r"^(none|memory|sqlite:.+)?$", "sqlite:PATH, memory or none")
    ] = Field(
        default="",
        description="Where events are kept: sqlite:PATH, memory, where they end with the server, "
        "or none. Empty: memory if there is knowledge or an agent that plans, else none.",
    )
    max_events: Count = Field(
        default=100_000,
        description="Most events that are kept, the newest; in memory 10000 at most.",
    )
    max_bytes: Count = Field(
        default=64 * 1024 * 1024,
        description="Largest size of all events that are kept, in bytes: the oldest go first.",
    )


class AssistantSettings(Section):
    """Agents that are written as files."""

    folder: str = Field(
        default="",
        description="Folder with files NAME.agent.md: each is an agent, read again when it "
        "changes. Empty: none.",
    )
    window: Literal["newest", "copilot-ld-2025-11", "copilot-ld-2026-01"] = Field(
        default="newest",
        description="Which older messages an assistant with a budget reads: the newest that fit, "
        "or by the rules that Copilot-LD had then.",
    )


class PlannerSettings(Section):
    """An agent that breaks a request into tasks and has the other agents do them."""

    name: Annotated[str, _check_match(r"^[A-Za-z0-9_-]*$", "of letters, digits, _ and - alone")] = (
        Field(
            default="",
            description="Name of the agent that plans. Empty: there is none.",
        )
    )
    store: Annotated[
        str,
        _check_match(
            r"^(memory|sqlite:.+|(dbos:)?postgres(ql)?://.+)$",
            "sqlite:PATH, postgresql://..., dbos:postgresql://... or memory",
        ),
        AfterValidator(check_store_url),
    ] = Field(
        default="sqlite:.copilot/plans.db",
        description="Where plans are kept: sqlite:PATH, postgresql://... for servers on several "
        "machines, dbos:postgresql://... where DBOS shows them as well, or memory, where they end "
        "with the server.",
        repr=False,  # it may hold a password
    )
    retention: SecondsOrNone = Field(
        default=30 * 86_400,
        description="Seconds after which a plan that is over is deleted; 0 for never. In memory, "
        "there are at most 1000.",
    )
    needs_approval: bool = Field(
        default=False, description="Whether a person is asked before a plan is carried out."
    )
    evaluation: str = Field(
        default="",
        description="What a good outcome of any plan looks like. Empty: the whole is not checked.",
    )
    fallback: str = Field(
        default="", description="Agent that does tasks for which none is alike enough."
    )
    floor: float = Field(
        default=0.05,
        ge=-1,
        le=1,
        description="How alike a task and an agent must be, from -1 to 1. It depends on the "
        "embedder of knowledge.",
    )
    summary: Literal["model", "join"] = Field(
        default="model",
        description="How outcomes of tasks become one: by the model, or one after the other.",
    )
    depth: Count = Field(default=5, description="Most levels of tasks in a plan.")
    width: Count = Field(default=20, description="Most tasks side by side below one task.")
    tasks: Count = Field(default=200, description="Most tasks of a plan, corrections included.")
    rounds: int = Field(
        default=2, ge=0, description="Most rounds of corrective tasks below one task."
    )
    concurrency: Count = Field(default=8, description="Most tasks of a plan at the same time.")
    tokens: int | None = Field(
        default=None, gt=0, description="Most tokens that a plan may use. Empty: any number."
    )
    dollars: float | None = Field(
        default=None, gt=0, description="Most US dollars that a plan may cost. Empty: any sum."
    )
    seconds: float | None = Field(
        default=3600.0,
        gt=0,
        description="Seconds for which a plan may work, without those in which it waits for "
        "people. Empty: any time.",
    )


class AnalystSettings(Section):
    """An agent that answers questions about data with SQL that it can only read with."""

    name: Annotated[str, _check_match(r"^[A-Za-z0-9_-]*$", "of letters, digits, _ and - alone")] = (
        Field(
            default="",
            description="Name of the agent that answers questions about data, such as analyst. "
            "Empty: there is none.",
        )
    )
    data: Annotated[Words, AfterValidator(_check_urls)] = Field(
        default=(),
        description="Where the data is: files and patterns (CSV, Parquet, JSON), a DuckDB file, "
        "postgresql://..., or traces, what is kept of runs here, for operators alone. name=PATH "
        "names it.",
        repr=False,  # an address may hold a password
    )
    store: str = Field(
        default=".copilot/analyst",
        min_length=1,
        description="Folder of copies of the data, data sets that people saved, and memory.",
    )
    refresh: SecondsOrNone = Field(
        default=0,
        description="Seconds after which sources are looked at again while the server runs: those "
        "that changed are copied. 0: only when it starts.",
    )
    folder: str = Field(
        default="custom/config",
        description="Folder of what an operator writes: schema hints, metrics, SQL examples, "
        "skills and tests. None of it has to be there.",
    )
    model: str = Field(
        default="", description="Model that answers. Empty: the adapter's. Also LLM_MODEL_NAME."
    )
    framework: Literal["own", "openai-agents", "pydantic-ai"] = Field(
        default="own", description="What runs the agent: our own loop, or the SDK of another maker."
    )
    instructions: str = Field(
        default="",
        description="What its model is told beside its own instructions.",
        repr=False,
    )
    memory_enabled: bool = Field(
        default=True,
        description="Whether it learns which columns, queries and repairs people need.",
    )
    history_limit: int = Field(
        default=6, ge=0, description="How much of the conversation the model reads again."
    )
    history_unit: Literal["entries", "turns"] = Field(
        default="entries",
        description="What history_limit counts: messages, or questions with their answers.",
    )
    max_skills: int = Field(default=3, ge=0, description="Most skills for one question.")
    sql_examples: int = Field(
        default=3, ge=0, le=5, description="Most examples of SQL for one question."
    )
    max_turns: Count = Field(default=12, description="Most requests to the model for a question.")
    query_timeout: Seconds = Field(default=30, description="Seconds that one query may take.")
    memory_limit: Annotated[
        str, _check_match(r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?B)$", "a size, such as 512MB or 2GB")
    ] = Field(default="512MB", description="Memory that queries may take together.")
    threads: Count = Field(default=2, description="Threads that queries may take together.")
    concurrency: Count = Field(default=8, description="Most queries at the same time.")
    row_filters: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={},
        description="Which rows of a table somebody may see: SQL by the name of the table, such as "
        "owner = $user; * for every table. A table without the columns is closed. As JSON in the "
        "environment.",
    )
    allow_save: bool = Field(
        default=True, description="Whether people may save the result of a query as a data set."
    )
    approve_saves: bool = Field(
        default=True, description="Whether a person is asked before a data set is saved."
    )
    approval_rows: int = Field(
        default=10_000,
        ge=0,
        description="Rows from which a person is asked before a download; 0 for always.",
    )
    download_ttl: Seconds = Field(
        default=3600, description="Seconds for which a download can be fetched."
    )
    files: Annotated[str, AfterValidator(check_bucket_url)] = Field(
        default="",
        description="Where charts and links to downloads are, for servers that share them: "
        "local:PATH or s3://BUCKET/PREFIX. Empty: in the memory of the server that made them.",
    )
    share_tools: bool = Field(
        default=False, description="Whether other agents and the plain chat get its tools as well."
    )


class TelemetrySettings(Section):
    """What is kept of runs, and what is exported. Runs are traced unless `enabled` is false."""

    enabled: bool = Field(
        default=True, description="Whether runs are traced, and what they do is counted."
    )
    store: Annotated[
        str,
        _check_match(
            r"^(memory|none|(sqlite|jsonl):.+)$", "memory, sqlite:PATH, jsonl:FOLDER or none"
        ),
    ] = Field(
        default="memory",
        description="Where traces are kept: memory, sqlite:PATH, jsonl:FOLDER with a file a day, "
        "or none.",
    )
    retention: SecondsOrNone = Field(
        default=7 * 86_400, description="Seconds after which a trace is deleted; 0 for never."
    )
    max_traces: Count = Field(
        default=100_000, description="Most traces in a file; in memory, there are at most 1000."
    )
    content: Literal["none", "local", "export"] = Field(
        default="none",
        description="What becomes of what people and models write: nothing of it is traced, it is "
        "kept where traces are kept, or it is exported as well.",
    )
    capture: Literal["span_only", "event_only", "span_and_event"] = Field(
        default="span_only",
        description="Where exported content stands. No hook of OpenTelemetry uploads it elsewhere: "
        "OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK is not read.",
    )
    inference_events: bool | None = Field(
        default=None,
        description="Whether a request to a model is an event as well. Empty: if capture has them.",
    )
    identity: bool = Field(
        default=False, description="Whether exported spans say who asked, and on which machine."
    )
    semconv: Literal["released", "head", "dual"] = Field(
        default="released",
        description="Whose names of metrics: those that were released, those to come, or both.",
    )
    export: bool | None = Field(
        default=None,
        description="Whether telemetry is exported. Empty: if there is an exporter, an endpoint, "
        "or a provider of OpenTelemetry in the host program.",
    )
    exporters: Words = Field(
        default=(),
        description="Where spans, metrics and events are sent: otlp-http, otlp-grpc, console, "
        "file. Empty: OTLP by the protocol, if there is an endpoint.",
    )
    protocol: Literal["http/protobuf", "grpc", "http/json", "http"] = Field(
        default="http/protobuf",
        description="Protocol of OTLP where exporters is empty. Over HTTP, protobuf is sent.",
    )
    endpoint: str = Field(
        default="",
        pattern=f"^({_ADDRESS})?$",
        description="Address of a receiver of OTLP, such as http://localhost:4318.",
    )
    endpoints: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={},
        description="Whole addresses for traces, metrics or logs alone; JSON in the environment.",
    )
    headers: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={},
        description="Headers for that receiver, such as a key; as JSON in the environment.",
        repr=False,
    )
    compression: Literal["none", "gzip"] = Field(
        default="none", description="How what is sent over OTLP is compressed."
    )
    signals: Words = Field(
        default=("traces", "metrics", "logs"),
        description="What is exported; logs are events. Langfuse and Phoenix take traces alone.",
    )
    bridge: bool = Field(
        default=False,
        description="Whether spans of frameworks in this process are traced as well where the host "
        "program sets no provider: ours is then the one of the process.",
    )
    http_spans: bool = Field(
        default=False,
        description="Whether requests over HTTP are spans, too: with "
        "opentelemetry-instrumentation-httpx.",
    )
    file: str = Field(
        default="",
        description="File for the exporter file: a line of OTLP's JSON for each batch. "
        "Empty: .copilot/telemetry.jsonl.",
    )
    content_form: Literal["structured", "json"] = Field(
        default="structured",
        description="The form of content on exported spans: values with parts, or their JSON as a "
        "text, which Arize Phoenix and others read.",
    )
    max_attribute_chars: int = Field(
        default=0, ge=0, description="Longest text of an exported attribute; 0 for any."
    )
    max_queue: Count = Field(
        default=2048, description="Most spans that wait for a receiver; more are left out."
    )
    export_interval: Seconds = Field(
        default=5, description="Seconds after which spans and events are sent."
    )
    sampler: Literal[
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
        "always_on",
        "always_off",
        "traceidratio",
    ] = Field(
        default="parentbased_always_on",
        description="Which traces are exported, as OTEL_TRACES_SAMPLER has it. All are kept here.",
    )
    sampler_argument: str = Field(
        default="",
        pattern=r"^(0|1|0?\.\d+|[01]\.0*|0\.\d+)?$",
        description="Share of the traces for the samplers with a ratio, such as 0.1.",
    )
    service_name: str = Field(
        default="copilot-runtime", min_length=1, description="What exported spans call this server."
    )
    resource_attributes: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={}, description="More about this server; as JSON in the environment."
    )
    log_level: Literal["critical", "error", "warning", "info", "debug"] | None = Field(
        default=None, description="How much OpenTelemetry itself logs. Empty: as everything else."
    )
    metrics_endpoint: bool = Field(
        default=True,
        description="Whether Prometheus may read what is counted: at /metrics, from this machine.",
    )
    metrics_token: Annotated[str, AfterValidator(check_secret)] = Field(
        default="",
        description="With it, Prometheus reads from any machine: whoever sends it as a bearer.",
        repr=False,
    )
    receive: Literal["off", "loopback", "token"] = Field(
        default="loopback",
        description="Who may send spans by OTLP to v1/traces: nobody, programs of this machine, or "
        "whoever has the token.",
    )
    receive_token: Annotated[str, AfterValidator(check_secret)] = Field(
        default="", description="That token, which programs send as a bearer.", repr=False
    )
    operators: Words = Field(
        default=(),
        description="Users who may read traces. Where nobody signs in: whoever is on this machine.",
    )

    _enabled_via: str = PrivateAttr(default="")

    @property
    def enabled_via(self) -> str:
        """What enabled the export: envVar, setting or otlpEndpointEnvVar; storeOnly, disabled."""
        return self._enabled_via

    @property
    def is_exported(self) -> bool:
        """Whether telemetry is sent somewhere by exporters of ours."""
        has_target = self.export or self.exporters or self.endpoint or self.endpoints
        return self.enabled and self.export is not False and bool(has_target)

    @field_validator("exporters")
    @classmethod
    def _are_exporters(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return _check_names(names, TELEMETRY_EXPORTERS, "an exporter")

    @field_validator("signals")
    @classmethod
    def _are_signals(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return _check_names(names, TELEMETRY_SIGNALS, "a signal")

    @field_validator("endpoints")
    @classmethod
    def _are_of_signals(cls, endpoints: Mapping[str, str]) -> Mapping[str, str]:
        _check_names(tuple(endpoints), TELEMETRY_SIGNALS, "a signal")
        for signal, address in endpoints.items():
            if not re.fullmatch(_ADDRESS, address):
                raise ValueError(f"The address for {signal} {_ADDRESS_RULE}")
        return endpoints

    @field_validator("endpoint", mode="before")
    @classmethod
    def _is_address(cls, endpoint: Any) -> Any:
        if isinstance(endpoint, str) and endpoint and not re.fullmatch(_ADDRESS, endpoint):
            raise ValueError(_ADDRESS_RULE)
        return endpoint

    @model_validator(mode="after")
    def _find_origin(self, info: ValidationInfo) -> "TelemetrySettings":
        """Note which kind of setting enabled the export, in the order of VS Code."""
        if info.context is not None or not self._enabled_via:
            self._enabled_via = self._describe_origin(getattr(info.context, "overrides", {}))
        return self

    def _describe_origin(self, overrides: Mapping[str, str]) -> str:
        if not self.is_exported:
            return "storeOnly" if self.enabled and self.store != "none" else "disabled"
        switches = ("telemetry.export", "telemetry.exporters")
        if any(name in overrides for name in switches):
            return "envVar"
        if self.export or self.exporters:
            return "setting"
        endpoint = overrides.get("telemetry.endpoint") or overrides.get("telemetry.endpoints")
        if endpoint is None:
            return "setting"
        return "otlpEndpointEnvVar" if "OTEL" in endpoint else "envVar"

    @property
    def receives(self) -> bool:
        """Whether spans of other processes are taken."""
        return self.enabled and self.receive != "off"

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.receive == "token" and not self.receive_token:
            raise ValueError("receive is 'token', so receive_token must be set")
        return self
