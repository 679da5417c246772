"""Where knowledge is kept: bytes by key, on a disk, in memory or in an S3 bucket."""

from copilot_runtime.storage.local import LocalStorage, StorageFailed
from copilot_runtime.storage.memory import MemoryStorage
from copilot_runtime.storage.storage import ObjectChanged, ObjectNotFound, Storage

__all__ = [
    "LocalStorage",
    "MemoryStorage",
    "ObjectChanged",
    "ObjectNotFound",
    "Storage",
    "StorageFailed",
]
