"""Options, the actor, and the opening of knowledge, for all commands of knowledge."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions import knowledge as lazy  # has `Knowledge`, imported on first use
from copilot_runtime.extensions.knowledge.access import Actor
from copilot_runtime.extensions.program import read_command_settings

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
    from copilot_runtime.extensions.settings import Settings

StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        help="Storage, such as local:PATH; default: the setting knowledge.storage.",
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option("--as", metavar="USER", help="Show only what the policy lets this user read."),
]
LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of results.")]
PrefixOption = Annotated[
    str, typer.Option(help="Only this resource and those below it, by its URI.")
]
TypeOption = Annotated[str, typer.Option(help="Only resources of this type: common.Message.")]


def run_with_knowledge(
    program: str | None,
    config: Path | None,
    storage: str | None,
    work: "Callable[[lazy.Knowledge], Awaitable[None]]",
    *,
    with_sources: bool = False,
) -> None:
    """Open the knowledge of the settings, a program or a storage, run `work` with it, and close it.

    The sources of the settings are used only `with_sources`, since queries do not need them.
    """
    every, _, runtime = read_command_settings(program, config, has_notice=storage is None)
    settings = every.knowledge
    if (storage or settings.storage).partition(":")[0] == "memory":
        raise ConfigurationFailed(
            "This knowledge is in the memory of a server, where no other program can read it.",
            hint="Set knowledge.storage to local:PATH or s3://BUCKET, or give --storage.",
        )

    async def open_and_work() -> None:
        written = None if runtime is None else runtime.find(lazy.Knowledge)
        knowledge = _build_knowledge(settings, written, storage, with_sources=with_sources)
        keep_events(knowledge, every)
        try:
            await work(knowledge)
        finally:
            await knowledge.aclose()

    asyncio.run(open_and_work())


def _build_knowledge(
    settings: "KnowledgeSettings",
    written: "lazy.Knowledge | None",
    storage: str | None,
    *,
    with_sources: bool,
) -> "lazy.Knowledge":
    """Return new knowledge with the arguments of the one in a program, if there is one."""

    sources = (settings.sources if written is None else written.sources) if with_sources else ()
    settings = settings.model_copy(update={"sources": ()})
    if written is None:
        return lazy.Knowledge(storage, sources=sources, settings=settings)
    return lazy.Knowledge(
        storage or written.storage,
        sources=sources,
        embedder=written.embedder,
        policy=written.policy,
        base=written.base,
        settings=settings,
    )


def keep_events(knowledge: "lazy.Knowledge", settings: "Settings") -> None:
    """Publish the changes of a command to subscribers of a server's resource events."""
    kind, _, path = settings.events.store.partition(":")
    if kind == "sqlite" and knowledge.events.log is None:
        from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog

        limits = settings.events
        knowledge.events.log = SqliteEventLog(
            path, max_events=limits.max_events, max_bytes=limits.max_bytes
        )


def make_actor(user: str | None) -> Actor | None:
    """Return the actor of a user; `None` for the operator, who may read everything."""
    return None if user is None else Actor(user)
