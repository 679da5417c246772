"""`copilot-runtime analyst`: set it up, ask, look at data, test answers, and edit its memory."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.formatting import clean_text
from copilot_runtime.base.jsonvalue import JsonObject, as_objects, get_text
from copilot_runtime.cli.options import GlobCommand, HeaderOption
from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.threads import ConfigOption

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.cli.client import AnalystClient


T = TypeVar("T")

analyst = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
memory = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
analyst.add_typer(memory, name="memory")

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="URL of a running runtime; by default, the command runs its own server.",
        envvar="COPILOT_URL",
    ),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        "-d",
        help="Data in place of the setting analyst.data: a CSV, XLSX, Parquet or DuckDB file, a "
        "glob such as 'data/*.csv', or a postgresql:// address. May be given several times.",
    ),
]
TableOption = Annotated[str, typer.Option("--table", help="Only entries about this table.")]
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id as shown by `copilot-runtime analyst memory list`.")
]

_BAR = 24
_LOOK_AGAIN = 0.3


@analyst.callback()
def start() -> None:
    """Ask questions about data, and get verifiable answers.

    \b
    copilot-runtime analyst ask 'Which region sells most?' --data sales.csv
    copilot-runtime analyst datasets --data sales.csv
    copilot-runtime analyst init

    The analyst reads CSV, XLSX, Parquet and DuckDB files and PostgreSQL databases, and never
    writes to them. It needs `pip install 'copilot-runtime[analyst]'`.
    """


@analyst.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the files.")] = Path("custom/config"),
) -> None:
    """Write commented example files for the analyst's configuration. Overwrites no files.

    \b
    copilot-runtime analyst init
    copilot-runtime analyst init deploy/analyst

    schema_hints.yaml says what columns mean, metric_catalog.yaml defines metrics, sql_examples/ has
    questions with their SQL, skills/ has instructions for some questions, and tests/ has questions
    with the right answers. None is required.
    """
    for path, is_new in write_examples(folder):
        typer.echo(f"{'wrote' if is_new else 'kept '}  {path}")
    place = "" if folder == Path("custom/config") else f"\n  folder: {folder}"
    typer.echo(f"\nWhat copilot.yml needs, with your data:\n\n{SETTINGS}{place}")


@analyst.command(cls=GlobCommand)
def ask(
    question: Annotated[
        str | None, typer.Argument(help="The question; by default, the standard input.")
    ] = None,
    url: UrlOption = None,
    data: DataOption = None,
    agent: Annotated[
        str, typer.Option(help="Name of the agent on the server: its setting analyst.name.")
    ] = "analyst",
    header: HeaderOption = None,
    png: Annotated[
        Path | None, typer.Option("--png", help="Write the chart into this file.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Approve all requests, such as saving rows.")
    ] = False,
    as_json: JsonOption = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Write only the last table, as CSV.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Ask a question, and show the steps and the answer.

    \b
    copilot-runtime analyst ask 'Which region sells most?' --data sales.csv
    copilot-runtime analyst ask 'Show the average score by month as a chart' --png chart.png
    copilot-runtime analyst ask 'Orders of March' --csv > march.csv
    copilot-runtime analyst ask 'How many orders are there?' --url http://127.0.0.1:8000/graphql

    The steps are printed first: lookups, SQL and repairs. Then follow the answer, its table and its
    chart: as an image in iTerm2, WezTerm, kitty and Ghostty, elsewhere as text. The last lines show
    the confidence in the answer, and its SQL.

    Without --url, the command runs its own server, with the settings of copilot.yml and the model
    of `copilot-runtime serve`. Ctrl-C stops the question and its SQL. The exit status is 1 if there
    is no answer, and 3 if a person must approve something and could not be asked.
    """
    from copilot_runtime.extensions.analyst.cli.ask import AskOptions, ask_question

    options = AskOptions(
        url=url,
        agent=agent,
        headers=header or (),
        config=config,
        data=data or (),
        png=png,
        is_approved=yes,
        as_json=as_json,
        as_csv=as_csv,
    )
    raise typer.Exit(ask_question(question, options))


@analyst.command(cls=GlobCommand)
def datasets(
    url: UrlOption = None,
    data: DataOption = None,
    header: HeaderOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the data sets, with their numbers of rows and columns.

    \b
    copilot-runtime analyst datasets
    copilot-runtime analyst datasets --data 'data/*.parquet' --json

    SCHEMA is a fingerprint of the columns and their types. Memory is stored per fingerprint, so a
    data set with a new schema starts without memory. While data are loaded, progress bars are
    shown. The exit status is 1 if a source cannot be read.
    """

    async def work(client: "AnalystClient") -> JsonObject:
        found: JsonObject = {}
        looks = 0
        while not looks or found.get("is_loading") or found.get("progress"):
            if looks:
                await asyncio.sleep(_LOOK_AGAIN)  # the server sends no event for it
            looks += 1
            found = await client.list_datasets()
            _draw_progress(as_objects(found.get("progress")))
        return found

    answer = _run(work, url, header, data, config)
    found, problems = as_objects(answer.get("datasets")), as_objects(answer.get("problems"))
    if as_json:
        show_json({"datasets": found, "problems": problems})
        raise typer.Exit(1 if problems else 0)
    head = ("DATA SET", "ROWS", "COLUMNS", "SCHEMA", "SOURCE")
    rows = [
        (
            get_text(one, "name"),
            f"{one.get('row_count') or 0:,}",
            str(len(as_objects(one.get("columns")))),
            get_text(one, "fingerprint"),
            get_text(one, "source") or get_text(one, "description"),
        )
        for one in found
    ]
    show_table(head, rows, "There are no data sets.")
    for one in found:
        if about := get_text(one, "description"):
            typer.echo(f"{get_text(one, 'name')}: {clean_text(about)}")
    for one in problems:
        typer.echo(f"! {get_text(one, 'problem')}", err=True)
    raise typer.Exit(1 if problems else 0)


@analyst.command(cls=GlobCommand)
def test(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER or FILES]", help="Default: tests in analyst.folder."),
    ] = None,
    data: DataOption = None,
    parallel: Annotated[
        int,
        typer.Option(
            "--parallel", "-n", min=1, max=64, help="Maximum number of concurrent questions."
        ),
    ] = 4,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Timeout of each question, in seconds.")
    ] = 120,
    report: Annotated[Path | None, typer.Option("--report", help="Write a JSON report.")] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write a JUnit XML report.")] = None,
    config: ConfigOption = None,
) -> None:
    """Ask questions with known answers, and compare the rows.

    \b
    copilot-runtime analyst test
    copilot-runtime analyst test custom/config/tests --junit report.xml
    copilot-runtime analyst test questions.yaml --data sales.csv

    A file contains questions, each with the SQL of its expected answer. Rows are compared as sets,
    numbers with a tolerance. `expect: refusal` is for questions that the data cannot answer, and
    that the analyst should refuse. The exit status is 1 if an answer is wrong.
    """
    from copilot_runtime.extensions.analyst.extension import check_packages

    check_packages()
    from copilot_runtime.extensions.analyst.cli.evaluate import TestOptions, run_tests

    options = TestOptions(
        files=files or (),
        config=config,
        data=data or (),
        parallel=parallel,
        timeout=timeout,
        report=report,
        junit=junit,
    )
    raise typer.Exit(run_tests(options))


@memory.callback()
def look_after_memory() -> None:
    """List and change the analyst's memory of questions.

    \b
    copilot-runtime analyst memory list --table orders
    copilot-runtime analyst memory pin 3f2a
    copilot-runtime analyst memory forget 3f2a

    It contains useful columns, SQL patterns and repairs, but no values. Unused entries lose weight
    and are deleted eventually; pinned entries are kept.
    """


@memory.command("list")
def list_memories(
    table: TableOption = "",
    url: UrlOption = None,
    header: HeaderOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the memory entries, with the ids for the other commands."""
    found = _run(lambda client: client.list_memories(table), url, header, None, config)
    if as_json:
        show_json({"memories": found})
        return
    head = ("ID", "TABLE", "KIND", "WEIGHT", "TEXT")
    rows = [
        (
            get_text(one, "id"),
            get_text(one, "table"),
            get_text(one, "kind"),
            "pinned" if one.get("is_pinned") else f"{one.get('hits') or 0:.1f}",
            get_text(one, "text"),
        )
        for one in found
    ]
    show_table(head, rows, "Nothing is remembered.")


@memory.command()
def edit(
    id: IdArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new text.")],
    url: UrlOption = None,
    header: HeaderOption = None,
    config: ConfigOption = None,
) -> None:
    """Replace the text of a memory entry.

    \b
    copilot-runtime analyst memory edit 3f2a 'Revenue is without tax.'
    """
    _run(lambda client: client.change_memory(id, {"text": text}), url, header, None, config)


@memory.command()
def pin(
    id: IdArgument,
    release: Annotated[bool, typer.Option("--release", help="Unpin the entry.")] = False,
    url: UrlOption = None,
    header: HeaderOption = None,
    config: ConfigOption = None,
) -> None:
    """Pin a memory entry, so that it is kept even if it is not used.

    \b
    copilot-runtime analyst memory pin 3f2a
    copilot-runtime analyst memory pin 3f2a --release
    """
    values = {"is_pinned": not release}
    _run(lambda client: client.change_memory(id, values), url, header, None, config)


@memory.command()
def forget(
    id: IdArgument,
    url: UrlOption = None,
    header: HeaderOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete a memory entry, effective from the next question."""
    _run(lambda client: client.forget(id), url, header, None, config)


def _run(
    work: "Callable[[AnalystClient], Awaitable[T]]",
    url: str | None,
    headers: Sequence[str] | None,
    data: Sequence[str] | None,
    config: Path | None,
) -> T:
    """Run an operation on a server's analyst, or on an analyst in this process."""
    from copilot_runtime.extensions.analyst.cli.client import AnalystClient, serve_here

    async def run() -> T:
        async with AsyncExitStack() as stack:
            here = None if url else await stack.enter_async_context(serve_here(config, data or ()))
            client = AnalystClient(here[0] if here else url or "", headers or ())
            return await work(await stack.enter_async_context(aclosing(client)))

    return asyncio.run(run())


def _draw_progress(progress: Sequence[JsonObject]) -> None:
    """Draw a bar for each loading data set, replacing the previous bars."""
    if not sys.stderr.isatty():
        return
    for one in progress:
        rows, total = one.get("rows") or 0, one.get("total")
        part = min(1.0, rows / total) if total else 0.0
        bar = "█" * round(part * _BAR)
        typer.echo(f"\r\x1b[K{get_text(one, 'name')} {bar:░<{_BAR}} {rows:,} rows", err=True)
    if progress:
        typer.echo(f"\x1b[{len(progress)}F", nl=False, err=True)


_TEMPLATES = Path(__file__).parent / "templates"

SETTINGS = """analyst:
  name: analyst
  data: [data/*.csv]       # also .parquet, .duckdb, postgresql://…"""
"""The section of `copilot.yml` that enables the analyst."""


def write_examples(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Write each example file; yield its path and `True` if it was written.

    Existing files are not changed. Raises `ConfigurationFailed` for an unwritable folder.
    """
    templates = [path for path in _TEMPLATES.rglob("*") if path.suffix in (".yaml", ".md")]
    for template in sorted(templates):
        path = folder / template.relative_to(_TEMPLATES)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(template.read_text(encoding="utf-8"))
        except FileExistsError:
            if not path.parent.is_dir():
                raise ConfigurationFailed(f"{str(path.parent)!r} is a file, no folder.") from None
            yield path, False
        except OSError as error:
            raise ConfigurationFailed(f"{str(path)!r} cannot be written: {error}") from error
        else:
            yield path, True
