"""Object storage: bytes by key, in a directory, in memory or in an S3 bucket."""

from copilot_runtime.storage.local import LocalStorage
from copilot_runtime.storage.memory import MemoryStorage
from copilot_runtime.storage.storage import (
    STORAGES,
    ObjectChanged,
    ObjectNotFound,
    Storage,
    StorageFailed,
)

__all__ = [
    "STORAGES",
    "LocalStorage",
    "MemoryStorage",
    "ObjectChanged",
    "ObjectNotFound",
    "Storage",
    "StorageFailed",
]
