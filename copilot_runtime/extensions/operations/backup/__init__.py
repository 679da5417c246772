"""All that a server keeps in one file: written while it runs, and put back as a whole."""

from copilot_runtime.extensions.operations.backup.archive import BackupRefused
from copilot_runtime.extensions.operations.backup.backup import (
    Progress,
    restore_backup,
    write_backup,
)

__all__ = ["BackupRefused", "Progress", "restore_backup", "write_backup"]
