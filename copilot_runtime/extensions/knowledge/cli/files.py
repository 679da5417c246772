"""Deletes the files of deleted threads, for `copilot-runtime threads expire`."""

from contextlib import aclosing
from datetime import datetime

from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.cli.knowledge import keep_events
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.threads.store import ThreadStore


async def forget_old_files(threads: ThreadStore, before: datetime, settings: Settings) -> int:
    """Delete the attached files of threads that are no longer in the store. Return their number."""
    if not settings.knowledge.address:
        return 0
    knowledge = Knowledge(settings=settings.knowledge.model_copy(update={"sources": ()}))
    knowledge.threads = threads
    keep_events(knowledge, settings)
    async with aclosing(knowledge):
        return await knowledge.forget_old_files(before.timestamp())
