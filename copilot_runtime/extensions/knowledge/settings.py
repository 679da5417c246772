"""The section of the settings for resources that are searched, and its variables."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.config.checks import check_bucket_url, check_store_url
from copilot_runtime.config.section import (
    Count,
    Override,
    SecondsOrNone,
    Section,
    SectionVariables,
    Words,
    read_object,
)

KNOWLEDGE_TOOLS = ("search_content", "query_by_pattern", "get_ontology", "get_subjects", "recall")
"""The names of the knowledge tools that models and agents have by default."""

REMEMBER = "remember"
"""The name of the tool that writes: into the memories of the person who asks."""

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]+$")


class KnowledgeSettings(Section):
    """Resources that models and agents may search; enabled by a storage or sources."""

    storage: Annotated[str, AfterValidator(check_bucket_url)] = Field(
        default="",
        description="Where knowledge is stored: local:PATH, memory, or s3://BUCKET/PREFIX. "
        "Empty: local:.copilot/knowledge if there are sources.",
    )
    sources: Words = Field(
        default=(),
        description="Files and folders to ingest at startup: HTML, Markdown, PDF, DOCX, XLSX, "
        "PPTX, CSV, text.",
    )
    watch: SecondsOrNone = Field(
        default=2,
        description="Seconds between looks for new, changed and deleted files; 0 for only at "
        "startup.",
    )
    base: str = Field(
        default="https://example.invalid/",
        description="Base IRI of relative identifiers in HTML.",
    )
    policy: str = Field(
        default="",
        description="File or folder of rules: .yml, .cedar or .rego. Empty: all users may read "
        "resources without an owner.",
    )
    embedder: str = Field(
        default="auto",
        min_length=1,
        description="Embedder, with a model after a colon: openai:text-embedding-3-small. "
        "hashing compares words and needs no model; auto takes minilm if installed, "
        "else hashing.",
    )
    embedder_options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Arguments of the embedder, such as model.",
        repr=False,  # it may hold a key
    )
    graph_options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Options of the graph, such as prefixes and limits of SPARQL.",
    )
    vector_engine: Literal["exact", "faiss"] = Field(
        default="exact",
        description="Vector search: exact compares all vectors; faiss, an extra, those in the "
        "nearest clusters, for millions.",
    )
    vector_database: Annotated[str, AfterValidator(check_store_url)] = Field(
        default="",
        description="Database for vectors: postgresql://... with pgvector. Empty: the storage "
        "of the resources.",
        repr=False,  # an address may hold a password
    )
    tools: Words = Field(
        default=KNOWLEDGE_TOOLS,
        description="Tools for models and agents. Also remember, which writes into the person's "
        "memories.",
    )
    tool_tokens: Count = Field(default=2000, description="Largest result of a tool, in tokens.")
    retrieval: bool = Field(
        default=True,
        description="Whether the plain chat gets passages for each question.",
    )
    retrieval_limit: Count = Field(default=5, description="Most passages.")
    retrieval_tokens: Count = Field(
        default=2000, description="Largest total size of these passages, in tokens."
    )
    retrieval_threshold: float | None = Field(
        default=0.15,
        ge=-1,
        le=1,
        description="Least similarity of passage and question, from -1 to 1. Null: 0.",
    )
    uploads: Literal["thread", "owner", "off"] = Field(
        default="thread",
        description="Where files attached in the plain chat are found: in their thread, in all "
        "threads of their owner, or off (not stored).",
    )
    upload_bytes: Count = Field(default=10 * 1024 * 1024, description="Largest file.")
    upload_files: Count = Field(default=20, description="Most files in a thread.")
    upload_total: Count = Field(
        default=200 * 1024 * 1024, description="Largest total size of an owner's files."
    )
    upload_tokens: Count = Field(
        default=4000, description="Most file content for the model, in tokens."
    )
    context_tokens: Count = Field(
        default=8000,
        description="Size of optimised context windows, in tokens.",
    )
    link: str = Field(
        default="",
        description="Origin in links of citations, such as https://chat.example.com. Empty: "
        "relative links.",
    )

    suggestions: Words = Field(default=(), description="Suggested questions on the chat page at /.")

    @field_validator("base")
    @classmethod
    def _is_iri(cls, text: str) -> str:
        if _IRI.match(text) is None:
            raise ValueError("it is not an IRI, such as https://example.com/")
        return text

    @field_validator("link")
    @classmethod
    def _is_origin(cls, text: str) -> str:
        if text and not text.startswith(("http://", "https://")):
            raise ValueError("it is not an address, such as https://chat.example.com")
        return text.rstrip("/")

    @field_validator("tools")
    @classmethod
    def _are_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        tools = (*KNOWLEDGE_TOOLS, REMEMBER)
        if unknown := [name for name in names if name not in tools]:
            raise ValueError(f"there is no tool {unknown[0]!r}; there are {', '.join(tools)}")
        return names

    @property
    def address(self) -> str:
        """The URL of the storage; empty if knowledge is not configured."""
        return self.storage or ("local:.copilot/knowledge" if self.sources else "")


def read_storage(section: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Override]:
    """Yield the override of `knowledge.storage`, if the settings leave it open."""
    if storage := _find_storage(section, environ):
        yield Override("storage", storage, "STORAGE_TYPE")


def _find_storage(section: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the storage that the variables of Copilot-LD name, or an empty text.

    These names are not ours alone. So they only say where knowledge is, and a bucket that is named
    has some; `STORAGE_TYPE=local` in the environment of another program changes nothing.
    """
    kind = environ.get("STORAGE_TYPE", "")
    bucket = environ.get("S3_BUCKET") or environ.get("S3_BUCKET_NAME", "")
    if section.get("storage"):
        return ""
    if kind == "s3" and bucket:
        region = environ.get("S3_REGION", "")
        return f"s3://{bucket}?region={region}" if region else f"s3://{bucket}"
    if not kind or not section.get("sources"):
        return ""
    if kind not in ("local", "memory"):
        wrong = "S3_BUCKET is not set" if kind == "s3" else "there are local, memory and s3"
        raise ConfigurationFailed(
            f"The environment variable STORAGE_TYPE is {kind!r}, but {wrong}.",
            hint="Set knowledge.storage in copilot.yml, such as s3://bucket/prefix.",
        )
    return "memory" if kind == "memory" else ""


KNOWLEDGE = SectionVariables(section="knowledge", read_after=read_storage)
