"""The tree of exceptions, with their error codes, HTTP statuses, visibility and severity.

    CopilotError                            UNKNOWN                      500  toast     critical
    ├── NetworkError                        NETWORK_ERROR                503  banner    critical
    │   ├── RateLimited                     RATE_LIMITED                 429  banner    warning
    │   ├── InvalidAnswer                   NETWORK_ERROR                502  banner    critical
    │   └── RunStalled                      NETWORK_ERROR                504  banner    critical
    ├── NotFound                            NOT_FOUND                    404  banner    critical
    │   ├── AgentNotFound                   AGENT_NOT_FOUND              404  banner    critical
    │   ├── ApiNotFound                     API_NOT_FOUND                404  banner    critical
    │   └── RemoteEndpointNotFound          REMOTE_ENDPOINT_NOT_FOUND    404  banner    critical
    ├── AuthenticationFailed                AUTHENTICATION_ERROR         401  banner    critical
    ├── Misuse                              MISUSE                       400  dev_only  warning
    ├── VersionMismatch                     VERSION_MISMATCH             400  dev_only  info
    ├── ConfigurationFailed                 CONFIGURATION_ERROR          400  banner    warning
    │   ├── UnknownName                     CONFIGURATION_ERROR          400  banner    warning
    │   ├── MissingPackage                  CONFIGURATION_ERROR          400  banner    warning
    │   └── ToolsRefused                    CONFIGURATION_ERROR          400  banner    warning
    ├── MissingPublicApiKey                 MISSING_PUBLIC_API_KEY_ERROR 400  banner    critical
    ├── UpgradeRequired                     UPGRADE_REQUIRED_ERROR       402  banner    warning
    ├── PaymentRequired                     PAYMENT_REQUIRED             402  banner    critical
    ├── Refused                             GUARDRAILS_VALIDATION_FAILED 403  banner    warning
    ├── LimitExceeded                       LIMIT_EXCEEDED               413  banner    warning
    ├── IncompleteStream                    INCOMPLETE_STREAM            502  banner    critical
    ├── Interrupted                         RUN_INTERRUPTED              503  banner    warning
    ├── ThreadBusy                          THREAD_BUSY                  409  banner    warning
    ├── StoreFailed                         STORE_FAILED                 503  banner    critical
    │   └── StoreReadOnly                   STORE_FAILED                 503  banner    critical
    └── Cancelled                           CANCELLED                    499  silent    info

Codes, visibility and severity are those of CopilotKit 1.10.6 (`CopilotKitErrorCode`,
`ERROR_CONFIG`), `INCOMPLETE_STREAM` is of its runtime 1.74; those from `PaymentRequired` on and the
indented leaves are ours. The message of a `CopilotError` is shown to end users. Any other
exception is logged with its traceback and shown as "The run failed".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from copilot_runtime.base.secrets import REDACTOR

Visibility = Literal["banner", "toast", "silent", "dev_only"]
Severity = Literal["critical", "warning", "info"]

_TROUBLESHOOTING = "https://docs.copilotkit.ai/troubleshooting/common-issues"
_AGENT_HELP = (
    "https://docs.copilotkit.ai/coagents/troubleshooting/common-issues"
    "#i-am-getting-agent-not-found-error"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """The part of an error that clients may see: no traceback, header or path of the server."""

    code: str
    message: str
    status_code: int = 500
    visibility: Visibility = "toast"
    severity: Severity = "critical"
    kind: str = "CopilotError"
    help_url: str | None = None


class CopilotError(Exception):
    """The base class of all errors of this package.

    `hint` says how to fix the error, in logs and tracebacks. Clients and models get it only if
    `is_hint_public` is set, for errors in their own input. `public` replaces the message for
    clients if the message names a file or an address of the server. Secrets are redacted in all
    three, because a service may repeat a key, or an address contain one.
    """

    code = "UNKNOWN"
    status_code = 500
    visibility: Visibility = "toast"
    severity: Severity = "critical"
    help_url: str | None = None
    error_type: str | None = None
    """The value of `error.type` in traces and metrics, if several classes share one `code`."""
    retryable = False
    """Whether the same request may succeed when it is sent again."""
    is_hint_public = False
    is_logged = False
    """Whether the error was logged before it ended a run, so that the run does not log it again."""
    _hint: str | None = None

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        status_code: int | None = None,
        kind: str | None = None,
        public: str | None = None,
    ) -> None:
        message = REDACTOR.redact(message)
        super().__init__(message)
        self.message = message
        self.hint = hint
        self._public = REDACTOR.redact(public) if public else public
        self.kind = kind or type(self).__name__
        if status_code is not None:
            self.status_code = status_code

    @property
    def hint(self) -> str | None:
        """How to fix the error. A traceback shows it below the message."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        hint = REDACTOR.redact(hint) if hint else hint
        notes = [note for note in getattr(self, "__notes__", ()) if note != self._hint]
        self.__notes__ = [hint, *notes] if hint else notes
        self._hint = hint

    @property
    def public(self) -> str:
        """The message for clients and models."""
        if self._public or not (self.is_hint_public and self.hint):
            return self._public or self.message
        return f"{self.message} {self.hint}"

    def report(self) -> ErrorReport:
        """Return the part of this error that may leave the server."""
        return ErrorReport(
            code=self.code,
            message=self.public,
            status_code=self.status_code,
            visibility=self.visibility,
            severity=self.severity,
            kind=self.kind,
            help_url=self.help_url,
        )


class NetworkError(CopilotError):
    """An upstream service could not be reached, broke off or failed."""

    code = "NETWORK_ERROR"
    status_code = 503
    visibility = "banner"
    help_url = f"{_TROUBLESHOOTING}#i-am-getting-a-network-errors--api-not-found"
    retryable = True


class RateLimited(NetworkError):
    """An upstream service limits requests. `retry_after` is in seconds, if the service gave it."""

    code = "RATE_LIMITED"
    status_code = 429
    severity = "warning"
    help_url = None

    def __init__(self, message: str, *, retry_after: float | None = None, **details: str | None):
        super().__init__(message, hint=details.get("hint"), kind=details.get("kind"))
        self.retry_after = retry_after


class InvalidAnswer(NetworkError):
    """A model's answer is empty, or contains a call that its provider could not parse.

    Asked again, the model mostly answers, so adapters do so once.
    """

    status_code = 502
    error_type = "INVALID_ANSWER"
    help_url = None


class RunStalled(NetworkError):
    """An upstream service went silent for longer than its time limit."""

    status_code = 504
    error_type = "TIMEOUT"
    retryable = False  # no retry: the user has waited for the whole timeout already


class NotFound(CopilotError):
    """The requested object does not exist."""

    code = "NOT_FOUND"
    status_code = 404
    visibility = "banner"


class AgentNotFound(NotFound):
    """No agent has the requested name."""

    code = "AGENT_NOT_FOUND"
    help_url = _AGENT_HELP

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.agents = [*known]
        """The names of the agents that this caller may use."""
        more = f"See more: [{_AGENT_HELP}]({_AGENT_HELP})"
        if names := ", ".join(self.agents):
            way_out = (
                f"Available agents are: {names}. Please verify the agent name in your "
                "configuration and ensure it matches one of the available agents.\n\n"
            )
        else:
            way_out = "Please set up at least one agent before proceeding. "
        super().__init__(f"Agent {name[:100]!r} was not found. {way_out}{more}")


class ApiNotFound(NotFound):
    """A CopilotKit API could not be found at its address."""

    code = "API_NOT_FOUND"
    help_url = f"{_TROUBLESHOOTING}#i-am-getting-a-network-errors--api-not-found"


class RemoteEndpointNotFound(NotFound):
    """A remote endpoint could not be found at its address."""

    code = "REMOTE_ENDPOINT_NOT_FOUND"
    help_url = f"{_TROUBLESHOOTING}#i-am-getting-copilotkits-remote-endpoint-not-found-error"


class AuthenticationFailed(CopilotError):
    """A key or token was refused."""

    code = "AUTHENTICATION_ERROR"
    status_code = 401
    visibility = "banner"
    help_url = f"{_TROUBLESHOOTING}#authentication-errors"


class Misuse(CopilotError):
    """The runtime was configured or called incorrectly."""

    code = "MISUSE"
    status_code = 400
    visibility = "dev_only"
    severity = "warning"


class VersionMismatch(CopilotError):
    """The versions of client and runtime are incompatible."""

    code = "VERSION_MISMATCH"
    status_code = 400
    visibility = "dev_only"
    severity = "info"


class ConfigurationFailed(CopilotError):
    """A setting is invalid, or a service refused a request made with it."""

    code = "CONFIGURATION_ERROR"
    status_code = 400
    visibility = "banner"
    severity = "warning"


class UnknownName(ConfigurationFailed):
    """A name is not registered."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = get_close_matches(name, names, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"No {what} named {name!r}. Known: {', '.join(names) or 'none'}.{guess}")


class MissingPackage(ConfigurationFailed):
    """A required package is not installed; `extra` names the extra that installs it, if any."""

    def __init__(self, what: str, package: str, extra: str | None = None) -> None:
        self.extra = extra
        self.command = (
            f"pip install 'copilot-runtime[{extra}]'" if extra else f"pip install {package}"
        )
        super().__init__(f"{what} needs the package {package!r}. Install it with: {self.command}")


class ToolsRefused(ConfigurationFailed):
    """A model that takes no tools refused a request with some."""


class MissingPublicApiKey(CopilotError):
    """A cloud feature was requested without a public API key."""

    code = "MISSING_PUBLIC_API_KEY_ERROR"
    status_code = 400
    visibility = "banner"


class UpgradeRequired(CopilotError):
    """A cloud feature needs another plan."""

    code = "UPGRADE_REQUIRED_ERROR"
    status_code = 402
    visibility = "banner"
    severity = "warning"


class PaymentRequired(CopilotError):
    """The account at a provider has no credit left, or has reached its spending limit."""

    code = "PAYMENT_REQUIRED"
    status_code = 402
    visibility = "banner"


class Refused(CopilotError):
    """A guardrail refused the request or the answer; the message is its reason."""

    code = "GUARDRAILS_VALIDATION_FAILED"
    status_code = 403
    visibility = "banner"
    severity = "warning"


class LimitExceeded(CopilotError):
    """A request or a run is larger than the settings allow."""

    code = "LIMIT_EXCEEDED"
    status_code = 413
    visibility = "banner"
    severity = "warning"


class IncompleteStream(CopilotError):
    """An agent's stream broke off, or its events were in a wrong order."""

    code = "INCOMPLETE_STREAM"
    status_code = 502
    visibility = "banner"


class Interrupted(CopilotError):
    """The server stopped before the run ended."""

    code = "RUN_INTERRUPTED"
    status_code = 503
    visibility = "banner"
    severity = "warning"


class ThreadBusy(CopilotError):
    """The thread has an active run; a thread has one run at a time."""

    code = "THREAD_BUSY"
    status_code = 409
    visibility = "banner"
    severity = "warning"


class StoreFailed(CopilotError):
    """The thread store is unavailable."""

    code = "STORE_FAILED"
    status_code = 503
    visibility = "banner"


class StoreReadOnly(StoreFailed):
    """The thread store is read-only at the moment."""

    error_type = "STORE_READ_ONLY"


class Cancelled(CopilotError):
    """The run was stopped before it ended."""

    code = "CANCELLED"
    status_code = 499
    visibility = "silent"
    severity = "info"


STOPPED = Cancelled("The run was stopped.").report()
"""The report of a run that was stopped by a client or the operator."""

RUN_FAILED = ErrorReport(
    code="UNKNOWN", message="The run failed. The server's log says why.", kind="Error"
)
"""The report for exceptions that are not a `CopilotError`."""


def build_error_report(error: BaseException) -> ErrorReport:
    """Return the public report of any exception."""
    return error.report() if isinstance(error, CopilotError) else RUN_FAILED
