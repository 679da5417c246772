"""Find out who sent a request, before anything else is done."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from time import time_ns
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import Scope

from copilot_runtime.concurrency import call
from copilot_runtime.errors import RUN_FAILED, ConfigurationFailed, CopilotError, Misuse
from copilot_runtime.hooks import remember_call
from copilot_runtime.interfaces import Caller
from copilot_runtime.telemetry.propagation import extract_context
from copilot_runtime.threads.validation import check_id
from copilot_runtime.transports.transport import Refusal, error_body

logger = logging.getLogger(__name__)

Authenticate = Callable[[Any], str | Awaitable[str | None] | None]
"""Gets the `HTTPConnection`, which has what a `Request` and a `WebSocket` share. Returns whose
request this is: an id of the application's, to whom threads belong. None is anybody. It raises
`AuthenticationFailed`, or Starlette's `HTTPException`, to send one away."""


class Unauthorized(Refusal):
    """The request ends here. `status` and `message` are for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "AUTHENTICATION_ERROR",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        kind = {401: "unauthorized", 403: "forbidden"}.get(status, "refused")
        if status >= 500:  # a client is not refused because the server failed
            kind = "internal_error"
        body = error_body(kind, message, code)
        super().__init__(status, body, headers, close=(4401, "Unauthorized"))
        self.message = message


class Authenticator:
    """Makes the `Caller` of a request.

    `authenticate` is the hook of the application, `forwards` decides which headers a run may see,
    and `properties` are the operator's: those of the client come on top.
    """

    def __init__(
        self,
        authenticate: Authenticate | None = None,
        forwards: Callable[[str], bool] = frozenset().__contains__,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._authenticate = authenticate
        self._properties = properties or {}
        self._forwards = lru_cache(maxsize=256)(forwards)  # clients send the same few names

    async def authenticate(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        """Return who sent the request. Raises `Unauthorized`."""
        user = None
        if self._authenticate is not None:
            start_time = time_ns()
            user = await self._user(self._authenticate, HTTPConnection(scope))
            remember_call("authenticate", self._authenticate, start_time)
        forwarded = {name: value for name, value in headers.items() if self._forwards(name)}
        parent = extract_context(headers)
        return Caller(user=user, headers=forwarded, properties=self._properties, parent=parent)

    async def _user(self, authenticate: Authenticate, connection: HTTPConnection) -> str | None:
        try:
            user = await call(authenticate, connection)
            if user is not None and not (isinstance(user, str) and user):
                raise ConfigurationFailed(
                    f"The authenticate hook returned {user!r}.",
                    hint="It returns the id of a user, a string that is not empty, or None.",
                )
            _check(user)
        except HTTPException as error:
            message = _message(error)
            raise Unauthorized(error.status_code, message, headers=error.headers) from error
        except CopilotError as error:
            if isinstance(error, ConfigurationFailed):
                logger.error("%s %s", error.message, error.hint or "")
                raise Unauthorized(500, RUN_FAILED.message, code=RUN_FAILED.code) from error
            raise Unauthorized(error.status_code, error.public, code=error.code) from error
        except Exception as error:  # code of the application: nobody comes in by its mistakes
            logger.exception("The authenticate hook failed")
            raise Unauthorized(500, RUN_FAILED.message, code=RUN_FAILED.code) from error
        return user


def _check(user: str | None) -> None:
    """Raise `ConfigurationFailed` for a user to whom no thread could belong."""
    if user is None:
        return
    try:
        check_id("user's id", user)
    except Misuse as error:
        excerpt = user if len(user) <= 40 else f"{user[:40]}…"
        raise ConfigurationFailed(
            f"The authenticate hook returned {excerpt!r}. {error.message}",
            hint="It returns the id of a user, not a token or a record.",
        ) from error


def _message(error: HTTPException) -> str:
    """Return what a client shows; FastAPI lets a `detail` be any JSON."""
    detail = cast("Any", error.detail)
    if isinstance(detail, dict):
        fields = cast("dict[str, Any]", detail)
        detail = fields.get("message") or fields.get("error")
    if isinstance(detail, str) and detail:
        return detail
    try:
        return HTTPStatus(error.status_code).phrase
    except ValueError:  # a status of the application's own
        return "The request was refused."
