"""Endpoints that are methods of a gRPC server."""

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from copilot_runtime.api.action import ActionContext
from copilot_runtime.api.identity import split_owner
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
)
from copilot_runtime.extensions.access.service_tokens import ServiceTokenSigner
from copilot_runtime.extensions.grpc.names import build_user_metadata, name_operation
from copilot_runtime.extensions.tools.catalog.endpoints import Endpoint, Operation, Surroundings
from copilot_runtime.extensions.tools.catalog.grpc.options import (
    FILE,
    Address,
    GrpcOptions,
    ServiceOptions,
    TlsOptions,
    build_address,
    check_request,
    find_section,
    find_service,
    load_service_config,
    split_method,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.rpc import start_rpc_span
from copilot_runtime.telemetry.span import inject_context, trace_block

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor

    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition
    from copilot_runtime.extensions.tools.catalog.grpc.client import Client
    from copilot_runtime.extensions.tools.catalog.grpc.protos import Protos

REFLECTION_TTL = 300.0
"""Seconds for which a server's reflection is cached."""

FILES_TTL = 1.0
"""Minimum seconds between two checks for changed files."""

FAILURE_TTL = 10.0
"""Seconds for which a failure to read the description is cached."""

_CONNECT_TIMEOUT = 10.0
_LARGE = 64 * 1024
"""Response size in bytes above which decoding runs in a thread, to keep the event loop responsive.
"""

_SOURCES = ("proto", "descriptors", "reflection")
_PLACES = ("address", "host", "port", "protocol")

logger = logging.getLogger(__name__)


class GrpcEndpoint(Endpoint[GrpcOptions]):
    """A unary or server-streaming method. Its request message defines the parameters."""

    Options = GrpcOptions
    is_fixed = False

    def __init__(
        self, tool: "ToolDefinition", options: GrpcOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(tool, options, surroundings)
        self._service, self._method = split_method(options.method)
        if options.request:
            check_request(options.request)
        self._name, own = find_service(surroundings.services, self._service)
        self._options = _merge(own, options, f"services.{self._name}")
        surroundings.references.check([self._options.metadata, self._options.llm_token])
        if self._options.token is not None:
            surroundings.references.check(self._options.token.secret)
        self._tls = _read_tls(self._options, surroundings.folder)
        self._files = _find_files(self._options, self._service, surroundings.folder)
        self._address = _parse_address(self._options, self._name, surroundings)
        self._client: Client | None = None
        self._lock = asyncio.Lock()
        self._operation: Operation | None = None
        self._failure: CopilotError | None = None
        """The error of the last attempt to read the description."""
        self._last_stamp: Sequence[object] = ()
        self._fresh_until = 0.0

    async def load(self, run: RunInput) -> Sequence[Operation]:
        del run
        return [await self._describe()]

    async def check(self, run: RunInput) -> str:
        del run
        operation = await self._describe()
        client = self._connect()
        await client.connect(_CONNECT_TIMEOUT)
        count = len(operation.parameters["properties"])
        return f"{client.address.target} is reached, and takes {count} parameters"

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _describe(self) -> Operation:
        """Return the method as an operation, from a cached description if it is fresh."""
        if monotonic() >= self._fresh_until:
            async with self._lock:
                if monotonic() >= self._fresh_until:
                    await self._refresh()
        if self._operation is None:
            assert self._failure is not None
            raise self._failure
        return self._operation

    async def _refresh(self) -> None:
        """Reload the description if it may have changed. On failure, the last one stays in use."""
        stamp = await asyncio.to_thread(_stamp, self._files)
        if self._operation is None or stamp != self._last_stamp or not stamp:
            self._last_stamp, self._failure = stamp, None
            try:
                self._operation = await self._read_operation()
            except CopilotError as error:
                self._failure = error
        if self._failure is not None:
            self._fresh_until = monotonic() + FAILURE_TTL
            if self._operation is not None:
                logger.warning(
                    "The last description of %r counts: %s", self.tool.name, self._failure
                )
        else:
            self._fresh_until = monotonic() + (FILES_TTL if stamp else REFLECTION_TTL)

    async def _read_operation(self) -> Operation:
        protos = await self._read_protos()
        return self._build_operation(protos, self._find_method(protos))

    async def _read_protos(self) -> "Protos":
        try:
            from copilot_runtime.extensions.tools.catalog.grpc import protos
        except ImportError as error:
            raise MissingPackage("A gRPC tool", error.name or "grpcio", "grpc") from error
        if self._options.descriptors:
            return await asyncio.to_thread(protos.read_descriptor_set, self._files[0])
        if self._files:
            folder = self.surroundings.folder
            imports = [folder / path for path in self._options.imports]
            return await protos.compile_files(self._files, [*imports, *_list_folders(folder)])
        if self._address is None:
            raise protos.build_absence(
                self._service,
                f"There is no {self._name}.proto, and no address is known of a server that could "
                f"describe itself: write services: {{{self._name}: grpc://host:port}}, or set "
                f"{_name_variable(self._name)}.",
            )
        return await protos.reflect(self._connect(), self._service)

    def _find_method(self, protos: "Protos") -> "MethodDescriptor":
        """Return the method. Raises `ConfigurationFailed` if it cannot be a tool."""
        method = protos.find_method(self._service, self._method)
        if method.client_streaming:
            raise ConfigurationFailed(
                f"{self.options.method} takes a stream of requests, which a tool cannot send."
            )
        if request := self.options.request:
            message = protos.find_message(request)
            if message.full_name != method.input_type.full_name:
                raise ConfigurationFailed(
                    f"{self.options.method} takes a {method.input_type.full_name}, and no "
                    f"{message.full_name}."
                )
        return method

    def _build_operation(self, protos: "Protos", method: "MethodDescriptor") -> Operation:
        from copilot_runtime.extensions.tools.catalog.grpc.schema import describe_request

        async def call(values: Mapping[str, Any], context: ActionContext) -> Any:
            return await self._call(protos, method, values, context)

        return Operation(
            call=call,
            description=protos.comments.get(method.full_name, ""),
            parameters=describe_request(method.input_type, protos.comments),
            is_idempotent=method.GetOptions().idempotency_level != 0,
            checks_arguments=True,
        )

    async def _call(
        self,
        protos: "Protos",
        method: "MethodDescriptor",
        values: Mapping[str, Any],
        context: ActionContext,
    ) -> Any:
        from copilot_runtime.extensions.tools.catalog.grpc.schema import (
            decode_message,
            encode_message,
        )

        request = self._build_request(method, values, context)
        data = encode_message(request, method.input_type, protos.pool)
        answers = await self._send(method, data, context)

        def read() -> list[Any]:
            return [decode_message(answer, method.output_type, protos.pool) for answer in answers]

        is_large = sum(map(len, answers)) > _LARGE
        found = await asyncio.to_thread(read) if is_large else read()
        return found if method.server_streaming else found[0]

    async def _send(
        self, method: "MethodDescriptor", data: bytes, context: ActionContext
    ) -> Sequence[bytes]:
        """Send a request, and return the responses. Its span is a child of the tool's."""
        client = self._connect()
        address = client.address
        name = f"{method.containing_service.full_name}/{method.name}"
        with trace_block(
            start_rpc_span(context.span, name, host=address.host, port=address.port)
        ) as span:
            headers = self._sign(f"/{name}", data, context)
            metadata = self._build_metadata(context, {**inject_context(span), **headers})
            timeout = self.tool.timeout
            span.add_event(semconv.EVENT_REQUEST_SENT)
            try:
                if not method.server_streaming:
                    answers = [
                        await client.call(f"/{name}", data, metadata=metadata, timeout=timeout)
                    ]
                else:
                    answers = await client.collect(
                        f"/{name}",
                        data,
                        metadata=metadata,
                        timeout=timeout,
                        max_messages=self._options.max_messages,
                    )
                span.add_event(
                    semconv.EVENT_RESPONSE_RECEIVED, {semconv.RESPONSE_MESSAGES: len(answers)}
                )
                return answers
            except CopilotError as error:
                if error.kind.isupper():  # a gRPC status
                    span.set_attributes({semconv.RPC_RESPONSE_STATUS_CODE: error.kind})
                if error.kind == "UNAUTHENTICATED" and "authorization" not in dict(metadata):
                    error.hint = (
                        f"No token was sent. Write services: {{{self._name}: {{token: {{service: "
                        "tools, form: bound}}} into the file of tools; SERVICE_SECRET signs it."
                    )
                raise

    def _build_request(
        self, method: "MethodDescriptor", values: Mapping[str, Any], context: ActionContext
    ) -> Mapping[str, Any]:
        """Return the model's arguments with the fields that the operator configured."""
        from copilot_runtime.extensions.tools.catalog.grpc.schema import HIDDEN, fit_values

        resolve = self.surroundings.references.resolve
        defaults = {
            "filter": self._options.filter,
            "llm_token": resolve(self._options.llm_token, context) or None,
            "resource_id": f"common.Conversation.{context.thread_id}",
        }
        extra = {name: value for name, value in defaults.items() if value is not None}
        fixed = {name: values[name] for name in self.tool.arguments if name in values}
        model = {
            name: value
            for name, value in values.items()
            if name not in HIDDEN and name not in fixed
        }
        return {**model, **fit_values({**extra, **fixed}, method.input_type)}

    def _build_metadata(
        self, context: ActionContext, sent: Mapping[str, str]
    ) -> Sequence[tuple[str, str | bytes]]:
        from copilot_runtime.extensions.tools.catalog.grpc.client import build_metadata

        resolve = self.surroundings.references.resolve
        return build_metadata({**resolve(self._options.metadata, context), **sent})

    def _sign(self, path: str, data: bytes, context: ActionContext) -> Mapping[str, str]:
        """Return the metadata with a service token and the user, if the service requires them."""
        if (token := self._options.token) is None:
            return {}
        secret = self.surroundings.references.resolve(token.secret, context)
        signer = ServiceTokenSigner(token.service, [secret], form=token.form)
        tenant, user = split_owner(context.user if token.act_for_user else None)
        operation = name_operation(path, user or "", tenant)
        headers = {"authorization": f"Bearer {signer.sign(operation, data)}"}
        return {**headers, **build_user_metadata(user or "", tenant)}

    def _connect(self) -> "Client":
        if self._client is None:
            self._client = self._build_client()
        return self._client

    def _build_client(self) -> "Client":
        try:
            from copilot_runtime.extensions.tools.catalog.grpc.client import (
                Client,
                build_credentials,
            )
        except ImportError as error:
            raise MissingPackage("A gRPC tool", error.name or "grpcio", "grpc") from error
        if self._address is None:
            raise ConfigurationFailed(
                f"No address is known of the service {self._service!r}.",
                hint=f"Write services: {{{self._name}: grpc://host:port}}, or set "
                f"{_name_variable(self._name)}.",
            )
        tls = self._options.tls
        return Client(
            self._address,
            credentials=build_credentials(*self._tls) if self._address.has_tls else None,
            server_name=tls.server_name if isinstance(tls, TlsOptions) else "",
            max_request=self._options.max_request,
            max_response=self._options.max_response,
        )


def _merge(service: Any, options: GrpcOptions, where: str) -> GrpcOptions:
    """Return the options of a method merged over those of its service."""
    entry: Any = {"address": service} if isinstance(service, str) else service
    try:
        defaults = ServiceOptions.model_validate(entry).model_dump(exclude_unset=True)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, (where, *one['loc'])))}: {one['msg']}"
            for one in error.errors(include_url=False, include_input=False)
        )
        raise ConfigurationFailed(f"{problems}.") from None
    own = options.model_dump(exclude_unset=True)
    for group in (_SOURCES, _PLACES):
        if own.keys() & set(group):  # of exclusive options, the method's apply
            defaults = {name: value for name, value in defaults.items() if name not in group}
    return GrpcOptions.model_validate({**defaults, **own})


def _parse_address(
    options: ServiceOptions, name: str, surroundings: Surroundings
) -> Address | None:
    """Return the service's address, from the options, a variable, or `config.json`."""
    text = build_address(options, name) or f"${{{_name_variable(name)}:-}}"
    surroundings.references.check(text)
    address = surroundings.references.resolve(text) or _find_address(name, surroundings)
    return Address(address, has_tls=bool(options.tls)) if address else None


def _find_address(name: str, surroundings: Surroundings) -> str:
    """Return the address in Copilot-LD's file, or an empty string."""
    section = find_section(surroundings.folder, name)
    if section is None:
        return ""
    resolve = surroundings.references.resolve
    values = load_service_config(name, section, lambda key: resolve(f"${{{key}:-}}") or None)
    fields = {key: values[key] for key in ("protocol", "host", "port")}
    try:
        return build_address(ServiceOptions.model_validate(fields), name)
    except ValidationError as error:
        raise ConfigurationFailed(
            f"{FILE} says {values['url']!r} of the service {name!r}, which is no address."
        ) from error


def _name_variable(name: str) -> str:
    """Return the environment variable in which Copilot-LD has a service's address."""
    return f"SERVICE_{re.sub(r'[^A-Z0-9]', '_', name.upper())}_URL"


def _read_tls(
    options: ServiceOptions, folder: Path
) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Return the authority, the key and the certificate of the options."""
    tls = options.tls
    if not isinstance(tls, TlsOptions):
        return (None, None, None)

    def read(path: str) -> bytes | None:
        try:
            return (folder / path).read_bytes() if path else None
        except OSError as error:
            raise ConfigurationFailed(f"{path} cannot be read: {error.strerror}.") from error

    return (read(tls.ca), read(tls.key), read(tls.certificate))


def _find_files(options: ServiceOptions, service: str, folder: Path) -> Sequence[Path]:
    """Return the files that describe a service, or none for server reflection.

    The default is `tools/<package>.proto` or `proto/<package>.proto`, as in Copilot-LD, if such a
    file exists.
    """
    if options.descriptors:
        return [folder / options.descriptors]
    if options.proto:
        return [folder / path for path in options.proto]
    if options.reflection:
        return []
    package = service.rpartition(".")[0]
    names = dict.fromkeys((package, package.replace(".", "/"), package.replace("-", "_")))
    candidates = (
        place / f"{name}.proto" for place in _list_folders(folder) for name in names if name
    )
    found = next((path for path in candidates if path.is_file()), None)
    if found is None and options.reflection is False:
        raise ConfigurationFailed(
            f"Nothing describes the service {service!r}: name its .proto, or allow reflection."
        )
    return [] if found is None else [found]


def _list_folders(folder: Path) -> Iterator[Path]:
    """Yield the existing folders in which Copilot-LD has its `.proto` files."""
    for base in (folder, folder.parent):  # tools.yml is in config/, and they are beside that
        for name in ("tools", "proto"):
            if (base / name).is_dir():
                yield base / name


def _stamp(files: Sequence[Path]) -> Sequence[object]:
    """Return a value that changes when the files change."""
    stamps: list[object] = []
    for path in files:
        try:
            status = path.stat()
            stamps.append((status.st_mtime_ns, status.st_size))
        except OSError:
            stamps.append(None)
    return stamps
