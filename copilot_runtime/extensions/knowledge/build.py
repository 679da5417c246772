"""Build knowledge from the settings, and connect it to a runtime."""

from functools import partial
from typing import TYPE_CHECKING

from copilot_runtime.agents.summary import summarize
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.identity import SelectNames
from copilot_runtime.extensions.knowledge.changes import KnowledgeChanges
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.threads.store import ThreadStore

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge import Knowledge


def build_knowledge(settings: Settings) -> "Knowledge | None":
    """Return the knowledge of the settings, or `None` if they name no storage and no sources."""
    if not settings.knowledge.address:
        return None
    from copilot_runtime.extensions.knowledge import Knowledge

    return Knowledge(settings=settings.knowledge)


def connect_knowledge(
    knowledge: "Knowledge", threads: ThreadStore, telemetry: Telemetry, adapter: Adapter
) -> KnowledgeChanges:
    """Connect knowledge to shared services; return the notifier of the other processes."""
    changes = KnowledgeChanges(threads, knowledge.invalidate_cache)
    knowledge.on_change = changes.broadcast
    knowledge.threads, knowledge.telemetry = threads, telemetry
    knowledge.summarize = knowledge.summarize or partial(summarize, adapter)
    return changes


def select_by_policy(knowledge: "Knowledge | None", type: str) -> SelectNames | None:
    """Return a filter for names of resources of a type that a user may read, or `None`."""
    return None if knowledge is None else partial(knowledge.select_names, type)
