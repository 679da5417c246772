"""Audits the start, refusal and end of runs."""

from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import Cancelled, CopilotError
from copilot_runtime.extensions.access.audit.entry import AuditRecord, Outcome, describe_identity
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.run import Run
from copilot_runtime.threads.recovery import INTERRUPTED
from copilot_runtime.threads.store import DeadRun


class RunAudit(RunObserver):
    """Records runs in the audit log; with `content`, including the text of the question."""

    def __init__(self, log: AuditLog, *, content: bool = False) -> None:
        self._log = log
        self._content = content

    def on_start(self, run: Run, event: RunStarted) -> None:  # noqa: ARG002  # the interface's
        text = _find_question(run.request) if self._content else ""
        self._record(run.request, "run.start", "allowed", text=text)

    def on_end(self, run: Run, event: RunFinished | RunFailed, *, is_lost: bool) -> None:
        if is_lost:  # recorded by the process that has stored another end
            return
        match event:
            case RunFinished():
                self._record(run.request, "run.end", "finished")
            case RunFailed():
                is_stopped = event.error.code == Cancelled.code
                reason = "" if is_stopped else f"{event.error.code}: {event.error.message}"
                outcome = "stopped" if is_stopped else "failed"
                self._record(run.request, "run.end", outcome, reason)

    def feed_dead_run(self, run: DeadRun) -> None:
        """Record the end of a run that this process has ended for a dead one."""
        self._log.record(build_dead_run_record(run))

    def on_refusal(self, run: Run, error: BaseException) -> None:
        if isinstance(error, CopilotError):
            is_failure = error.status_code >= 500
            reason = f"{error.code}: {error.public}"
            self._record(run.request, "run.start", "failed" if is_failure else "refused", reason)
        elif isinstance(error, Exception):
            self._record(run.request, "run.start", "failed", type(error).__name__)

    def _record(
        self, run: RunInput, action: str, outcome: Outcome, reason: str = "", text: str = ""
    ) -> None:
        self._log.record(
            AuditRecord(
                action=action,
                outcome=outcome,
                reason=reason,
                thread=run.thread_id,
                run=run.run_id,
                agent=run.agent_name,
                text=text,
                **describe_identity(run.identity, run.user),
            )
        )


def build_dead_run_record(run: DeadRun) -> AuditRecord:
    """Return the record of a run that was ended for a dead process."""
    error = INTERRUPTED.error
    return AuditRecord(
        action="run.end",
        outcome="failed",
        reason=f"{error.code}: {error.message} Its process died, and another one ended it.",
        user=run.thread.owner,
        thread=run.thread.id,
        run=run.run_id,
        agent=run.agent,
    )


def _find_question(run: RunInput) -> str:
    texts = [
        message.content
        for message in run.messages
        if isinstance(message, TextMessage) and message.role == "user"
    ]
    return texts[-1] if texts else ""
