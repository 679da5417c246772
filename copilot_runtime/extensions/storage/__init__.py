"""Object storage: bytes by key, in a directory, in memory or in an S3 bucket."""

from copilot_runtime.extensions.storage.local import LocalStorage
from copilot_runtime.extensions.storage.memory import MemoryStorage
from copilot_runtime.extensions.storage.storage import (
    ObjectChanged,
    ObjectNotFound,
    Storage,
    StorageFailed,
)

STORAGES = {
    "local": "copilot_runtime.extensions.storage.local:LocalStorage",
    "memory": "copilot_runtime.extensions.storage.memory:MemoryStorage",
    "s3": "copilot_runtime.extensions.storage.s3:S3Storage",
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
