"""Records requests and runs in the audit log."""

from collections.abc import Collection

from copilot_runtime.api.events import RunFailed, RunFinished, RunStarted
from copilot_runtime.api.messages import TextMessage
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import Cancelled, CopilotError
from copilot_runtime.extensions.access.audit.command import write_record
from copilot_runtime.extensions.access.audit.entry import AuditRecord, Outcome, describe_identity
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.runtime.observer import RunObserver
from copilot_runtime.runtime.run import Run
from copilot_runtime.security.proxies import TrustedProxies
from copilot_runtime.threads.compact import INTERRUPTED
from copilot_runtime.threads.store import DeadRun
from copilot_runtime.transports.auth import Unauthorized, find_address
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal, RequestPolicy

_READ_METHODS = ("GET", "HEAD", "")


class RequestAudit(RequestPolicy):
    """Records answered requests; with `reads`, including those that only read.

    `proxies` are trusted about the client's address.
    """

    def __init__(
        self, log: AuditLog, *, reads: bool = False, proxies: Collection[str] = ()
    ) -> None:
        self._log = log
        self._reads = reads
        self._proxies = TrustedProxies(proxies)

    def after(self, request: Request, error: BaseException | None) -> None:
        status = request.status or _find_status(error)
        outcome = _find_outcome(status, error)
        if outcome == "allowed" and (request.starts_run or self._is_read(request)):
            return
        identity = request.caller.identity
        who = describe_identity(identity, request.caller.user)
        reason = request.subject if error is None else _describe(error)
        if isinstance(error, Unauthorized):
            address = find_address(request, self._proxies)
            who = {**describe_identity(error.identity, None), "address": address}
        self._log.record(
            AuditRecord(
                action=request.action or _name_request(request),
                outcome=outcome,
                reason=reason,
                status=status or None,
                thread=request.thread,
                run=request.run,
                **who,
            )
        )

    def _is_read(self, request: Request) -> bool:
        is_read = request.method in _READ_METHODS if request.is_read is None else request.is_read
        return is_read and not self._reads


def _name_request(request: Request) -> str:
    """Return the method and the path below the runtime's URL, without the path if it is empty."""
    return f"{request.method or 'CONNECT'} {request.path[:200]}".rstrip()


def _find_status(error: BaseException | None) -> int:
    status = getattr(error, "status", getattr(error, "status_code", None))
    return status if isinstance(status, int) else (500 if error is not None else 0)


def _find_outcome(status: int, error: BaseException | None) -> Outcome:
    if status >= 500:
        return "failed"
    return "refused" if status >= 400 or isinstance(error, Refusal | CopilotError) else "allowed"


def _describe(error: BaseException) -> str:
    match error:
        case Unauthorized(reason=reason):
            return reason
        case CopilotError(code=code, public=message):
            return f"{code}: {message}"
        case Refusal():
            return str(error)
        case _:
            return type(error).__name__


class RunAudit(RunObserver):
    """Records runs in the audit log; with `content`, including the text of the question."""

    def __init__(self, log: AuditLog, *, content: bool = False) -> None:
        self._log = log
        self._content = content

    def on_start(self, run: Run, event: RunStarted) -> None:  # noqa: ARG002  # the interface's
        text = _find_question(run.request) if self._content else ""
        changes = run.request.overrides
        reason = f"playground: {', '.join(changes.names)}" if changes is not None else ""
        self._record(run.request, "run.start", "allowed", reason, text=text)

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


def record_dead_run(settings: Settings, run: DeadRun) -> None:
    """Record the end of a dead process's run, which opening its store has ended."""
    write_record(settings, build_dead_run_record(run))
