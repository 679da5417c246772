"""OTLP exporter variables for child processes, so that they send their spans to this server."""

from collections.abc import Mapping
from urllib.parse import quote

from copilot_runtime.security.loopback import Listener, is_loopback

_ANY: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # nothing binds here


def build_exporter_environment(listener: Listener, token: str = "") -> Mapping[str, str]:
    """Return the variables of OpenTelemetry's exporters for a server at a listener's address.

    `token` is the setting `telemetry.receive_token`. Return an empty mapping without a port, or
    without a token at an address that is not loopback.
    """
    address = _ANY.get(listener.address, listener.address)
    if not listener.port or not (token or is_loopback(address)):
        return {}
    host = f"[{address}]" if ":" in address else address
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{quote(token, safe='')}"}
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}:{listener.port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRICS_EXPORTER": "none",
        **(headers if token else {}),
    }
