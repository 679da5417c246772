"""Object storage: bytes by key, in a directory, in memory or in an S3 bucket."""

from copilot_runtime.storage.local import LocalStorage
from copilot_runtime.storage.memory import MemoryStorage
from copilot_runtime.storage.storage import (
    ObjectChanged,
    ObjectNotFound,
    Storage,
    StorageFailed,
)

STORAGES = {
    "local": "copilot_runtime.storage.local:LocalStorage",
    "memory": "copilot_runtime.storage.memory:MemoryStorage",
    "s3": "copilot_runtime.storage.s3:S3Storage",
}
"""Storage classes by the scheme of a storage URL."""

__all__ = [
    "STORAGES",
    "LocalStorage",
    "MemoryStorage",
    "ObjectChanged",
    "ObjectNotFound",
    "Storage",
    "StorageFailed",
]
