"""Where knowledge is kept: bytes by key, on a disk, in memory or in an S3 bucket."""

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
"""Kinds of storages, by the word before the colon of an address."""

__all__ = [
    "STORAGES",
    "LocalStorage",
    "MemoryStorage",
    "ObjectChanged",
    "ObjectNotFound",
    "Storage",
    "StorageFailed",
]
