"""`copilot-runtime knowledge ingest`: take files into knowledge."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.progress import ProgressBar
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions import knowledge as lazy  # has `Knowledge`, imported on first use
from copilot_runtime.extensions.knowledge.cli import StorageOption, run_with_knowledge

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.ingestion import IngestReport
    from copilot_runtime.extensions.knowledge.vectors import EmbeddingReport

_STEPS = {"read": "Reading", "store": "Storing", "embed": "Embedding", "link": "Linking"}
_MOST_NAMES = 20
"""Maximum number of file names printed per group; JSON output has all."""


def ingest(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Files, folders and patterns in quotes; default: the setting knowledge.sources.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Base IRI of pages; default: the setting knowledge.base."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files to read, without storing anything.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait while another ingestion of this storage runs.")
    ] = False,
    as_json: JsonOption = False,
    storage: StorageOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Ingest documents: read new and changed files, and remove deleted ones.

    \b
    copilot-runtime knowledge ingest pages
    copilot-runtime knowledge ingest 'docs/**/*.md' manual.pdf --dry-run
    copilot-runtime knowledge ingest pages --base https://intranet.example/kb/ --json
    copilot-runtime knowledge ingest --program main:runtime

    HTML with Schema.org annotations becomes entities; other HTML, Markdown, PDF, DOCX, XLSX,
    PPTX, CSV and text become chunks with their positions. The exit status is 1 if a file could
    not be read, or a resource not embedded. An interrupted ingestion is resumed by the next call.
    Servers may run meanwhile.

    Use --program for a program with its own Knowledge(...) or Settings(...).
    """
    failed = False

    async def work(knowledge: "lazy.Knowledge") -> None:
        nonlocal failed
        sources = paths or knowledge.sources
        if not sources:
            raise ConfigurationFailed(
                "There is nothing to take in.",
                hint="Name files or folders, or set knowledge.sources.",
            )
        if not dry_run:
            await knowledge.embedder.check_key()  # before anything is read
        bar = ProgressBar()

        def progress(step: str, done: int, total: int) -> None:
            bar.show(_STEPS.get(step, step), done, total)

        knowledge.base = base or knowledge.base
        report = await knowledge.ingestion.run(
            sources,
            lambda step: progress(step.stage, step.done, step.total),
            wait=wait,
            dry_run=dry_run,
        )
        vectors = None if dry_run else (await knowledge.update([], progress)).vectors
        bar.clear()
        failed = bool(report.failed or (vectors and vectors.failed))
        if as_json:
            encoded = {**report.encode(), "dry_run": dry_run}
            show_json(encoded | {"vectors": _encode_vectors(vectors)} if vectors else encoded)
        else:
            _show_report(report, vectors)

    run_with_knowledge(program, config, storage, work, with_sources=not paths)
    raise typer.Exit(1 if failed else 0)


def _encode_vectors(report: "EmbeddingReport") -> JsonObject:
    return {
        "added": report.added,
        "changed": report.changed,
        "removed": report.removed,
        "failed": {**report.failed},
        "tokens": report.tokens,
        "dollars": None if report.dollars is None else float(report.dollars),
    }


def _show_report(report: "IngestReport", vectors: "EmbeddingReport | None") -> None:
    """Print a report; without vectors, that of a dry run."""
    dry_run = vectors is None
    rows: list[tuple[str, Any]] = [
        ("files new", len(report.new)),
        ("files changed", len(report.changed)),
        ("files unchanged", report.unchanged),
        ("files removed", len(report.removed)),
        ("files skipped", len(report.skipped)),
        ("files failed", len(report.failed)),
    ]
    if vectors is not None:
        rows += [
            ("resources stored", report.resources),
            ("resources removed", report.deleted),
            ("triples stored", report.triples),
            ("resources embedded", vectors.added + vectors.changed),
            ("resources not embedded", len(vectors.failed)),
        ]
        if vectors.tokens:
            rows.append(("tokens embedded", vectors.tokens))
        if vectors.dollars is not None:
            rows.append(("US dollars for them", f"{vectors.dollars:.4f}"))
        rows.append(("seconds", f"{report.seconds + vectors.seconds:.2f}"))
    show_table(("WHAT", "COUNT"), rows, "")
    not_embedded = {} if vectors is None else vectors.failed
    details = [
        *((name, "new") for name in (report.new if dry_run else ())),
        *((name, "changed") for name in (report.changed if dry_run else ())),
        *((name, "would be removed" if dry_run else "removed") for name in report.removed),
        *((name, f"skipped: {media_type}") for name, media_type in report.skipped.items()),
        *((pattern, "fits no file") for pattern in report.unmatched),
        *((name, "nothing to take in") for name in report.empty),
        *((name, f"in part: {' '.join(texts)}") for name, texts in report.warnings.items()),
        *((name, f"failed: {reason}") for name, reason in report.failed.items()),
        *((uri, f"not embedded: {reason}") for uri, reason in not_embedded.items()),
    ]
    if details:
        typer.echo()
        latest = details[-_MOST_NAMES:]
        show_table(("FILE", "WHAT"), latest, "")
        if len(details) > len(latest):
            typer.echo(f"  and {len(details) - len(latest)} more: --json has all of them")
