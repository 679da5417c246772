"""Backup of all stores into one archive, while servers run, and restore."""

from copilot_runtime.extensions.operations.backup.archive import BackupRefused
from copilot_runtime.extensions.operations.backup.backup import (
    Progress,
    restore_backup,
    write_backup,
)

__all__ = ["BackupRefused", "Progress", "restore_backup", "write_backup"]
