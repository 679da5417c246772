"""The section of the settings for an agent that answers questions about data."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from copilot_runtime.config.checks import check_bucket_url, check_store_url
from copilot_runtime.config.section import (
    Count,
    Seconds,
    SecondsOrNone,
    Section,
    Words,
    check_match,
    read_object,
)


def _check_urls(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if re.match(r"(\w+=)?postgres(ql)?://", text):
            check_store_url(text)
    return texts


class AnalystSettings(Section):
    """An agent that answers questions about data with SQL that it can only read with."""

    name: Annotated[str, check_match(r"^[A-Za-z0-9_-]*$", "of letters, digits, _ and - alone")] = (
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
        description="Folder of the operator's files: schema hints, metrics, SQL examples, "
        "skills and tests. None of it has to be there.",
    )
    model: str = Field(
        default="", description="Model that answers. Empty: the adapter's. Also LLM_MODEL_NAME."
    )
    framework: Literal["own", "openai-agents", "pydantic-ai"] = Field(
        default="own", description="The agent loop: our own, or that of an SDK."
    )
    instructions: str = Field(
        default="",
        description="Additional instructions for its model.",
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
        description="Unit of history_limit: messages, or questions with their answers.",
    )
    max_skills: int = Field(default=3, ge=0, description="Most skills for one question.")
    sql_examples: int = Field(
        default=3, ge=0, le=5, description="Most examples of SQL for one question."
    )
    max_turns: Count = Field(default=12, description="Most requests to the model for a question.")
    query_timeout: Seconds = Field(default=30, description="Seconds that one query may take.")
    memory_limit: Annotated[
        str, check_match(r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?B)$", "a size, such as 512MB or 2GB")
    ] = Field(default="512MB", description="Memory that queries may take together.")
    threads: Count = Field(default=2, description="Threads that queries may take together.")
    concurrency: Count = Field(default=8, description="Most queries at the same time.")
    row_filters: Annotated[Mapping[str, str], BeforeValidator(read_object)] = Field(
        default={},
        description="Which rows of a table a user may see: SQL by the name of the table, such as "
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
