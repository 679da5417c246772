"""Authenticate requests, before anything else is done."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from time import time_ns
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from copilot_runtime.api.hooks import remember_call
from copilot_runtime.api.identity import (
    ANONYMOUS,
    OPERATE,
    TENANT_PREFIX,
    Caller,
    Identity,
    is_tenant,
)
from copilot_runtime.api.scheme import (
    AUTHORIZATION,
    CredentialInvalid,
    Credentials,
)
from copilot_runtime.base.concurrency import call
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import (
    RUN_FAILED,
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    Misuse,
)
from copilot_runtime.config.sections import AccessSettings
from copilot_runtime.security.proxies import TrustedProxies
from copilot_runtime.security.schemes import SchemeChain, check_identity
from copilot_runtime.telemetry.span import extract_context
from copilot_runtime.threads.validation import check_owner
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal, error_body

logger = logging.getLogger(__name__)

Authenticate = Callable[[Any], str | Identity | Awaitable[str | Identity | None] | None]
"""The authentication hook. It gets the `HTTPConnection`, the common base of `Request` and
`WebSocket`, and returns the owner of threads: a user identifier of the application, or an
`Identity` with a tenant and roles. `None` means anonymous, unless the setting
`access.authenticate` names schemes: then `access.anonymous` decides. To refuse a request, it
raises `AuthenticationFailed` or Starlette's `HTTPException`."""

_UNIX = "unix"
_MOST_LOGGED = 100
"""Maximum number of different sets of unknown roles that are logged: a provider may have any
number."""
_ROLE_SOURCES = {
    "jwt": "have the identity provider put one that is known into the claim of jwt.roles_claim, "
    "or read another claim",
    "proxy": "have the proxy send one that is known in the header of proxy.roles_header",
}
_FORWARDED_FOR = b"x-forwarded-for"


class Unauthorized(Refusal):
    """A request that is refused by authentication. `status` and `message` are for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "AUTHENTICATION_ERROR",
        headers: Mapping[str, str] | None = None,
        reason: str = "",
        identity: Identity | None = None,
    ) -> None:
        kind = {401: "unauthorized", 403: "forbidden"}.get(status, "refused")
        if status >= 500:  # a failure of the server is not a refusal of the client
            has_name = code not in (AuthenticationFailed.code, RUN_FAILED.code)
            kind = code.lower() if has_name else "internal_error"
        body = error_body(kind, message, code)
        super().__init__(status, body, headers, close=(4401, "Unauthorized"))
        self.message = message
        self.reason = reason or message
        """The reason, for the operator only."""
        self.identity = identity or ANONYMOUS
        """The identity of the refused credential, for the operator only, or `None`."""


class Authenticator:
    """Authenticates requests and builds their `Caller`.

    `authenticate` is the application's hook, which is called for requests without a credential that
    the `schemes` recognise. `forwards` decides which headers a run may see, and `properties` are
    the operator's; the client's properties are merged into them. `access` maps roles to permissions
    and decides about anonymous access. `X-Forwarded-For` of the `proxies` is trusted.
    """

    def __init__(
        self,
        authenticate: Authenticate | None = None,
        forwards: Callable[[str], bool] = frozenset().__contains__,
        properties: Mapping[str, Any] | None = None,
        *,
        schemes: SchemeChain | None = None,
        access: AccessSettings | None = None,
        operators: Collection[str] = (),
        proxies: Collection[str] = (),
    ) -> None:
        self._authenticate = authenticate
        self._properties = properties or {}
        self._forwards = forwards
        # clients send the same headers with each of their requests
        self._select_forwarded = lru_cache(maxsize=256)(self._find_forwarded)
        self._describe_anonymous = lru_cache(maxsize=256)(partial(self._permit, ANONYMOUS))
        self._schemes = schemes
        self._access = access or AccessSettings()
        self._operators = frozenset(operators)
        self._proxies = TrustedProxies(proxies)
        self._find_scopes = lru_cache(maxsize=256)(self._access.find_scopes)
        self._logged: set[frozenset[str]] = set()

    async def authenticate(self, request: Request) -> Caller:
        """Return the caller of a request, and remove headers that it must not set.

        Raises `Refusal`, also if the body of a signed request cannot be read, and `ClientGone`.
        """
        identity = None
        if self._schemes is not None:
            identity = await self._recognise(self._schemes, request)
        if identity is None and self._authenticate is not None:
            self._check_authorization(request)
            start_time = time_ns()
            identity = await self._ask_hook(self._authenticate, HTTPConnection(request.scope))
            if identity is not None and self._schemes is not None:
                _check_prefix(identity)
            remember_call("authenticate", self._authenticate, start_time)
        if identity is None and self._schemes is not None and not self._access.anonymous:
            challenge = {"www-authenticate": "Bearer"}
            raise Unauthorized(401, "Sign in to use this server.", headers=challenge)
        headers = request.headers
        address = find_address(request, self._proxies)
        if identity is None:
            identity = self._describe_anonymous(address)
        else:
            identity = self._permit(identity, address)
        return Caller(
            user=identity.owner,
            headers={name: headers[name] for name in self._select_forwarded(tuple(headers))},
            properties=self._properties,
            parent=extract_context(headers),
            identity=identity,
        )

    def describe_stranger(self, request: Request) -> Caller:
        """Return an anonymous caller with the client's address."""
        return Caller(identity=replace(ANONYMOUS, address=find_address(request, self._proxies)))

    async def _recognise(self, schemes: SchemeChain, request: Request) -> Identity | None:
        """Return the identity of a request's credential, or `None` if no scheme recognises one."""
        credentials = Credentials(
            headers=request.headers,
            peer=read_peer(request),
            method=_name_operation(request),
            read_body=request.body,
        )
        try:
            _check_once(request, schemes.headers)
            recognition = await schemes.recognise(credentials)
            if recognition.identity is not None:
                _check_owner(recognition.identity)
            elif self._authenticate is None:
                schemes.reject_unknown(credentials)
        except CopilotError as error:
            reason = getattr(error, "reason", error.message)
            logger.info("A credential from %s was refused: %s", credentials.peer, reason)
            raise _refuse(error, reason) from error
        except BadRequest as error:  # reading the body of a signed request failed
            body = error_body("invalid_request", error.message, error.code)
            raise Refusal(error.status, body, error.headers) from error
        request.remove_headers(recognition.removed)
        return recognition.identity

    def _check_authorization(self, request: Request) -> None:
        """Raise `Unauthorized` for two headers: hook and agent might read different ones."""
        try:
            _check_once(request, (AUTHORIZATION,))
        except CredentialInvalid as error:
            raise _refuse(error, error.reason) from error

    async def _ask_hook(
        self, authenticate: Authenticate, connection: HTTPConnection
    ) -> Identity | None:
        try:
            identity = _read_answer(await call(authenticate, connection))
            if identity is not None:
                _check(identity)
        except HTTPException as error:
            message = _message(error)
            raise Unauthorized(error.status_code, message, headers=error.headers) from error
        except CopilotError as error:
            if isinstance(error, ConfigurationFailed):
                logger.error("%s %s", error.message, error.hint or "")
                raise Unauthorized(500, RUN_FAILED.message, code=RUN_FAILED.code) from error
            raise Unauthorized(error.status_code, error.public, code=error.code) from error
        except Exception as error:  # code of the application: its bugs must not let anyone in
            logger.exception("The authenticate hook failed")
            raise Unauthorized(500, RUN_FAILED.message, code=RUN_FAILED.code) from error
        return identity

    def _find_forwarded(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the headers that a run may see."""
        return [*filter(self._forwards, names)]

    def _permit(self, identity: Identity, address: str) -> Identity:
        """Return an identity with its permissions and its client address."""
        roles = tuple(identity.roles) or self._access.default_roles
        permissions = self._find_scopes(roles)
        if not permissions:
            self._warn_unknown(roles, identity.method)
        if identity.owner is not None and identity.owner in self._operators:
            permissions |= {OPERATE}
        if identity.scopes is not None and "*" not in identity.scopes:
            permissions &= frozenset(identity.scopes)
        return copy_with(identity, roles=roles, permissions=permissions, address=address)

    def _warn_unknown(self, roles: Sequence[str], method: str) -> None:
        """Log once if all roles of a credential are unknown: nothing else explains the refusals."""
        names = frozenset(roles)
        if names in self._logged or len(self._logged) >= _MOST_LOGGED:
            return
        unknown = self._access.list_unknown(roles)
        if not unknown or len(unknown) < len(roles):
            return
        self._logged.add(names)
        logger.warning(
            "A credential%s names the roles %s, and none of them is known, so it allows nothing: "
            "access.default_roles are for credentials without any role. Give one of them scopes in "
            "access.roles%s.",
            f" ({method})" if method else "",
            ", ".join(repr(role[:100]) for role in unknown[:20]),
            f", or {_ROLE_SOURCES[method]}" if method in _ROLE_SOURCES else "",
        )


def _read_answer(answer: Any) -> Identity | None:
    """Return the identity from a hook's return value, or `None`. Raises `ConfigurationFailed`."""
    match answer:
        case None:
            return None
        case Identity():
            return replace(answer, method="hook")
        case str() if answer:
            return Identity(user=answer, method="hook")
        case _:
            raise ConfigurationFailed(
                f"The authenticate hook returned {answer!r}.",
                hint="It returns the id of a user, a string that is not empty, an Identity, or "
                "None.",
            )


def _check_owner(identity: Identity) -> None:
    """Raise `CredentialInvalid` if an identity cannot own data."""
    try:
        check_owner("user's id", identity.owner or "")
    except Misuse as error:
        raise CredentialInvalid("The user of this credential has no usable id.") from error


def _check_prefix(identity: Identity) -> None:
    """Raise `Unauthorized` if a hook's user has the identifier of an API key or a service."""
    try:
        check_identity(identity)
    except CredentialInvalid as error:
        raise _refuse(error, error.reason) from error


def _refuse(error: CopilotError, reason: str) -> Unauthorized:
    """Return the error for a refused credential."""
    challenge = {"www-authenticate": 'Bearer error="invalid_token"'}
    headers = challenge if error.status_code == 401 else None
    return Unauthorized(
        error.status_code,
        error.public,
        code=error.code,
        headers=headers,
        reason=reason,
        identity=_find_proven_identity(error),
    )


def _find_proven_identity(error: CopilotError) -> Identity | None:
    """Return a refused credential's identity, or `None` if it looks like another's."""
    identity = error.identity if isinstance(error, CredentialInvalid) else None
    try:
        if identity is not None:
            check_identity(identity)
            _check_owner(identity)
    except CredentialInvalid:
        return None
    return identity


def find_address(request: Request, proxies: TrustedProxies) -> str:
    """Return the client's address, also behind trusted proxies.

    Each proxy may have added a header of its own; they form one list (RFC 9110, 5.3).
    """
    peer = read_peer(request)
    if not proxies.includes(peer):
        return peer
    lines = [value for name, value in request.scope["headers"] if name.lower() == _FORWARDED_FOR]
    return proxies.find_client(peer, b",".join(lines).decode("latin-1"))


def read_peer(request: Request) -> str:
    """Return the address of a connection's peer, or a placeholder for a Unix socket."""
    client = request.scope.get("client")
    return client[0] if client and client[0] else _UNIX


def _name_operation(request: Request) -> str:
    """Return the operation that a service signs: method, path below the URL, and query."""
    if request.operation:
        return request.operation
    query = f"?{request.query_string}" if request.query_string else ""
    return f"{request.method or 'GET'} {request.path}{query}"


def _check_once(request: Request, names: Collection[str]) -> None:
    """Raise `CredentialInvalid` for a duplicate header with a credential.

    A proxy may have added its own header to the client's, and the two cannot be told apart.
    """
    found = [name.lower() for name, _ in request.scope["headers"]]
    for name in names:
        if found.count(name.encode("latin-1")) > 1:
            raise CredentialInvalid(f"The header {name} comes twice.")


def _check(identity: Identity) -> None:
    """Raise `ConfigurationFailed` if a hook's user cannot own threads, or has malformed roles."""
    user = identity.user
    try:
        if user == "":
            raise Misuse("The user is an empty text.")
        if user is not None and user.startswith(TENANT_PREFIX):
            raise Misuse(f"The id of a user may not begin with {TENANT_PREFIX!r}.")
        if isinstance(identity.roles, str) or isinstance(identity.scopes, str):
            raise Misuse("Roles and scopes are lists of names: each letter of a text would be one.")
        if identity.tenant and not is_tenant(identity.tenant):
            raise Misuse("A tenant has letters, digits and . _ -, at most 100 of them.")
        check_owner("user's id", identity.owner or "")
    except Misuse as error:
        text = identity.owner or ""
        excerpt = text if len(text) <= 40 else f"{text[:40]}…"
        raise ConfigurationFailed(
            f"The authenticate hook returned {excerpt!r}. {error.message}",
            hint="It returns the id of a user, not a token or a record, or an Identity.",
        ) from error


def _message(error: HTTPException) -> str:
    """Return the message for the client from a `detail`, which may be any JSON in FastAPI."""
    detail = cast("Any", error.detail)
    if isinstance(detail, dict):
        fields = cast("dict[str, Any]", detail)
        detail = fields.get("message") or fields.get("error")
    if isinstance(detail, str) and detail:
        return detail
    try:
        return HTTPStatus(error.status_code).phrase
    except ValueError:  # a non-standard status of the application
        return "The request was refused."
