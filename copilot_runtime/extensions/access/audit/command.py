"""Audit records of commands, which are written at once."""

import getpass
import sys
import time
from dataclasses import replace

from copilot_runtime.extensions.access.audit.entry import AuditRecord
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.extensions.access.audit.run import build_dead_run_record
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.threads.store import DeadRun


def record_command(settings: Settings, action: str, subject: str) -> None:
    """Record a command in the audit log, if there is one."""
    record = AuditRecord(
        action=action, outcome="allowed", reason=subject, user=_find_name(), method="command"
    )
    _write_record(settings, record)


def record_dead_run(settings: Settings, run: DeadRun) -> None:
    """Record the end of a dead process's run, which opening its store has ended."""
    _write_record(settings, build_dead_run_record(run))


def _write_record(settings: Settings, record: AuditRecord) -> None:
    if (log := build_audit_log(settings)) is None:
        return
    try:
        log.write([replace(record, time=time.time())])
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        sys.stderr.write(f"The audit log '{settings.audit.file}' was not written: {cause}.\n")


def build_audit_log(settings: Settings) -> AuditLog | None:
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
