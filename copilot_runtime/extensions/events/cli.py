"""`copilot-runtime operate events`: show and follow events about resources, plans and runs."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.cli.output import JsonOption
from copilot_runtime.cli.program import ProgramOption
from copilot_runtime.cli.threads import ConfigOption
from copilot_runtime.extensions import knowledge as lazy  # has `Knowledge`, imported on first use
from copilot_runtime.extensions.knowledge.access import FULL_ACCESS, Access
from copilot_runtime.extensions.knowledge.cli import ActorOption, PrefixOption, make_actor
from copilot_runtime.extensions.program import read_command_settings

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.events import (
        EventFilter,
        ResourceEvent,
        ResourceEvents,
    )
    from copilot_runtime.extensions.program import CommandSettings
    from copilot_runtime.extensions.settings import Settings

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="Event store, such as sqlite:PATH; default: the setting events.store."
    ),
]


def events(
    source: Annotated[
        list[str] | None, typer.Option(help="Only events of this source: resources, plans, runs.")
    ] = None,
    type: Annotated[
        list[str] | None, typer.Option(help="Only events of this type, such as RESOURCE_PUT.")
    ] = None,
    prefix: PrefixOption = "",
    after: Annotated[
        str, typer.Option(help="Only events after this cursor; 0 for all stored events.")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Maximum events: after the cursor, or newest.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow new events until Ctrl-C.")
    ] = False,
    as_user: ActorOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    program: ProgramOption = None,
    config: ConfigOption = None,
) -> None:
    """Show events about resources, plans and runs, one per line, the oldest first.

    \b
    copilot-runtime operate events --source runs --type RUN_FAILED
    copilot-runtime operate events --prefix common.User.ann --follow
    copilot-runtime operate events --after 3f2a9c1b-42 --json
    copilot-runtime operate events --program main:runtime

    Each line ends with the cursor of its event, for --after. The store is that of the setting
    events.store, from copilot.yml and the environment, or from the Settings(...) of a program named
    by --program. It may be read while servers write to it.
    """
    from copilot_runtime.extensions.knowledge.events import EventFilter, ResourceEvents
    from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
    from copilot_runtime.extensions.knowledge.identifiers import parse_identifier

    found = read_command_settings(program, config, has_notice=store is None)
    settings = found.settings
    path = _find_file(store, settings)
    if prefix:
        parse_identifier(prefix)
    filter = EventFilter(
        sources=source or (),
        detail_types=type or (),
        prefix=prefix,
        access=_find_access(found, as_user),
    )

    async def show() -> None:
        log = SqliteEventLog(
            path, max_events=settings.events.max_events, max_bytes=settings.events.max_bytes
        )
        async with aclosing(ResourceEvents(log)) as feed:
            reading = _read(feed, filter, after, limit, follow=follow)
            async with aclosing(reading) as stream:
                async for event in stream:
                    typer.echo(_format_json(event) if as_json else _format_line(event))

    asyncio.run(show())


async def _read(
    events: "ResourceEvents", filter: "EventFilter", after: str, limit: int, *, follow: bool
) -> "AsyncGenerator[ResourceEvent, None]":
    """Yield events after a cursor, or the newest ones; with `--follow`, also each new event."""
    cursor = after or "0"
    newest: deque[ResourceEvent] = deque(maxlen=limit)
    count, is_last = 0, False
    while not is_last and (follow or not after or count < limit):
        size = 500 if follow or not after else min(500, limit - count)
        page = await events.read(cursor, filter, limit=size)
        cursor, is_last = page.cursor, page.is_last
        count += len(page.events)
        if not after:
            newest.extend(page.events)
            continue
        for event in page.events:
            yield event
    for event in newest:
        yield event
    if follow:
        async with aclosing(events.follow(cursor, filter)) as following:
            async for event in following:
                yield event


def _find_file(store: str | None, settings: "Settings") -> Path:
    """Return the path of a store's address. Raises `ConfigurationFailed` with a hint."""
    from copilot_runtime.extensions.events.extension import find_event_file

    found = None if store else find_event_file(settings)
    address = store or (f"sqlite:{found}" if found else settings.events.store)
    kind, _, path = address.partition(":")
    if kind not in ("", "none", "memory", "sqlite") or (kind == "sqlite" and not path):
        raise ConfigurationFailed(
            f"{address!r} is not an event store.", hint="Give --store sqlite:PATH."
        )
    if kind != "sqlite":
        where = "not kept" if kind == "none" else "in the memory of a server"
        raise ConfigurationFailed(
            f"Events are {where}: there are none that this program can read.",
            hint="Set events.store to sqlite:PATH, or ask the server: "
            "curl -N -H 'accept: text/event-stream' http://127.0.0.1:8000/graphql/events",
        )
    if not Path(path).exists():
        raise ConfigurationFailed(
            f"There is no file {path!r}.", hint="A server creates it for the first event."
        )
    return Path(path)


def _find_access(found: "CommandSettings", user: str | None) -> Access:
    """Return a user's permissions, or full access (of the operator) without a user."""
    from copilot_runtime.extensions.knowledge.policies import OWNERS_ONLY, load_policy

    actor = make_actor(user)
    if actor is None:
        return FULL_ACCESS
    knowledge = None if found.runtime is None else found.runtime.find(lazy.Knowledge)
    if knowledge is not None:
        return knowledge.access(actor, "read")
    path = found.settings.knowledge.policy
    return (load_policy(path) if path else OWNERS_ONLY).access(actor, "read")


def _format_json(event: "ResourceEvent") -> str:
    from copilot_runtime.extensions.knowledge.events import encode_event

    return json.dumps({**encode_event(event), "cursor": event.cursor}, ensure_ascii=False)


def _format_line(event: "ResourceEvent") -> str:
    """Format an event as one line of tab-separated fields."""
    parts = [
        event.time[:19].replace("T", " "),
        event.source,
        event.detail_type,
        " ".join(map(str, event.resources)),
        json.dumps({**event.detail}, ensure_ascii=False) if event.detail else "",
        event.cursor,
    ]
    return "\t".join("".join(char if char.isprintable() else "�" for char in it) for it in parts)
