"""`copilot-runtime traces`: find, read and compare traces."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from copilot_runtime.adapters.pricing import describe_missing_prices
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.base.formatting import (
    clean_text,
    format_count,
    format_dollars,
    format_duration,
    format_time,
    format_tokens,
)
from copilot_runtime.cli.options import HeaderOption, with_options
from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions.program import load_command_settings
from copilot_runtime.extensions.tracing.store.traces import (
    parse_filter,
    parse_seconds,
    parse_time,
    summarize_trace,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.tracing.cli.sources import TraceSource
    from copilot_runtime.extensions.tracing.stats import Step, StepDiff
    from copilot_runtime.extensions.tracing.store.records import Record

traces = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Store, such as sqlite:traces.db or jsonl:FOLDER; default: setting telemetry.store.",
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", help="URL of a running runtime to read from instead."),
]
ThreadOption = Annotated[str, typer.Option("--thread", help="Only traces of this thread.")]
AgentOption = Annotated[str, typer.Option("--agent", help="Only traces of this agent.")]
UserOption = Annotated[str, typer.Option("--user", help="Only traces of this user's runs.")]
RunOption = Annotated[str, typer.Option("--run", help="Only the trace of this run.")]
SinceOption = Annotated[
    str, typer.Option("--since", help="Start: an age such as 15m, 2h, 7d; or an ISO 8601 time.")
]
UntilOption = Annotated[str, typer.Option("--until", help="Latest start time, in the same form.")]
ErrorsOption = Annotated[bool, typer.Option("--errors", help="Only traces with an error.")]
RatingOption = Annotated[
    str, typer.Option("--rating", help="Only traces with this rating: up or down.")
]
SlowerOption = Annotated[
    str, typer.Option("--slower", help="Minimum duration, such as 2.5 (seconds) or 800ms.")
]
TextOption = Annotated[
    str,
    typer.Option(
        "--text",
        help="Search text in questions, answers, spans, models, errors; or a trace id prefix.",
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of traces.")]
IdArgument = Annotated[str, typer.Argument(help="Trace id, or a prefix of a recent one.")]

_MOST_ROWS = 100
_MOST_DELETED = 1_000_000
_RECENT = 1_000
"""Number of the newest traces that are searched for an id prefix."""


@traces.callback()
def look_at_traces() -> None:
    """Find, read and compare traces: steps, durations and costs.

    \b
    copilot-runtime traces list --since 1h --errors
    copilot-runtime traces show 4bf92f35
    copilot-runtime traces stats --since 7d
    copilot-runtime traces query "[?attributes.\\"gen_ai.tool.name\\"=='get_time']"
    copilot-runtime traces tail --url http://127.0.0.1:8000/graphql
    copilot-runtime traces list --program main:runtime

    The commands read the store of --store, by default that of the setting telemetry.store, or with
    --url a running server. The setting comes from copilot.yml and the environment, or from the
    Settings(...) of a program named by --program. By default, a server keeps traces in its memory,
    which only --url can read; set telemetry.store to sqlite:PATH to keep them in a file. With
    --workers or --reload, the default is the file .copilot/traces.db. All commands may be used
    while servers run.
    """


def open_source(
    store: StoreOption = None,
    url: UrlOption = None,
    header: HeaderOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> "TraceSource":
    """Return the source of traces: a store, or a running server."""
    from copilot_runtime.extensions.tracing.cli import sources as trace_sources

    settings = load_command_settings(program, config, has_notice=not url and not store)
    found = trace_sources.open_source(settings, url, store, header or ())
    address = trace_sources.find_address(settings)
    if not url and not store and settings.workers == 1 and address != settings.telemetry.store:
        typer.echo(
            f"These are the traces in {address}, where `serve` with --workers or --reload keeps "
            "them. Those of other servers are in their memory: ask them by --url.",
            err=True,
        )
    return found


def read_filter(
    thread: ThreadOption = "",
    agent: AgentOption = "",
    user: UserOption = "",
    run: RunOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    errors: ErrorsOption = False,
    rating: RatingOption = "",
    slower: SlowerOption = "",
    text: TextOption = "",
) -> Mapping[str, str]:
    """Return the filter as texts, validated here for better error messages than a server's."""
    parse_time(since, "--since")
    parse_time(until, "--until")
    parse_seconds(slower, "--slower")
    values = {
        "thread_id": thread,
        "agent": agent,
        "user": user,
        "run_id": run,
        "since": since,
        "until": until,
        "min_duration": slower,
        "rating": rating,
        "text": text,
        "has_error": "true" if errors else "",
    }
    parse_filter(values)
    return {name: value for name, value in values.items() if value}


@traces.command("list")
@with_options(values=read_filter, source=open_source)
def show_list(
    *,
    values: Mapping[str, str],
    limit: LimitOption = 50,
    as_json: JsonOption = False,
    source: "TraceSource",
) -> None:
    """List traces, the newest first.

    \b
    copilot-runtime traces list
    copilot-runtime traces list --agent planner --slower 5 --since 24h
    copilot-runtime traces list --rating down --since 1d
    copilot-runtime traces list --errors --json | jq -r '.traces[].trace_id'
    """

    found = [*source.list_traces(values, limit)]
    if as_json:
        show_json({"traces": found})
        return
    head = ("STARTED", "TRACE", "AGENT", "TIME", "SPANS", "TOKENS", "COST", "ENDED")
    head += ("THREAD", "RATING", "QUESTION")
    rows = [
        (
            format_time(it["start_time_unix_nano"]),
            it["trace_id"],
            it["agent"] or it["name"],
            format_duration(it["duration"]),
            it["spans"],
            format_tokens(it["input_tokens"], it["output_tokens"]),
            format_dollars(it["dollars"], it["unpriced"]) if it["model_calls"] else "",
            _describe_end(it),
            it["thread_id"],
            it.get("rating", ""),
            shorten(it["question"], 60, placeholder=" …"),
        )
        for it in found
    ]
    show_table(head, rows, "There are no such traces.")
    _explain_prices(any(it["unpriced"] for it in found))


@traces.command()
@with_options(source=open_source)
def show(
    *,
    trace_id: IdArgument,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Write a sequence diagram of Mermaid.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Draw every span of a large trace.")] = False,
    as_json: JsonOption = False,
    source: "TraceSource",
) -> None:
    """Draw a trace as a waterfall: a bar for each span, with its time, tokens and cost.

    \b
    copilot-runtime traces show 4bf92f35
    copilot-runtime traces show 4bf92f35 --mermaid > run.mmd
    copilot-runtime traces show 4bf92f35 --json | jq '.spans[].attributes'

    Failed spans have a cross, and are red in a terminal. In a large trace, similar spans share
    a line unless --all is given.
    """
    spans = _find(source, trace_id)
    if as_json:
        show_json({"spans": spans})
        return
    if mermaid:
        from copilot_runtime.extensions.tracing.mermaid import draw_sequence

        typer.echo(draw_sequence(spans))
        return
    from copilot_runtime.extensions.tracing.waterfall import draw_waterfall

    encoding = (sys.stdout.encoding or "ascii").lower()
    text = draw_waterfall(
        spans,
        width=shutil.get_terminal_size((100, 24)).columns,
        color=sys.stdout.isatty(),
        ascii_only="utf" not in encoding,
        most_rows=0 if every else _MOST_ROWS,
    )
    typer.echo(text, nl=False)
    summary = summarize_trace(spans)
    _explain_prices(summary is not None and summary.unpriced > 0)


@traces.command()
@with_options(values=read_filter, source=open_source)
def query(
    *,
    expression: Annotated[
        str, typer.Argument(metavar="JMESPATH", help="Query, evaluated per trace.")
    ],
    values: Mapping[str, str],
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    source: "TraceSource",
) -> None:
    """Find traces by a JMESPath, evaluated on the list of spans of each trace.

    \b
    copilot-runtime traces query '[?status.code == `2`]'
    copilot-runtime traces query "[?attributes.\\"gen_ai.tool.name\\"=='get_time']" --since 1d
    copilot-runtime traces query "[?attributes.\\"user.name\\"=='ann']"
    copilot-runtime traces query 'length(@) > `50`' --json

    A trace matches unless the result is null, false, 0, '' or an empty list. A span has trace_id,
    span_id, parent_span_id, name, kind (1 internal, 2 server, 3 client), start_time_unix_nano,
    end_time_unix_nano, attributes, events, status.code (2 for an error) and status.message, and
    content where it is kept, such as content."gen_ai.output.messages".
    """
    found = source.query(expression, values, limit)
    if as_json:
        show_json({"traces": [{"spans": spans} for spans in found]})
        return
    summaries = [it for spans in found if (it := summarize_trace(spans)) is not None]
    rows = [
        (
            format_time(it.start),
            it.trace_id,
            it.agent or it.name,
            format_duration(it.duration),
            it.spans,
            it.errors,
        )
        for it in summaries
    ]
    head = ("STARTED", "TRACE", "AGENT", "TIME", "SPANS", "ERRORS")
    show_table(head, rows, "No trace matches.")


@traces.command()
@with_options(values=read_filter, source=open_source)
def stats(
    *,
    values: Mapping[str, str],
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of newest traces to count.")
    ] = 1000,
    as_json: JsonOption = False,
    source: "TraceSource",
) -> None:
    """Count by agent, model and tool: calls, errors, times, tokens, cost.

    \b
    copilot-runtime traces stats --since 7d
    copilot-runtime traces stats --agent planner --json

    P50 is a time that half of the calls did not exceed, P95 one that 95 of 100 did not. Tokens
    and cost are those of requests to models; a + means that some have no known price.
    """

    found = source.stats(values, limit)
    if as_json:
        show_json(found)
        return
    if not found["traces"]:
        typer.echo("There are no such traces.", err=True)
        return
    typer.echo(
        f"{format_count(found['traces'], 'trace')}, {found['failed']} with errors, "
        f"{format_count(found['spans'], 'span')}\n"
    )
    for kind in ("agents", "models", "tools"):
        if found[kind]:
            rows = [_describe_group(it) for it in found[kind]]
            head = (kind[:-1].upper(), "CALLS", "ERRORS", "P50", "P95", "TOKENS", "COST")
            show_table(head, rows, "")
            typer.echo()
    _explain_prices(any(it["unpriced"] for it in found["models"]))


@traces.command()
@with_options(source=open_source)
def tail(
    *,
    thread: ThreadOption = "",
    as_json: JsonOption = False,
    source: "TraceSource",
) -> None:
    """Watch spans as they end, until Ctrl-C.

    \b
    copilot-runtime traces tail --url http://127.0.0.1:8000/graphql
    copilot-runtime traces tail --thread thread-1 --json | jq -r .name

    A server sends spans immediately. A store is polled once a second.
    """

    try:
        for span in source.tail({"thread_id": thread}):
            if as_json:
                typer.echo(json.dumps(span, ensure_ascii=False))
                continue
            start, end = span["start_time_unix_nano"], span["end_time_unix_nano"]
            failed = "  failed" if span["status"]["code"] == 2 else ""
            parts = (
                format_time(end),
                span["trace_id"][:8],
                format_duration((end - start) / 1e9).rjust(6),
                f"{clean_text(span['name'])}{failed}",
            )
            typer.echo("  ".join(parts))
            sys.stdout.flush()
    except KeyboardInterrupt:
        return


@traces.command()
@with_options(source=open_source)
def diff(
    *,
    before: Annotated[str, typer.Argument(metavar="A", help="A trace.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    as_json: JsonOption = False,
    source: "TraceSource",
) -> None:
    """Compare two runs step by step.

    \b
    copilot-runtime traces diff 4bf92f35 0af76519

    Steps that are only in A are marked -, steps only in B +, and steps with different tokens,
    errors or answers ~. Answers are compared if content is stored.
    """
    from dataclasses import asdict

    from copilot_runtime.extensions.tracing.stats import diff_traces

    steps = diff_traces(_find(source, before), _find(source, after))
    if as_json:
        show_json({"steps": [{"name": step.name, **asdict(step)} for step in steps]})
        return
    head = ("", "STEP", "TIME A", "TIME B", "TOKENS A", "TOKENS B", "DIFFERENCE")
    show_table(head, [_describe_diff(step) for step in steps], "Neither has a step.")


@traces.command()
@with_options(source=open_source)
def delete(
    *,
    trace_ids: Annotated[
        list[str] | None, typer.Argument(metavar="TRACE...", help="Complete trace ids.")
    ] = None,
    user: Annotated[str, typer.Option("--user", help="All traces of this user's runs.")] = "",
    source: "TraceSource",
) -> None:
    """Delete traces permanently.

    \b
    copilot-runtime traces delete 4bf92f3577b34da6a3ce929d0e0e4736
    copilot-runtime traces delete --user ann

    The setting telemetry.retention is the age in seconds at which traces are deleted
    automatically.
    """

    if not trace_ids and not user:
        raise Misuse("Give trace ids, or a user with --user.")
    ids = [*(trace_ids or ())]
    if user:
        ids += [it["trace_id"] for it in source.list_traces({"user": user}, _MOST_DELETED)]
    for trace_id in ids:
        source.delete(trace_id)
    typer.echo(f"Deleted {format_count(len(ids), 'trace')}.", err=True)


@traces.command("export")
@with_options(values=read_filter, source=open_source)
def write_out(
    *,
    file: Annotated[
        Path | None, typer.Argument(help="File to write; default or -: standard output.")
    ] = None,
    values: Mapping[str, str],
    limit: LimitOption = 100_000,
    source: "TraceSource",
) -> None:
    """Write traces as JSON Lines: one span per line, the newest trace first.

    \b
    copilot-runtime traces export --since 1d traces.jsonl
    copilot-runtime traces export --errors | gzip > errors.jsonl.gz
    """

    count = 0
    is_file = file is not None and str(file) != "-"
    target = cast("Path", file) if is_file else Path("/dev/stdout")
    try:
        with target.open("w", encoding="utf-8") as out:
            for trace in source.list_traces(values, limit):
                for span in source.get_trace(trace["trace_id"]):
                    out.write(json.dumps(span, ensure_ascii=False) + "\n")
                count += 1
    except BrokenPipeError:  # its reader has enough
        raise typer.Exit(1) from None
    except OSError as error:
        raise ConfigurationFailed(f"{target} cannot be written: {error.strerror}.") from None
    typer.echo(f"Exported {format_count(count, 'trace')}.", err=True)


@traces.command("import")
def read_in(
    file: Annotated[
        Path | None, typer.Argument(help="File to read; default or -: standard input.")
    ] = None,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Import spans into a store: output of `export` or `show --json`, OTLP JSON, or a file of VS
    Code's exporter.

    \b
    copilot-runtime traces import traces.jsonl --store sqlite:traces.db
    gunzip -c errors.jsonl.gz | copilot-runtime traces import --store sqlite:errors.db

    The whole file is validated before spans are written. Existing spans are replaced.
    """
    from copilot_runtime.extensions.tracing.cli.sources import StoreSource, find_address

    try:
        text = sys.stdin.read() if file is None or str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigurationFailed(f"{file} cannot be read: {error}.") from None
    spans = [*_parse_spans(text)]
    settings = load_command_settings(program, config, has_notice=store is None)
    address = store or find_address(settings)
    StoreSource(address, is_new=True).add_spans(spans)
    count = len({span["trace_id"] for span in spans})
    typer.echo(
        f"Read {format_count(len(spans), 'span')} of {format_count(count, 'trace')}.", err=True
    )


def _find(source: "TraceSource", trace_id: str) -> "list[Record]":
    """Return the spans of a trace by its id, or by a unique prefix of a recent trace's id."""
    if len(trace_id) >= 32 or not trace_id:
        return source.get_trace(trace_id)
    found = [
        it["trace_id"]
        for it in source.list_traces({}, _RECENT)
        if it["trace_id"].startswith(trace_id)
    ]
    if len(found) > 1:
        raise ConfigurationFailed(
            f"{len(found)} traces begin with {trace_id!r}: {', '.join(found[:3])} …",
            hint="Give a longer prefix.",
        )
    return source.get_trace(found[0] if found else trace_id)


def _parse_spans(text: str) -> "Iterator[Record]":
    """Yield the spans in a text. Raises `Misuse` with the line number for anything else."""
    from copilot_runtime.extensions.tracing.otlp import OtlpError, decode_spans
    from copilot_runtime.extensions.tracing.store.records import decode_value, encode_span

    for number, value in _read_values(text):
        if isinstance(value, dict) and "resourceSpans" in value:
            try:
                batch = decode_spans(value, keeps_content=True)
            except OtlpError as error:
                raise Misuse(f"Line {number} is not valid OTLP: {error}") from None
            if batch.rejected:
                raise Misuse(f"Line {number} has {batch.rejected} invalid spans: {batch.reason}")
            yield from map(encode_span, batch.spans)
            continue
        for span in _list_spans(value):
            try:
                yield encode_span(decode_value(span))
            except Misuse as error:
                reason = error.message.removesuffix(".")
                raise Misuse(f"Line {number} is not a span: {reason}.") from None


def _read_values(text: str) -> Iterator[tuple[int, Any]]:
    """Yield line numbers and JSON values of a text: a single value, or one value per line."""
    try:
        yield 1, json.loads(text)
        return
    except ValueError:
        pass
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError:
                raise Misuse(f"Line {number} is not valid JSON.") from None


def _list_spans(value: Any) -> Iterable[Any]:
    match value:
        case {"spans": list(spans)} | list(spans):
            return cast("list[Any]", spans)
        case _:
            return [value]


def _describe_end(trace: Mapping[str, Any]) -> str:
    outcome = trace["outcome"] or ("failed" if trace["errors"] else "")
    if outcome == "interrupted":
        outcome = "asked a question"
    return f"{outcome} ({trace['error_type']})" if trace["error_type"] else outcome


def _explain_prices(is_unpriced: bool) -> None:
    """Print to stderr how to install the prices, if requests have none for want of them."""
    if is_unpriced and (missing := describe_missing_prices()):
        typer.echo(missing, err=True)


def _describe_group(group: Mapping[str, Any]) -> Sequence[Any]:
    tokens = format_tokens(group["input_tokens"], group["output_tokens"])
    has_cost = group["dollars"] or group["unpriced"]
    return (
        group["name"],
        group["count"],
        group["errors"],
        format_duration(group["p50"]),
        format_duration(group["p95"]),
        tokens,
        format_dollars(group["dollars"], group["unpriced"]) if has_cost else "",
    )


def _describe_diff(step: "StepDiff") -> Sequence[Any]:
    sign = {"same": " ", "changed": "~", "removed": "-", "added": "+"}[step.state]
    changes = [_describe_change(step, name) for name in step.changes if "tokens" not in name]
    return (
        sign,
        "  " * step.depth + step.name,
        _describe_time(step.before),
        _describe_time(step.after),
        _describe_tokens(step.before),
        _describe_tokens(step.after),
        ", ".join(changes),
    )


def _describe_change(step: "StepDiff", name: str) -> str:
    assert step.before is not None and step.after is not None
    if name == "error":
        return f"{step.before.error or 'no error'} → {step.after.error or 'no error'}"
    return name


def _describe_time(step: "Step | None") -> str:
    return "" if step is None else format_duration(step.seconds)


def _describe_tokens(step: "Step | None") -> str:
    return "" if step is None else format_tokens(step.input_tokens or 0, step.output_tokens or 0)
