"""The options of gRPC services and methods in `tools.yml`, and Copilot-LD's `config.json`."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    StringConstraints,
    model_validator,
)

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_object
from copilot_runtime.config.checks import mask_credentials
from copilot_runtime.extensions.access.service_tokens import TokenForm
from copilot_runtime.extensions.tools.catalog.endpoints import EndpointOptions

MEGABYTE = 1024 * 1024

_HOST_OF_SERVICE = "{}.copilot-ld.local"
"""Copilot-LD's default host of a service."""

_PORT = 3000
"""The port of Copilot-LD's services."""

_SCHEMES: Mapping[str, bool] = {"grpc": False, "grpcs": True, "http": False, "https": True}
"""URL schemes, and whether they use TLS."""

_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?/*"
)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
Size = Annotated[int, Field(gt=0, le=64 * MEGABYTE)]


class TlsOptions(EndpointOptions):
    """Paths of PEM files, and the name in the server's certificate if it differs from the host."""

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
    """Authentication: a token signed with the services' secret.

    `simple` is Copilot-LD's form, and `bound` that of our services: valid for one method and one
    message. With `act_for_user`, the service is called on behalf of the run's user.
    """

    service: Annotated[str, StringConstraints(pattern=r"^[^:\s]+$")] = "tool"
    secret: str = "${secret:SERVICE_SECRET}"  # noqa: S105 - a reference
    form: TokenForm = "simple"
    act_for_user: bool = False


class ServiceOptions(EndpointOptions):
    """A service's address, its description, and the metadata and fields of each call."""

    address: str = Field(default="", validation_alias=AliasChoices("address", "url"))
    """`grpc://host:port`, `grpcs://host:port` with TLS, or `unix:/path`."""
    host: str = ""
    """Copilot-LD's alternative to `address`, with port 3000 by default."""
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    protocol: Literal["grpc", "grpcs", "http", "https"] = "grpc"
    tls: bool | TlsOptions | None = None
    metadata: Mapping[str, str] = Field(default={})
    token: TokenOptions | None = None
    proto: Paths = ()
    """`.proto` files that describe the service."""
    imports: Paths = ()
    """Folders that these files import from."""
    descriptors: str = ""
    """A file with a descriptor set, instead of `.proto` files."""
    reflection: bool | None = None
    """True if server reflection describes the service; None: if there is no file."""
    filter: Mapping[str, Any] | None = None
    """The field `filter` of requests, as `service.tool.filter` of Copilot-LD."""
    llm_token: str = ""
    """The field `llm_token` of requests."""
    max_request: Size = MEGABYTE
    """Maximum size of a request, in bytes."""
    max_response: Size = MEGABYTE
    """Maximum size of a response, or of all messages of a stream, in bytes."""
    max_messages: Annotated[int, Field(gt=0, le=100_000)] = 1000
    """Maximum number of messages in a stream."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [bool(self.proto), bool(self.descriptors), bool(self.reflection)]
        if sum(sources) > 1:
            raise ValueError("write one of proto, descriptors and reflection")
        if self.address and (self.host or self.port):
            raise ValueError("write an address, or a host and a port")
        return self


class GrpcOptions(ServiceOptions):
    """A method, with options that override its service's."""

    method: str
    """`package.Service.Method`, or `Service/Method` for one without a package."""
    request: str = ""
    """The request message, `package.Type`, as Copilot-LD requires it."""


def split_method(method: str) -> tuple[str, str]:
    """Return a service and the name of its method.

    Raises `ConfigurationFailed` with Copilot-LD's message.
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
    """Raise `ConfigurationFailed`, with Copilot-LD's message, if a message name is invalid."""
    parts = request.split(".")
    if len(parts) < 2 or not all(parts):
        raise ConfigurationFailed(
            f"Invalid endpoint request format: {request}", hint="It looks like package.Type."
        )


class Address:
    """A server's address: `target` for gRPC, `host` and `port` for telemetry."""

    def __init__(self, text: str, *, has_tls: bool) -> None:
        """Raises `ConfigurationFailed` if the address is invalid."""
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
    """Return the section of a service, or else of its package, and the section's name."""
    package = service.rpartition(".")[0]
    for name in (service, package):
        if name in services:
            return name, services[name]
    return package or service, {}


def build_address(options: ServiceOptions, name: str) -> str:
    """Return the address in the options, or an empty string."""
    if options.host or options.port:
        host = options.host
        if host in ("", "0.0.0.0"):  # noqa: S104 - where a server listens is no place to call
            host = _HOST_OF_SERVICE.format(name)
        return f"{options.protocol}://{host}:{options.port or _PORT}"
    return options.address


FILE = "config.json"
_NAMESPACE = "service"
_BUILT_IN: JsonObject = {"protocol": "grpc", "host": "0.0.0.0", "port": 3000, "path": ""}  # noqa: S104
_URL_PORTS = {"http": 80, "https": 443}
_LARGEST = 4 * 1024 * 1024

ReadVariable = Callable[[str], str | None]


def load_service_config(
    name: str,
    section: JsonObject,
    read_variable: ReadVariable,
    defaults: JsonObject | None = None,
) -> JsonObject:
    """Return a service's configuration: variables override the file, which overrides defaults.

    A variable applies to keys of the file or the defaults, such as `SERVICE_VECTOR_BUDGET`, and is
    parsed as JSON if possible. `SERVICE_VECTOR_URL` replaces protocol, host, port and path.
    """
    values: dict[str, JsonValue] = {**_BUILT_IN, **(defaults or {}), **section}
    for key in (*values, "url"):
        text = read_variable(f"{_NAMESPACE}_{name}_{key}".upper().replace("-", "_"))
        if text is not None:
            values[key] = _read_json(text)
    url = values.get("url")
    if isinstance(url, str) and url:
        return {**values, **_split_url(url)}
    place = f"{values['host']}:{values['port']}{values['path']}"
    return {**values, "url": f"{values['protocol']}://{place}"}


def find_section(folder: Path, name: str) -> JsonObject | None:
    """Return a service's section of the `config.json` beside the file of tools, or None.

    Raises `ConfigurationFailed` if the file cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigurationFailed(f"{path} is larger than {_LARGEST // 1024**2} MB.")
        found = loads(path.read_bytes())
    except OSError as error:
        raise ConfigurationFailed(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigurationFailed(f"{path} is no JSON: {error}.") from error
    services: Mapping[str, JsonValue] = as_object(as_object(found).get(_NAMESPACE))
    return as_object(services[name]) if name in services else None


def _split_url(url: str) -> JsonObject:
    """Return the parts of a URL. Raises `ConfigurationFailed` if it is invalid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationFailed(
            f"{mask_credentials(url)!r} is no URL of a service: {error}."
        ) from error
    usual = _URL_PORTS.get(parts.scheme, _BUILT_IN["port"])
    path = re.sub(r"/+$", "", parts.path)
    return {
        "protocol": parts.scheme,
        "host": parts.hostname or "",
        "port": usual if port is None else port,
        "path": path,
    }


def _read_json(text: str) -> JsonValue:
    try:
        return loads(text.encode())
    except ValueError:
        return text
