"""Audits requests that start no run, and refused requests."""

from collections.abc import Collection

from copilot_runtime.base.errors import CopilotError
from copilot_runtime.extensions.access.audit.entry import AuditRecord, Outcome, describe_identity
from copilot_runtime.extensions.access.audit.log import AuditLog
from copilot_runtime.security.proxies import TrustedProxies
from copilot_runtime.transports.auth import Unauthorized, find_address
from copilot_runtime.transports.policy import RequestPolicy
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal

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
        reason = "" if error is None else _describe(error)
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
