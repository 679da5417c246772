"""The public names of the knowledge extension and of its storage.

Each is imported on first use, so that a program pays only for the parts that it names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copilot_runtime.extensions.knowledge.access import AccessDenied
    from copilot_runtime.extensions.knowledge.filter import Filter
    from copilot_runtime.extensions.knowledge.graph.index import GraphIndex
    from copilot_runtime.extensions.knowledge.graph.options import read_options
    from copilot_runtime.extensions.knowledge.graph.picture import draw_ontology
    from copilot_runtime.extensions.knowledge.identifiers import Identifier, hash_values
    from copilot_runtime.extensions.knowledge.index import BufferedIndex, Item
    from copilot_runtime.extensions.knowledge.ingestion import Ingestion, Processor
    from copilot_runtime.extensions.knowledge.knowledge import Knowledge
    from copilot_runtime.extensions.knowledge.memory import Allocation, Memories
    from copilot_runtime.extensions.knowledge.policies import (
        Policy,
        build_actor,
        conversation_identifier,
        load_policy,
    )
    from copilot_runtime.extensions.knowledge.rdf import read_page, write_turtle
    from copilot_runtime.extensions.knowledge.remote import RemoteRetriever
    from copilot_runtime.extensions.knowledge.resources import (
        Resource,
        ResourceIndex,
        VersionConflict,
    )
    from copilot_runtime.extensions.knowledge.vectors import VectorIndex
    from copilot_runtime.extensions.storage.local import LocalStorage
    from copilot_runtime.extensions.storage.memory import MemoryStorage
    from copilot_runtime.extensions.storage.storage import Storage, copy_objects
    from copilot_runtime.extensions.storage.url import open_storage

__all__ = [
    "AccessDenied",
    "Allocation",
    "BufferedIndex",
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
    "ResourceIndex",
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
    "AccessDenied": "knowledge.access",
    "Allocation": "knowledge.memory",
    "BufferedIndex": "knowledge.index",
    "Filter": "knowledge.filter",
    "GraphIndex": "knowledge.graph.index",
    "Identifier": "knowledge.identifiers",
    "Ingestion": "knowledge.ingestion",
    "Item": "knowledge.index",
    "Knowledge": "knowledge.knowledge",
    "LocalStorage": "storage.local",
    "Memories": "knowledge.memory",
    "MemoryStorage": "storage.memory",
    "Policy": "knowledge.policies",
    "Processor": "knowledge.ingestion",
    "RemoteRetriever": "knowledge.remote",
    "Resource": "knowledge.resources",
    "ResourceIndex": "knowledge.resources",
    "Storage": "storage.storage",
    "VectorIndex": "knowledge.vectors",
    "VersionConflict": "knowledge.resources",
    "build_actor": "knowledge.policies",
    "conversation_identifier": "knowledge.policies",
    "copy_objects": "storage.storage",
    "draw_ontology": "knowledge.graph.picture",
    "hash_values": "knowledge.identifiers",
    "load_policy": "knowledge.policies",
    "open_storage": "storage.url",
    "read_options": "knowledge.graph.options",
    "read_page": "knowledge.rdf",
    "write_turtle": "knowledge.rdf",
}
"""The module of each name, below `copilot_runtime.extensions`."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"copilot_runtime.extensions.{_MODULES[name]}"), name)
