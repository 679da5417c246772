"""Where knowledge is kept: bytes by key, on a disk, in memory or in an S3 bucket."""

from copilot_runtime.storage.memory import MemoryStorage
from copilot_runtime.storage.storage import ObjectNotFound, Storage

__all__ = ["MemoryStorage", "ObjectNotFound", "Storage"]
