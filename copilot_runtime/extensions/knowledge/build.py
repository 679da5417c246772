"""Build knowledge from the settings, and mirror tools and assistants into it as resources."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from copilot_runtime.agents.summary import summarize
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.caller import SelectNames
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.knowledge.changes import KnowledgeChanges
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.threads.store import ThreadStore

if TYPE_CHECKING:
    from copilot_runtime.api.parts import Parts
    from copilot_runtime.extensions.assistants.folder import AssistantFolder
    from copilot_runtime.extensions.knowledge import Knowledge
    from copilot_runtime.extensions.tools.catalog import ToolCatalog


def find_knowledge(parts: "Parts") -> "Knowledge | None":
    """Return the knowledge of a runtime, or `None`; a runtime without it imports nothing of it."""
    if "copilot_runtime.extensions.knowledge.knowledge" not in sys.modules:
        return None
    from copilot_runtime.extensions.knowledge import Knowledge

    return parts.find(Knowledge)


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


def keep_as_resources(
    files: "ToolCatalog | AssistantFolder", type: str, origin: str, knowledge: "Knowledge"
) -> None:
    """Mirror the definitions in files as resources, and follow changes of the files."""

    def describe() -> Mapping[str, JsonObject]:
        definitions = files.definitions
        return {name: one.describe_resource() for name, one in definitions.items()}

    files.on_change = knowledge.mirror(type, origin, describe).update
