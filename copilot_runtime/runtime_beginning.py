"""What becomes of a run until it goes on by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from copilot_runtime.actions.frontend import Source, gather, offered
from copilot_runtime.errors import ConfigurationFailed
from copilot_runtime.hooks import Hooks, call
from copilot_runtime.interfaces import Agent, Caller, RunInput, Stage

_FindAgent = Callable[[str | None, Caller], Awaitable[Agent]]


class Beginning:
    """A run that begins, and who wants what of it meanwhile."""

    __slots__ = ("context", "error", "over", "stopped")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.context = copy_context()
        """What a hook sets here is there for the agent."""
        self.stopped: asyncio.Future[None] = loop.create_future()
        self.error: Exception | None = None
        """Why its log takes no more."""
        self.over: asyncio.Future[None] = loop.create_future()

    def stop(self) -> None:
        if not self.stopped.done():
            self.stopped.set_result(None)


async def prepared(
    run: RunInput,
    hooks: Hooks,
    find: _FindAgent,
    stages: Sequence[Stage],
    sources: Sequence[Source],
) -> tuple[RunInput, Agent]:
    """Ask whoever has a say in a run; return it as they want it, and who answers."""
    try:
        if hooks.before_request is not None:
            run = await _asked(hooks, run)
        agent = await find(run.agent, Caller(user=run.user, headers=run.headers))
        for part in (*stages, agent):
            if check := getattr(part, "check", None):
                check(run)
        # after the hook, so that actions may depend on what it verified
        server = await gather(sources, run) if sources else []
    except SystemExit as error:  # it would end the server
        raise RuntimeError("What prepares a run called sys.exit().") from error
    if run.agent is not None:
        run = replace(run, actions=offered(server, run.actions, for_agent=True))
    elif server:
        run = replace(run, actions=[*server, *run.actions])
    return run, agent


async def _asked(hooks: Hooks, run: RunInput) -> RunInput:
    """Return the run as the `before_request` hook wants it."""
    changed = await call(hooks.before_request, run)
    if changed is None:
        return run
    if not isinstance(changed, RunInput):
        raise ConfigurationFailed(
            f"The before_request hook returned a {type(changed).__name__}.",
            hint="It returns None, or a RunInput: dataclasses.replace(run, ...).",
        )
    # what the transport knows it by
    mine = {"run_id": run.run_id, "log": run.log, "thread_id": run.thread_id}
    return replace(changed, **mine, user=run.user, kept=run.kept)


def is_cancelled() -> bool:
    """Say whether somebody cancelled this task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def noted(task: asyncio.Task[Any]) -> None:
    """Take the exception of a task that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
