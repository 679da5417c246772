"""`copilot-runtime knowledge policy`: explain the decisions of a policy, and validate it."""

import asyncio
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    Misuse,
    UnknownName,
)
from copilot_runtime.cli.output import JsonOption, show_json, show_table
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions import knowledge as lazy  # has `Knowledge`, imported on first use
from copilot_runtime.extensions.knowledge.access import AccessAction
from copilot_runtime.extensions.knowledge.cli import StorageOption
from copilot_runtime.extensions.knowledge.identifiers import (
    FOLDER,
    check_uri,
    identify_file,
    name_file,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.policies import (
    OWNERS_ONLY,
    Decision,
    Explanation,
    Policy,
    build_actor,
    load_policy,
)
from copilot_runtime.extensions.knowledge.policies.policy import PolicyUnreadable
from copilot_runtime.extensions.knowledge.resources import ResourceIndex
from copilot_runtime.extensions.knowledge.things import is_merged
from copilot_runtime.extensions.program import read_command_settings
from copilot_runtime.storage import Storage
from copilot_runtime.storage.storage import open_storage

policy = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_MERGED = Decision(
    False, "It joins what several files say, and was taken in before there was a policy."
)
_CHANGES = ("`copilot-runtime knowledge ingest` takes it in anew, by file, as rules need it.",)

PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", help="File of rules, or folder; default: setting knowledge.policy."),
]


@policy.callback()
def explain_policies() -> None:
    """Validate a policy, and explain its decisions.

    \b
    copilot-runtime knowledge policy check policy.yml
    copilot-runtime knowledge policy explain ann read common.Folder.handbook --policy policy.yml

    A policy defines who may read, list, write and delete which resources. For example:

    \b
    default: deny                       # if no rule matches
    groups:
      staff: [ann, "*@example.com"]
    rules:
      - name: handbook
        allow: read                     # read, list, write, delete or all
        groups: staff                   # or users, agents; omit for all users
        files: handbook                 # a folder, or a file

    A `deny` rule takes precedence over all `allow` rules. Resources below common.User.ann belong to
    ann: she has full access, and others only by an explicit rule.
    """


@policy.command()
def check(
    file: Annotated[Path, typer.Argument(help="A .yml, .cedar or .rego file, or a folder.")],
    as_json: JsonOption = False,
    storage: StorageOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Look for mistakes in a policy, with their lines, and for rules that can never matter.

    \b
    copilot-runtime knowledge policy check policy.yml
    copilot-runtime knowledge policy check policies/ --json

    It names the rules that hide none of the texts in the storage, if there is one. The exit status
    is 1 if the policy cannot be used.
    """
    try:
        rules = load_policy(file)
        uris = _list_resources(storage, program, config)
        problems, usable = [*rules.find_warnings(), *rules.find_idle_rules(uris)], True
        rules.close()
    except PolicyUnreadable as error:
        problems, usable = error.problems, False
    if as_json:
        show_json({"usable": usable, "problems": [asdict(problem) for problem in problems]})
    else:
        kind = "warning" if usable else "error"
        for problem in problems:
            typer.echo(f"{kind}: {problem.describe(str(file))}")
        typer.echo(f"{file} {_conclude(usable, len(problems))}", err=True)
    if not usable:
        raise typer.Exit(1)


@policy.command()
def explain(
    actor: Annotated[str, typer.Argument(help="A user; - for an anonymous one.")],
    action: Annotated[str, typer.Argument(help="read, list, write or delete.")],
    urn: Annotated[
        str, typer.Argument(help="URI or URN of a resource, or a path; it may be missing.")
    ],
    group: Annotated[
        list[str] | None, typer.Option(help="A group that the application puts the actor into.")
    ] = None,
    agent: Annotated[str, typer.Option(help="The agent that acts for the actor.")] = "",
    thread: Annotated[str, typer.Option(help="The current thread of the actor.")] = "",
    file: PolicyOption = None,
    as_json: JsonOption = False,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Say whether an action is allowed, which rule decides, and what would change that.

    \b
    copilot-runtime knowledge policy explain ann read common.Folder.handbook/common.Document.d1
    copilot-runtime knowledge policy explain ann read handbook/salaries.md
    copilot-runtime knowledge policy explain - list cld:common.Message.m1 --policy policy.yml
    copilot-runtime knowledge policy explain bob write team.Space.ops --group ops --agent helper

    The exit status is 0 if it is allowed and 1 if it is denied. The policy is that of --policy, of
    copilot.yml and the environment, or of a program that --program names.
    """
    if action not in get_args(AccessAction):
        raise UnknownName("action", action, get_args(AccessAction))
    uri = _read_uri(urn)
    user = None if actor == "-" else actor
    who = build_actor(user, thread, groups=frozenset(group or ()), agent=agent)
    rules = _load(file, program, config)
    explanation = rules.explain(who, cast("AccessAction", action), uri)
    if rules is not OWNERS_ONLY and is_merged(uri):
        explanation = Explanation(_MERGED, explanation.steps, _CHANGES)
    rules.close()
    if as_json:
        show_json(_encode(explanation))
    else:
        _show(explanation)
    if not explanation.decision.allowed:
        raise typer.Exit(1)


def _list_resources(storage: str | None, program: str | None, config: Path | None) -> list[str]:
    """Return the URIs of the stored resources; none if they cannot be read here."""

    async def read(opened: Storage) -> list[str]:
        async with aclosing(opened):
            return [*await ResourceIndex(opened).versions()]

    try:
        settings, _, runtime = read_command_settings(program, config, has_notice=False)
        knowledge = None if runtime is None else runtime.find(lazy.Knowledge)
        if knowledge is not None and not storage:
            return asyncio.run(read(knowledge.storage))
        address = storage or settings.knowledge.address
        is_stored = address.partition(":")[0] not in ("", "memory")
        return asyncio.run(read(open_storage(address))) if is_stored else []
    except CopilotError as error:  # also a build checks policies, where there is no storage
        typer.echo(f"The stored texts are not compared: {error.message}", err=True)
        return []


def _read_uri(urn: str) -> str:
    """Return the URI of a resource that is named by its URI, its URN or the path of its file."""
    if not urn:
        raise ConfigurationFailed(
            "No resource is named.",
            hint="Give the path of a file, or a URI as `copilot-runtime knowledge search` shows.",
        )
    uri = strip_namespace(urn)
    try:
        check_uri(uri)
    except Misuse:
        path = Path(urn)
        file = identify_file(name_file(path))
        is_folder = urn.endswith("/") or path.is_dir()
        uri = str(replace(file, type=FOLDER) if is_folder else file)
        typer.echo(f"{urn[:200]!r} is taken for a path: {uri}", err=True)
    return uri


def _load(file: Path | None, program: str | None, config: Path | None) -> Policy:
    settings, _, runtime = read_command_settings(program, config, has_notice=file is None)
    knowledge = None if runtime is None else runtime.find(lazy.Knowledge)
    if file is None and knowledge is not None:
        return knowledge.policy
    path = file or settings.knowledge.policy
    if not path:
        typer.echo("No policy is set: what applies without one is shown.", err=True)
        return OWNERS_ONLY
    return load_policy(path)


def _show(explanation: Explanation) -> None:
    decision = explanation.decision
    typer.echo(f"{'allowed' if decision.allowed else 'denied'}: {decision.reason}")
    if explanation.steps:
        typer.echo()
        rows = [
            (
                step.rule or "-",
                step.line or "",
                step.effect,
                "yes" if step.applies else "no",
                step.reason,
            )
            for step in explanation.steps
        ]
        show_table(("RULE", "LINE", "EFFECT", "APPLIES", "WHY"), rows, "")
    if explanation.changes:
        typer.echo("\nWhat would change it:")
    for change in explanation.changes:
        typer.echo(f"  {change}")


def _encode(explanation: Explanation) -> dict[str, Any]:
    return {
        **asdict(explanation.decision),
        "steps": [asdict(step) for step in explanation.steps],
        "changes": [*explanation.changes],
    }


def _conclude(usable: bool, count: int) -> str:
    if not usable:
        return f"cannot be used: {count} {'mistake' if count == 1 else 'mistakes'}."
    if not count:
        return "can be used; nothing is odd about it."
    return f"can be used; {count} {'thing is' if count == 1 else 'things are'} odd about it."
