"""Write records of commands to the audit log, without the parts of a server."""

import getpass
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from copilot_runtime.extensions.access.audit.entry import AuditRecord
from copilot_runtime.extensions.access.audit.log import AuditLog

if TYPE_CHECKING:
    from copilot_runtime.extensions.settings import Settings


def record_command(settings: "Settings", action: str, subject: str) -> None:
    """Record a command in the audit log, if there is one."""
    record = AuditRecord(
        action=action, outcome="allowed", reason=subject, user=_find_name(), method="command"
    )
    write_record(settings, record)


def write_record(settings: "Settings", record: AuditRecord) -> None:
    """Write a record with the current time; a failure is printed and ends no command."""
    if (log := build_audit_log(settings)) is None:
        return
    try:
        log.write([replace(record, time=time.time())])
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        sys.stderr.write(f"The audit log '{settings.audit.file}' was not written: {cause}.\n")


def build_audit_log(settings: "Settings") -> AuditLog | None:
    """Return the audit log of the settings, not yet opened; `None` if they name no file."""
    section = settings.audit
    if not section.file:
        return None
    return AuditLog(
        section.file,
        key=section.key,
        max_bytes=section.max_bytes,
        max_files=section.max_files,
    )


def _find_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in a container
        return ""
