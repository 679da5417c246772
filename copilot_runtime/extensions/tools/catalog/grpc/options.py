"""What an operator says of a gRPC service and of a method, in `tools.yml`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    StringConstraints,
    model_validator,
)

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.access.service_tokens import TokenForm
from copilot_runtime.extensions.tools.catalog.endpoints import EndpointOptions

MEGABYTE = 1024 * 1024

_HOST_OF_SERVICE = "{}.copilot-ld.local"
"""Where Copilot-LD looks for a service whose host is not said."""

_PORT = 3000
"""The port of Copilot-LD's services."""

_SCHEMES: Mapping[str, bool] = {"grpc": False, "grpcs": True, "http": False, "https": True}
"""Whether addresses that begin so are of servers with TLS."""

_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?/*"
)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
Size = Annotated[int, Field(gt=0, le=64 * MEGABYTE)]


class TlsOptions(EndpointOptions):
    """Files in PEM, and the name in the server's certificate if it is not that of the host."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate needs its key, and a key its certificate")
        return self


class TokenOptions(EndpointOptions):
    """Who asks: a token is signed with the secret of the services.

    `simple` is the form of Copilot-LD, and `bound` that of services of ours: for one method and one
    message. `act_for_user` is whether the service is asked in the name of the user of the run.
    """

    service: Annotated[str, StringConstraints(pattern=r"^[^:\s]+$")] = "tool"
    secret: str = "${secret:SERVICE_SECRET}"  # noqa: S105 - a reference
    form: TokenForm = "simple"
    act_for_user: bool = False


class ServiceOptions(EndpointOptions):
    """Where a service is, who describes it, and what is sent along with each call."""

    address: str = Field(default="", validation_alias=AliasChoices("address", "url"))
    """`grpc://host:port`, `grpcs://host:port` with TLS, or `unix:/path`."""
    host: str = ""
    """In place of an address, as Copilot-LD has it, with the port 3000 or another one."""
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    protocol: Literal["grpc", "grpcs", "http", "https"] = "grpc"
    tls: bool | TlsOptions | None = None
    metadata: Mapping[str, str] = Field(default={})
    token: TokenOptions | None = None
    proto: Paths = ()
    """`.proto` files that describe it."""
    imports: Paths = ()
    """Folders with what these files import."""
    descriptors: str = ""
    """A file with a descriptor set, in place of `.proto` files."""
    reflection: bool | None = None
    """Whether the server describes itself; None: where no file does."""
    filter: Mapping[str, Any] | None = None
    """The field `filter` of requests, as `service.tool.filter` of Copilot-LD."""
    llm_token: str = ""
    """The field `llm_token` of requests."""
    max_request: Size = MEGABYTE
    """Bytes of the longest request."""
    max_response: Size = MEGABYTE
    """Bytes of the longest answer, all messages of a stream together."""
    max_messages: Annotated[int, Field(gt=0, le=100_000)] = 1000
    """Messages of the longest stream."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [bool(self.proto), bool(self.descriptors), bool(self.reflection)]
        if sum(sources) > 1:
            raise ValueError("write one of proto, descriptors and reflection")
        if self.address and (self.host or self.port):
            raise ValueError("write an address, or a host and a port")
        return self


class GrpcOptions(ServiceOptions):
    """A method, and what differs for it from its service."""

    method: str
    """`package.Service.Method`, or `Service/Method` for one without a package."""
    request: str = ""
    """The message that it takes, `package.Type`, as Copilot-LD wants it."""


def split_method(method: str) -> tuple[str, str]:
    """Return a service and the name of its method.

    Raises `ConfigurationFailed` in the words of Copilot-LD.
    """
    if "/" in method:
        service, _, name = method.removeprefix("/").partition("/")
        parts = [*service.split("."), *name.split("/")]
        is_right = len(name.split("/")) == 1
    else:
        service, _, name = method.rpartition(".")
        parts = method.split(".")
        is_right = len(parts) >= 3
    if not is_right or not all(parts):
        raise ConfigurationFailed(
            f"Invalid endpoint method format: {method}",
            hint="It looks like package.Service.Method.",
        )
    return service, name


def check_request(request: str) -> None:
    """Raise `ConfigurationFailed`, in the words of Copilot-LD, for what is no name of a message."""
    parts = request.split(".")
    if len(parts) < 2 or not all(parts):
        raise ConfigurationFailed(
            f"Invalid endpoint request format: {request}", hint="It looks like package.Type."
        )


class Address:
    """Where a server is: `target` as gRPC wants it, `host` and `port` for telemetry."""

    def __init__(self, text: str, *, has_tls: bool) -> None:
        """Raises `ConfigurationFailed` for what is no address."""
        self.host, self.port = text, None
        self.has_tls = has_tls
        self.target = text
        if text.startswith("unix:"):
            self.is_local = True
            return
        found = _ADDRESS.fullmatch(text)
        scheme = found["scheme"] or "grpc" if found else ""
        if found is None or scheme not in _SCHEMES:
            raise ConfigurationFailed(
                f"{text!r} is no address of a gRPC server.",
                hint="It looks like grpc://host:port, or grpcs://host:port with TLS.",
            )
        self.has_tls = has_tls or _SCHEMES[scheme]
        if found["port"] is None and not self.has_tls:
            raise ConfigurationFailed(
                f"The address {text!r} has no port.", hint="It looks like grpc://host:port."
            )
        self.host = found["host"]
        self.port = int(found["port"] or 443)
        self.target = f"{self.host}:{self.port}"
        self.is_local = self.host in ("localhost", "[::1]") or self.host.startswith("127.")


def find_service(services: Mapping[str, Any], service: str) -> tuple[str, Any]:
    """Return the entry of a service, or else of its package, and under which name it stands."""
    package = service.rpartition(".")[0]
    for name in (service, package):
        if name in services:
            return name, services[name]
    return package or service, {}


def build_address(options: ServiceOptions, name: str) -> str:
    """Return the address that options say, or nothing."""
    if options.host or options.port:
        host = options.host
        if host in ("", "0.0.0.0"):  # noqa: S104 - where a server listens is no place to call
            host = _HOST_OF_SERVICE.format(name)
        return f"{options.protocol}://{host}:{options.port or _PORT}"
    return options.address
