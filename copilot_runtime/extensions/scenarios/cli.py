"""The command `copilot-runtime test`: plays scenarios and reports the results."""

import asyncio
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.cli.options import HeaderOption
from copilot_runtime.cli.threads import ConfigOption

if TYPE_CHECKING:
    from copilot_runtime.api.adapter import Adapter
    from copilot_runtime.extensions.scenarios.files import Place
    from copilot_runtime.extensions.scenarios.report import Report
    from copilot_runtime.extensions.scenarios.runner import Progress, RunOptions
    from copilot_runtime.extensions.scenarios.target import Target
    from copilot_runtime.extensions.settings import Settings

_FAILED = 1
_UNUSABLE = 2
_INTERRUPTED = 130
_ENDS = 30.0
"""Seconds added to the scenario timeout for requests, startup and shutdown."""
_OF_TESTS: Mapping[str, str] = {
    "COPILOT_THREADS": "memory",
    "COPILOT_THREAD_NAMES": "false",
    "COPILOT_PLANNER_STORE": "memory",
    "COPILOT_EVENTS_STORE": "memory",
    "COPILOT_TELEMETRY_STORE": "memory",
    "COPILOT_TELEMETRY_CONTENT": "local",
    "COPILOT_TELEMETRY_EXPORT": "false",
}
"""Settings for tests, so that they store nothing and send no telemetry."""

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FOLDER or FILES]", help="Default: this folder."),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target", "-t", metavar="MODULE:NAME", help="The application to test, as for serve."
    ),
]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="URL of a running runtime to test instead.")
]
PathOption = Annotated[
    str | None, typer.Option("--path", help="Path of the runtime in an ASGI application.")
]
NameOption = Annotated[
    list[str] | None,
    typer.Option("--filter", "-k", help="Only scenarios with this in their name; * is a wildcard."),
]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="Only scenarios with this tag.")]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", help="Play with this model, such as gpt-4o or anthropic:NAME."),
]
JudgeOption = Annotated[str | None, typer.Option("--judge", help="Default judge model.")]
RepeatOption = Annotated[
    int | None,
    typer.Option("--repeat", min=1, max=1000, help="Number of repetitions of each scenario."),
]
RateOption = Annotated[
    float | None,
    typer.Option("--pass-rate", min=0, max=1, help="Fraction of repetitions that must pass."),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=0.001, help="Timeout of each repetition, in seconds."),
]
ParallelOption = Annotated[
    int,
    typer.Option("--parallel", "-n", min=1, max=256, help="Maximum number of concurrent attempts."),
]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Only scripted models, and no network connections.")
]
LiveOption = Annotated[
    bool, typer.Option("--live", help="Use real models even for scenarios with a script.")
]
ReportOption = Annotated[Path | None, typer.Option("--report", help="Write a JSON report.")]
JunitOption = Annotated[Path | None, typer.Option("--junit", help="Write a JUnit XML report.")]
MarkdownOption = Annotated[Path | None, typer.Option("--markdown", help="Write a Markdown report.")]
ListOption = Annotated[
    bool, typer.Option("--list", help="List the scenarios without playing them.")
]


def test(
    files: FilesArgument = None,
    target: TargetOption = None,
    url: UrlOption = None,
    header: HeaderOption = None,
    path: PathOption = None,
    name: NameOption = None,
    tag: TagOption = None,
    model: ModelOption = None,
    judge: JudgeOption = None,
    repeat: RepeatOption = None,
    pass_rate: RateOption = None,
    timeout: TimeoutOption = None,
    parallel: ParallelOption = 4,
    offline: OfflineOption = False,
    live: LiveOption = False,
    report: ReportOption = None,
    junit: JunitOption = None,
    markdown: MarkdownOption = None,
    only_list: ListOption = False,
    config: ConfigOption = None,
) -> None:
    """Play the conversations of *.test.yml files, and check answers.

    \b
    copilot-runtime test
    copilot-runtime test tests --offline --junit report.xml
    copilot-runtime test chat.test.yml --target main:runtime -k weather
    copilot-runtime test --model gpt-4o --model anthropic:claude-sonnet-4-5 --repeat 5
    copilot-runtime test --url http://127.0.0.1:8000/graphql

    The application is the one of copilot.yml or of --target, in this process. Its writes
    stay in memory, and its stores are not changed. The exit status is 1 if a scenario did not pass,
    2 if a file or an option cannot be used, and 130 after Ctrl-C, which still reports the results
    so far.
    """
    from copilot_runtime.extensions.scenarios.files import load_scenarios
    from copilot_runtime.extensions.scenarios.runner import RunOptions

    with _explain_unusable():
        _check_options(
            url=url,
            target=target,
            path=path,
            header=header,
            model=model,
            offline=offline,
            live=live,
        )
        places = _select(load_scenarios(files or [Path()]), name or (), tag or ())
        if only_list:
            _show_list(places)
            return
        for file in (report, junit, markdown):
            _check_folder(file)
        options = RunOptions(
            models=model or (),
            repeat=repeat,
            pass_rate=pass_rate,
            timeout=timeout,
            parallel=parallel,
        )
        result = _run(
            places,
            options,
            lambda: _open_target(
                target,
                url,
                header or (),
                path,
                config,
                is_offline=offline,
                signs_in=any(place.scenario.user is not None for place in places),
                timeout=_ENDS + max(timeout or place.scenario.timeout for place in places),
            ),
            lambda result: _write_reports(result, report, junit, markdown),
            judge_model=judge,
            is_offline=offline,
            is_live=live or bool(model and not offline),
        )
    if result.is_interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not result.is_passed:
        raise typer.Exit(_FAILED)


def _run(
    places: "Sequence[Place]",
    options: "RunOptions",
    open_target: "Callable[[], tuple[Target, str]]",
    write: "Callable[[Report], None]",
    *,
    judge_model: str | None,
    is_offline: bool,
    is_live: bool,
) -> "Report":
    """Play the scenarios, write the reports, and return the results."""
    from copilot_runtime.extensions.scenarios.attempt import Player
    from copilot_runtime.extensions.scenarios.runner import refuse_network, run_scenarios

    async def run() -> "Report":
        target, name = open_target()
        report: Report | None = None
        try:
            async with target.open():
                player = Player(
                    target, is_offline=is_offline, is_live=is_live, judge_model=judge_model
                )
                async with aclosing(player):
                    with _show_progress() as show:
                        result = await run_scenarios(places, player, options, show)
                write(result)  # before the application ends: it may take its time
                _show_report(result, name)
                report = result
        except Exception as error:
            if report is None:
                raise
            typer.echo(f"The application failed to shut down: {error}", err=True)
        return report

    with _test_settings(), refuse_network() if is_offline else nullcontext():
        return asyncio.run(run())


def _open_target(
    target: str | None,
    url: str | None,
    headers: Sequence[str],
    path: str | None,
    config: Path | None,
    *,
    is_offline: bool,
    signs_in: bool,
    timeout: float,
) -> "tuple[Target, str]":
    """Return the target of the tests and its name. Raises `CopilotError` if it cannot be used."""
    from copilot_runtime.cli.serve import build_runtime, find_runtime
    from copilot_runtime.cli.target import find_target
    from copilot_runtime.config.loader import adapter_name
    from copilot_runtime.extensions.scenarios.target import LocalTarget, UrlTarget
    from copilot_runtime.extensions.settings import read_settings
    from copilot_runtime.extensions.tracing.cli.sources import split_header
    from copilot_runtime.telemetry.logs import configure_logs

    if config is not None:
        os.environ["COPILOT_CONFIG"] = str(config)
    settings, origins = read_settings()
    configure_logs("warning", settings.log_format, settings.log_debug)
    if url is not None:
        lines = dict(map(split_header, headers))
        judge = partial(_build_judge, settings)
        return UrlTarget(url, headers=lines, adapter=judge, timeout=timeout), url
    if target is None:
        found = build_runtime(adapter_name(settings), settings)
        model, file = adapter_name(settings), origins.path or "no settings file"
        name = f"the model {model!r} with {file}, and no program; name yours with --target"
    else:
        found, name = find_target(target), target
    local = LocalTarget(
        found,
        find_runtime(found),
        path=path,
        is_offline=is_offline,
        signs_in=signs_in,
        timeout=timeout,
    )
    return local, name


def _build_judge(settings: "Settings") -> "Adapter":
    """Return the adapter of the local settings, which judges scenarios of a remote server."""
    from copilot_runtime.cli.serve import build_runtime
    from copilot_runtime.config.loader import adapter_name

    return build_runtime(adapter_name(settings), settings).adapter


def _check_options(**values: Any) -> None:
    """Raise `ConfigurationFailed` for mutually exclusive options."""
    rules = (
        (("url", "target"), "the server at the URL is the target"),
        (("url", "path"), "the URL already contains the path"),
        (("url", "offline"), "a remote server needs the network"),
        (("url", "model"), "the server chooses its models"),
        (("offline", "live"), "real models need the network"),
    )
    for (first, second), reason in rules:
        if values[first] and values[second]:
            raise ConfigurationFailed(f"Give --{first} or --{second}, and not both: {reason}.")
    if values["header"] and not values["url"]:
        raise ConfigurationFailed(
            "A --header is for the server of --url.",
            hint="Scenarios have `headers` of their own.",
        )


def _select(
    places: "Sequence[Place]", names: Sequence[str], tags: Sequence[str]
) -> "Sequence[Place]":
    """Return the scenarios that match. Raises `ConfigurationFailed` if there are none."""
    found = [
        place
        for place in places
        if (not names or any(_fits(place.scenario.name, name) for name in names))
        and (not tags or {*tags} & {*place.scenario.tags})
    ]
    if not found:
        tags_there = ", ".join(sorted({tag for place in places for tag in place.scenario.tags}))
        raise ConfigurationFailed(
            f"None of {len(places)} scenarios fits --filter and --tag.",
            hint=f"Tags there: {tags_there or 'none'}. copilot-runtime test --list shows all.",
        )
    return found


def _fits(name: str, pattern: str) -> bool:
    return fnmatch(name.lower(), f"*{pattern.lower()}*")


def _show_list(places: "Sequence[Place]") -> None:
    from copilot_runtime.cli.output import show_table

    rows = [
        (
            place.scenario.name,
            str(place),
            place.scenario.agent or "",
            ", ".join(place.scenario.tags),
            "script" if place.scenario.is_scripted else ", ".join(place.scenario.models),
        )
        for place in places
    ]
    show_table(("NAME", "PLACE", "AGENT", "TAGS", "MODEL"), rows, "There are none.")


def _check_folder(file: Path | None) -> None:
    """Raise `ConfigurationFailed` if a report cannot be written, before any scenario is played."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise ConfigurationFailed(f"There can be no report '{file}': it is no file in a folder.")


def _write_reports(
    report: "Report", json: Path | None, junit: Path | None, markdown: Path | None
) -> None:
    from copilot_runtime.extensions.scenarios import report as forms

    files = (
        (json, forms.encode_report),
        (junit, forms.encode_junit),
        (markdown, forms.encode_markdown),
    )
    for file, encode in files:
        if file is None:
            continue
        try:
            file.write_text(encode(report), encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigurationFailed(
                f"The report '{file}' cannot be written: {error.strerror or error}."
            ) from error


def _show_report(report: "Report", target: str) -> None:
    """Print a table, followed by the failures and by the name of what was tested."""
    from copilot_runtime.cli.output import show_table
    from copilot_runtime.extensions.scenarios.report import (
        describe_attempt,
        describe_totals,
        list_rows,
        title,
    )

    head = ("SCENARIO", "MODEL", "OUTCOME", "PASSED", "REQUESTS", "TOKENS", "COST")
    show_table(head, [*list_rows(report)], "There are none.")
    for result in report.results:
        for attempt in result.attempts:
            if attempt.outcome != "passed":
                typer.echo(f"\n{title(result, attempt)} ({result.place})")
                for line in describe_attempt(attempt):
                    typer.echo(f"  {line}")
    typer.echo(f"\n{describe_totals(report)} in {report.seconds:.1f} s. Tested: {target}")


@contextmanager
def _show_progress() -> "Generator[Callable[[Progress], None] | None]":
    """Yield a function that draws a progress bar, or None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(progress: "Progress") -> None:
        width = 24
        full = width * progress.done // max(1, progress.total)
        bar = f"{'█' * full}{'·' * (width - full)}"
        failed = f", {progress.failed} failed" if progress.failed else ""
        line = f"{bar} {progress.done}/{progress.total}{failed}  {progress.name[:40]}"
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


@contextmanager
def _test_settings() -> Generator[None]:
    """Set the settings for tests in the environment, and restore it after the block."""
    names = [*_OF_TESTS, "COPILOT_CONFIG"]
    former = {name: os.environ.get(name) for name in names}
    os.environ.update(_OF_TESTS)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _explain_unusable() -> Generator[None]:
    """Exit with a separate status if no scenario could be played."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):  # the reader of the output may have enough
        raise
    except Exception as error:  # the application's start may raise anything
        if "--debug" in sys.argv:
            raise
        typer.echo(_explain(error), err=True)
        raise typer.Exit(_UNUSABLE) from error


def _explain(error: Exception) -> str:
    if isinstance(error, CopilotError):
        return f"{error.message}\n{error.hint}" if error.hint else error.message
    return f"{type(error).__name__}: {error}\n--debug shows where."
