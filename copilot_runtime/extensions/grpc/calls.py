"""Handles calls: authenticates and authorises the caller, and converts errors to statuses.

Callers are authenticated as over HTTP, with the same credentials as metadata.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc.aio import ServicerContext
from starlette.types import Message as ReceivedMessage
from starlette.types import Scope

from copilot_runtime.api.identity import (
    OPERATE,
    USER_SCOPES,
    Caller,
    Forbidden,
    Identity,
    set_current_identity,
)
from copilot_runtime.base.errors import (
    RUN_FAILED,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    Misuse,
    RunStalled,
)
from copilot_runtime.base.secrets import carry_headers
from copilot_runtime.extensions.grpc.message import MessageReader
from copilot_runtime.extensions.grpc.names import CODE, TENANT, USER, name_operation
from copilot_runtime.extensions.grpc.service import Call, RpcMethod, RpcService
from copilot_runtime.security.schemes import check_identity
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.rpc import Counts, count_items, describe_rpc
from copilot_runtime.telemetry.span import NO_SPAN, Span, set_current_span
from copilot_runtime.telemetry.telemetry import Telemetry
from copilot_runtime.threads.validation import check_owner
from copilot_runtime.transports.auth import Authenticator, Unauthorized
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.transport import Refusal, RequestPolicy

logger = logging.getLogger(__name__)

Context: TypeAlias = "ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_STATUSES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    402: grpc.StatusCode.FAILED_PRECONDITION,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    410: grpc.StatusCode.OUT_OF_RANGE,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_FAULTS_OF_SERVERS = {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"}
_MOST_WORDS = 1_000
"""Maximum length of an error message, in characters: it is sent in a header."""
_LONGEST_USER = 100
"""Maximum length of a user's name in an error message, in characters."""
_READS = 1
"""`idempotency_level = NO_SIDE_EFFECTS`"""
_HERE = ("127.0.0.1", 0)


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a failed call."""

    code: grpc.StatusCode
    message: str
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGate:
    """Authorises calls, applies limits, writes the audit log, and creates spans.

    `timeout` is for unary calls, in seconds; 0 disables it. `read_timeout` is for messages.
    """

    authenticator: Authenticator
    telemetry: Telemetry
    policies: Sequence[RequestPolicy]
    max_bytes: int
    read_timeout: float
    timeout: float
    is_closing: Callable[[], bool]

    def build_handler(self, service: RpcService) -> grpc.GenericRpcHandler:
        """Return the gRPC handler of a service."""
        descriptor = service.descriptor
        methods = {
            name: self._build(descriptor.methods_by_name[name], method)
            for name, method in service.list_methods().items()
        }
        return grpc.method_handlers_generic_handler(descriptor.full_name, methods)

    def _build(self, descriptor: MethodDescriptor, method: RpcMethod) -> Handler:
        if descriptor.client_streaming:
            raise ConfigurationFailed(
                f"{descriptor.full_name} takes a stream of messages: who sends it is known by a "
                "token for one message.",
                hint="Leave it out of list_methods.",
            )
        one = _Method(self, descriptor, method)
        # Streams look the same to clients, and gRPC does not read their message in advance.
        if descriptor.server_streaming:
            return grpc.stream_stream_rpc_method_handler(one.stream)
        return grpc.stream_unary_rpc_method_handler(one.answer)

    async def admit(self, request: Request, path: str, scope_name: str) -> Caller:
        """Return the authenticated caller. Raises `CopilotError` or `Refusal`, if any."""
        user = unquote(request.headers.get(USER, ""))
        tenant = request.headers.get(TENANT, "")
        request.operation = name_operation(path, user, tenant)
        caller = request.caller = await self.authenticator.authenticate(request)
        if user or tenant:
            caller = request.caller = _act_for(caller, user, tenant)
        set_current_identity(caller.identity)
        if scope_name:
            caller.identity.require(scope_name)
        for policy in self.policies:
            await policy.before(request)
        return caller

    def record(self, request: Request, error: BaseException | None) -> None:
        """Pass an answered call to the policies, such as the audit log."""
        for policy in self.policies:
            policy.after(request, error)


class _CallRequest(Request):
    """A call as a `Request`, whose body is its message."""

    def __init__(self, scope: Scope, reader: MessageReader, *, path: str) -> None:
        super().__init__(scope, _refuse_receive, _refuse_send, path=path)
        self._reader = reader

    async def body(self) -> bytes:
        """Return the message, which the reader keeps. Raises `BadRequest`."""
        return await self._reader.read()


async def _refuse_receive() -> ReceivedMessage:
    raise AssertionError("the message of a call is read by its reader")


async def _refuse_send(message: Any) -> None:
    raise AssertionError(f"a policy sent {message['type']} for an admitted call")


class _Method:
    """A method that receives messages as bytes: callers are authenticated before decoding."""

    def __init__(self, gate: CallGate, descriptor: MethodDescriptor, method: RpcMethod) -> None:
        self._gate = gate
        self._method = method
        self._name = f"{descriptor.containing_service.full_name}/{descriptor.name}"
        self._request_class = GetMessageClass(descriptor.input_type)
        self._is_read = descriptor.GetOptions().idempotency_level == _READS

    async def answer(self, _messages: object, context: Context) -> bytes:
        """Handle a call that returns one message."""
        answer = b""

        async def work(message: Message, call: Call) -> Counts:
            nonlocal answer
            run = cast("Callable[[Message, Call], Awaitable[Message]]", self._method.run)
            async with asyncio.timeout(self._gate.timeout or None):
                one = await run(message, call)
            answer = one.SerializeToString()
            return count_items("response", one)

        await self._perform(context, work)
        return answer

    async def stream(self, _messages: object, context: Context) -> None:
        """Handle a call that returns a stream of messages."""

        async def work(message: Message, call: Call) -> Counts:
            run = cast("Callable[[Message, Call], AsyncGenerator[Message]]", self._method.run)
            number = 0
            async with aclosing(run(message, call)) as answers:
                async for one in answers:
                    await context.write(one.SerializeToString())
                    number += 1
            return {semconv.RESPONSE_MESSAGES: number}

        await self._perform(context, work)

    async def _perform(
        self, context: Context, work: Callable[[Message, Call], Awaitable[Counts]]
    ) -> None:
        """Authorise and execute a call, or set the status of its error.

        `context.abort` is not used: gRPC keeps the exception, and with it all local values, until
        the next garbage collection.
        """
        scope = build_scope(f"/{self._name}", context)
        gate = self._gate
        reader = MessageReader(context, max_bytes=gate.max_bytes, timeout=gate.read_timeout)
        request = self._build_request(scope, reader)
        span: Span = NO_SPAN
        has_message = False
        try:
            caller = await self._gate.admit(request, f"/{self._name}", self._method.scope)
            span = self._start_span(caller, scope)
            scope["client"] = scope["client"] or _HERE  # a local socket
            call = Call(
                caller=replace(caller, parent=span.context) if span.is_recording else caller,
                scope=scope,
                headers=request.headers,
                is_closing=self._gate.is_closing,
            )
            message = self._parse(await reader.take())
            has_message = True
            span.add_event(semconv.EVENT_REQUEST_RECEIVED, count_items("request", message))
            span.add_event(semconv.EVENT_RESPONSE_SENT, await work(message, call))
        except Exception as error:  # any error of services, hooks and stores becomes a status
            status = convert_error(error, self._name)
            _fail(span, error, status)
            request.set_retry_after(error)
            self._gate.record(request, error)
            context.set_code(status.code)
            context.set_details(status.message)
            context.set_trailing_metadata(status.metadata)
        except asyncio.CancelledError:
            if has_message:  # a disconnect does not undo the call, so it is recorded
                self._gate.record(request, None)
            span.set_attributes({semconv.RPC_RESPONSE_STATUS_CODE: "CANCELLED"})
            raise
        else:
            self._gate.record(request, None)
        finally:
            span.end()

    def _build_request(self, scope: Scope, reader: MessageReader) -> Request:
        """Return the call as a `Request` for request policies."""
        carry_headers(scope["headers"])
        request = _CallRequest(scope, reader, path=self._name)
        request.action = f"/{self._name}"
        request.is_read = self._is_read
        request.starts_run = self._method.starts_run
        return request

    def _parse(self, data: bytes) -> Message:
        try:
            return self._request_class.FromString(data)
        except (DecodeError, RecursionError) as error:
            name = self._request_class.DESCRIPTOR.full_name
            raise Misuse(f"The message is no {name}.") from error

    def _start_span(self, caller: Caller, scope: Scope) -> Span:
        if not self._method.is_traced:
            return NO_SPAN
        host, port = scope["client"] or (None, None)
        span = self._gate.telemetry.start_span(
            self._name,
            kind="server",
            parent=caller.parent,
            attributes={
                **describe_rpc(self._name),
                semconv.CLIENT_ADDRESS: host,
                semconv.CLIENT_PORT: port,
            },
        )
        set_current_span(span)  # each call has its own task
        return span


def build_scope(path: str, context: Context) -> Scope:
    """Return a call as an ASGI scope: gRPC is a POST over HTTP/2.

    Browsers cannot send such requests, so the host is not checked.
    """
    headers = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in context.invocation_metadata() or ()
        if isinstance(value, str)
    ]
    return {
        "type": "http",
        "http_version": "2",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [*headers, (b"host", b"localhost")],
        "client": parse_peer(context.peer()),
        "server": None,
        "state": {},
    }


def parse_peer(peer: str) -> tuple[str, int] | None:
    """Return the address in gRPC's `ipv4:…` or `ipv6:…`, or None for a Unix socket."""
    kind, _, place = unquote(peer).partition(":")
    host, _, port = place.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)


def convert_error(error: Exception, name: str) -> Status:
    """Return the status of an error; details of foreign exceptions are omitted."""
    match error:
        case CopilotError():
            if error.message not in error.public:
                logger.error("%s failed: %s %s", name, error.message, error.hint or "")
            return _status(error.status_code, error.public, error.code, error)
        case Unauthorized():
            code = next(iter(error.body["errors"]))["extensions"]["code"]
            return _status(error.status, error.message, code, error)
        case Refusal():
            return _status(error.status, str(error), "REFUSED", error)
        case BadRequest():
            return _status(error.status, error.message, error.code, error)
        case NotImplementedError():
            return _status(501, "This method is not there yet.", "NOT_IMPLEMENTED", error)
        case TimeoutError():
            stalled = RunStalled("The call took too long.")
            return _status(stalled.status_code, stalled.message, stalled.code, error)
        case _:
            logger.exception("%s failed", name)
            return _status(500, RUN_FAILED.message, RUN_FAILED.code, error)


def _status(number: int, message: str, code: str, error: Exception) -> Status:
    metadata = [(CODE, code)]
    seconds = getattr(error, "retry_after", None)
    if isinstance(error, LimitExceeded) and seconds is not None:
        metadata.append(("retry-after", str(seconds)))
    words = " ".join(message.split())[:_MOST_WORDS]
    found = _STATUSES.get(number, grpc.StatusCode.INTERNAL)
    return Status(found, words, tuple(metadata))


def _fail(span: Span, error: Exception, status: Status) -> None:
    span.set_attributes({semconv.RPC_RESPONSE_STATUS_CODE: status.code.name})
    if status.code.name in _FAULTS_OF_SERVERS:
        span.fail(error)


def _act_for(caller: Caller, user: str, tenant: str) -> Caller:
    """Return the user on whose behalf a service calls, with a user's permissions.

    Raises `Forbidden` if the caller may not act for others: people may not, whatever their roles
    are.
    """
    asking = caller.identity
    if not asking.is_service:
        named = Identity(user=user, tenant=tenant).owner or ""
        raise Forbidden(
            f"{asking.owner or 'anonymous'!r} may not ask for {named[:_LONGEST_USER]!r}: only a "
            f"service may that signs its calls by service tokens. Leave the metadata {USER} and "
            f"{TENANT} out."
        )
    if not asking.allows(OPERATE):
        raise Forbidden(
            f"{asking.owner or 'anonymous'!r} may not ask for a user: it needs the scope "
            f"{OPERATE!r}. Services have it by service_tokens.roles: [operator] at this server."
        )
    identity = Identity(
        user=user or None,
        tenant=tenant,
        method=asking.method,
        actor=asking.owner or "",
        permissions=USER_SCOPES & asking.permissions,
        address=asking.address,
    )
    check_identity(identity)
    check_owner("user's id", identity.owner or "")
    return replace(caller, user=identity.owner, identity=identity)
