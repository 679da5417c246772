"""Where services of Copilot-LD are, as its `config/config.json` and its variables say."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_object

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
    """Return what is said of a service: variables win over the file, and that over defaults.

    A variable counts for what the file or the defaults know, such as `SERVICE_VECTOR_BUDGET`, as
    JSON where it is some; and `SERVICE_VECTOR_URL` in place of protocol, host, port and path.
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
    """Return what `config.json`, beside the file of tools, says of a service; None for nothing.

    Raises `ConfigurationFailed` for a file that cannot be read.
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
    """Return the parts of a URL. Raises `ConfigurationFailed` for what is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationFailed(f"{url!r} is no URL of a service: {error}.") from error
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
