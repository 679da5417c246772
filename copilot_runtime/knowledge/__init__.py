"""The public names of the knowledge extension and of its storage.

Each is imported on first use, so that a program pays only for the parts that it names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copilot_runtime.extensions.grpc.retriever import RemoteRetriever
    from copilot_runtime.extensions.knowledge.access import AccessDenied
    from copilot_runtime.extensions.knowledge.events import (
        EventFilter,
        ResourceEvent,
        ResourceEvents,
    )
    from copilot_runtime.extensions.knowledge.events.sqlite import SqliteEventLog
    from copilot_runtime.extensions.knowledge.graph.index import GraphIndex
    from copilot_runtime.extensions.knowledge.graph.ontology import read_options
    from copilot_runtime.extensions.knowledge.graph.picture import draw_ontology
    from copilot_runtime.extensions.knowledge.identifiers import Identifier, hash_values
    from copilot_runtime.extensions.knowledge.index import BufferedIndex, Filter, Item
    from copilot_runtime.extensions.knowledge.ingestion import Ingestion, Processor
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge
    from copilot_runtime.extensions.knowledge.memory import Allocation, Memories
    from copilot_runtime.extensions.knowledge.policies import (
        Policy,
        build_actor,
        conversation_identifier,
        load_policy,
    )
    from copilot_runtime.extensions.knowledge.rdf.page import read_page
    from copilot_runtime.extensions.knowledge.rdf.terms import write_turtle
    from copilot_runtime.extensions.knowledge.resources import (
        Resource,
        ResourceIndex,
        VersionConflict,
    )
    from copilot_runtime.extensions.knowledge.vectors import VectorIndex
    from copilot_runtime.storage.local import LocalStorage
    from copilot_runtime.storage.memory import MemoryStorage
    from copilot_runtime.storage.storage import Storage, copy_objects, open_storage

__all__ = [
    "AccessDenied",
    "Allocation",
    "BufferedIndex",
    "EventFilter",
    "Filter",
    "GraphIndex",
    "Identifier",
    "Ingestion",
    "Item",
    "Knowledge",
    "LocalStorage",
    "Memories",
    "MemoryStorage",
    "Policy",
    "Processor",
    "RemoteRetriever",
    "Resource",
    "ResourceEvent",
    "ResourceEvents",
    "ResourceIndex",
    "SqliteEventLog",
    "Storage",
    "VectorIndex",
    "VersionConflict",
    "build_actor",
    "conversation_identifier",
    "copy_objects",
    "draw_ontology",
    "hash_values",
    "load_policy",
    "open_storage",
    "read_options",
    "read_page",
    "write_turtle",
]

_MODULES = {
    "AccessDenied": "extensions.knowledge.access",
    "Allocation": "extensions.knowledge.memory",
    "BufferedIndex": "extensions.knowledge.index",
    "EventFilter": "extensions.knowledge.events",
    "Filter": "extensions.knowledge.index",
    "GraphIndex": "extensions.knowledge.graph.index",
    "Identifier": "extensions.knowledge.identifiers",
    "Ingestion": "extensions.knowledge.ingestion",
    "Item": "extensions.knowledge.index",
    "Knowledge": "extensions.knowledge.knowledge",
    "LocalStorage": "storage.local",
    "Memories": "extensions.knowledge.memory",
    "MemoryStorage": "storage.memory",
    "Policy": "extensions.knowledge.policies",
    "Processor": "extensions.knowledge.ingestion",
    "RemoteRetriever": "extensions.grpc.retriever",
    "Resource": "extensions.knowledge.resources",
    "ResourceEvent": "extensions.knowledge.events",
    "ResourceEvents": "extensions.knowledge.events",
    "ResourceIndex": "extensions.knowledge.resources",
    "SqliteEventLog": "extensions.knowledge.events.sqlite",
    "Storage": "storage.storage",
    "VectorIndex": "extensions.knowledge.vectors",
    "VersionConflict": "extensions.knowledge.resources",
    "build_actor": "extensions.knowledge.policies",
    "conversation_identifier": "extensions.knowledge.policies",
    "copy_objects": "storage.storage",
    "draw_ontology": "extensions.knowledge.graph.picture",
    "hash_values": "extensions.knowledge.identifiers",
    "load_policy": "extensions.knowledge.policies",
    "open_storage": "storage.storage",
    "read_options": "extensions.knowledge.graph.ontology",
    "read_page": "extensions.knowledge.rdf.page",
    "write_turtle": "extensions.knowledge.rdf.terms",
}
"""The module of each name, below `copilot_runtime`."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"copilot_runtime.{_MODULES[name]}"), name)
