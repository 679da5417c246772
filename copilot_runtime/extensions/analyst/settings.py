"""The settings section `analyst`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from copilot_runtime.config.checks import check_bucket_url, check_store_url
from copilot_runtime.config.section import (
    Count,
    Seconds,
    SecondsOrNone,
    Section,
    check_match,
    read_object,
    split_words,
)

_Source = str | Mapping[str, Any]


def _check_urls(sources: tuple[_Source, ...]) -> tuple[_Source, ...]:
    for source in sources:
        text = source if isinstance(source, str) else str(source.get("location"))
        if re.match(r"(\w+=)?postgres(ql)?://", text):
            check_store_url(text)
    return sources


class AnalystSettings(Section):
    """An agent that answers questions about data with read-only SQL."""

    name: Annotated[str, check_match(r"^[A-Za-z0-9_-]*$", "of letters, digits, _ and - alone")] = (
        Field(
            default="",
            description="Name of the agent, such as analyst. Empty: none.",
        )
    )
    data: Annotated[
        tuple[_Source, ...], BeforeValidator(split_words), AfterValidator(_check_urls)
    ] = Field(
        default=(),
        description="Data sources: files and glob patterns (CSV, XLSX, Parquet, JSON), a DuckDB "
        "file, postgresql://..., or traces (of this server, for operators). "
        "name=PATH names a source; a mapping of `location` says more.",
        repr=False,  # an address may hold a password
    )
    store: str = Field(
        default=".copilot/analyst",
        min_length=1,
        description="Folder for copies of the data, saved data sets and memory.",
    )
    refresh: SecondsOrNone = Field(
        default=0,
        description="Seconds between checks of the sources for changes; 0 for only at startup.",
    )
    folder: str = Field(
        default="custom/config",
        description="Folder of schema hints, metrics, SQL examples, skills and tests, all "
        "optional.",
    )
    model: str = Field(
        default="", description="Model of the agent. Empty: the adapter's. Also LLM_MODEL_NAME."
    )
    framework: Literal["own", "openai-agents", "pydantic-ai"] = Field(
        default="own",
        description="Agent loop: ours, or an SDK's. openai-agents asks the adapter's server, "
        "which must have OpenAI's API; pydantic-ai the provider in model.",
    )
    instructions: str = Field(
        default="",
        description="Additional instructions for the model.",
        repr=False,
    )
    memory_enabled: bool = Field(
        default=True,
        description="Whether it remembers useful columns, queries and repairs.",
    )
    history_limit: int = Field(
        default=6, ge=0, description="Length of the conversation that the model reads."
    )
    history_unit: Literal["entries", "turns"] = Field(
        default="entries",
        description="Unit of history_limit: messages, or questions with their answers.",
    )
    max_skills: int = Field(default=3, ge=0, description="Most skills per question.")
    sql_examples: int = Field(default=3, ge=0, le=5, description="Most SQL examples per question.")
    max_turns: Count = Field(default=12, description="Most model requests per question.")
    query_timeout: Seconds = Field(default=30, description="Seconds for a query.")
    memory_limit: Annotated[
        str, check_match(r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?B)$", "a size, such as 512MB or 2GB")
    ] = Field(
        default="512MB",
        description="Memory of all queries together, enforced by the kernel on Linux.",
    )
    threads: Count = Field(
        default=2, description="Threads of a query, and warm processes for queries."
    )
    concurrency: Count = Field(
        default=8,
        description="Most concurrent queries, and at most one per 128MB of memory_limit.",
    )
    row_filters: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={},
        description="Rows of a table that a user may see: SQL by table, such as owner = $user; "
        "* for every table. A table without the columns is closed.",
    )
    allow_save: bool = Field(
        default=True, description="Whether users may save a result as a data set."
    )
    approve_saves: bool = Field(
        default=True, description="Whether a save needs the user's approval."
    )
    approval_rows: int = Field(
        default=10_000,
        ge=0,
        description="Rows from which a download needs approval; 0 for always.",
    )
    download_ttl: Seconds = Field(default=3600, description="Seconds a download is kept.")
    files: Annotated[str, AfterValidator(check_bucket_url)] = Field(
        default="",
        description="Shared storage of charts and downloads: local:PATH or s3://BUCKET/PREFIX. "
        "Empty: the memory of their server.",
    )
    share_tools: bool = Field(
        default=False,
        description="Whether other agents and the plain chat may use its tools.",
    )
