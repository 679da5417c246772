"""Settings that work, and that give away more than their operator may have meant."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from copilot_runtime.api.identity import OPERATE
from copilot_runtime.base.secrets import find_secrets
from copilot_runtime.extensions.settings import Settings
from copilot_runtime.security.addresses import is_public
from copilot_runtime.security.loopback import is_loopback, list_proxy_settings


@dataclass(frozen=True, slots=True)
class Risk:
    """A combination of settings, with its consequence and the way out.

    `applies` gets the settings, and whether requests are authenticated, also by a program's hook.
    """

    name: str
    applies: Callable[[Settings, bool], bool]
    text: str
    hint: str


def list_risks(settings: Settings, *, has_users: bool) -> Sequence[Risk]:
    """Return the risks of settings."""
    return [risk for risk in RISKS if risk.applies(settings, has_users)]


def _trusts_all_proxies(settings: Settings, _: bool) -> bool:
    return "proxy" in settings.access.authenticate and _is_anywhere(
        settings.proxy.sign_in_addresses
    )


def _trusts_all_addresses(settings: Settings, _: bool) -> bool:
    return _is_anywhere(settings.proxy.addresses)


def _has_anonymous_operators(settings: Settings, has_users: bool) -> bool:
    access = settings.access
    is_open = access.anonymous or (not has_users and _is_reachable(settings))
    return is_open and OPERATE in access.find_scopes(access.default_roles)


def _answers_pages_with_cookies(settings: Settings, has_users: bool) -> bool:
    has_cookies = "proxy" in settings.access.authenticate or (
        has_users and not settings.access.authenticate
    )
    is_open = "auto" in settings.cors_origins and has_cookies and _is_reachable(settings)
    return settings.cors_credentials and ("*" in settings.cors_origins or is_open)


def _has_short_secrets(settings: Settings, _: bool) -> bool:
    telemetry = settings.telemetry
    secrets = (settings.secret, telemetry.metrics_token, telemetry.receive_token)
    return any(0 < len(secret.encode("utf-8", "surrogatepass")) < 32 for secret in secrets)


def _keeps_content_forever(settings: Settings, _: bool) -> bool:
    telemetry = settings.telemetry
    on_disk = telemetry.store.startswith(("sqlite:", "jsonl:")) or settings.workers > 1
    return telemetry.content != "none" and on_disk and not telemetry.retention


def _sends_secrets_in_clear(settings: Settings, _: bool) -> bool:
    telemetry = settings.telemetry
    has_texts = telemetry.content == "export" or bool(telemetry.headers)
    receivers = [telemetry.endpoint, *telemetry.endpoints.values()] if has_texts else []
    services = (settings.adapter.options.get("base_url"), settings.transcription.base_url)
    servers: Iterable[Mapping[str, Any]] = (
        *({"url": url} for url in settings.mcp.servers),
        *({"url": one.url, "headers": one.headers} for one in settings.mcp_apps.servers),
    )
    with_keys = [one["url"] for one in servers if any(find_secrets(one))]
    return any(map(_is_clear, (*receivers, *services, settings.cloud_base_url, *with_keys)))


def _reads_keys_in_clear(settings: Settings, _: bool) -> bool:
    places = (settings.jwt.issuer, settings.jwt.jwks)
    return "jwt" in settings.access.authenticate and any(map(_is_clear, places))


def _trusts_all_databases(settings: Settings, _: bool) -> bool:
    return any(map(_is_unverified, _list_stores(settings)))


def _serves_grpc_in_clear(settings: Settings, _: bool) -> bool:
    grpc = settings.grpc
    return bool(grpc.services) and not grpc.is_local and not grpc.certificate


def _has_no_limits(settings: Settings, _: bool) -> bool:
    return settings.access.anonymous and not settings.limits.find_longest()


def _shares_threads(settings: Settings, _: bool) -> bool:
    return settings.access.anonymous and settings.threads != "memory"


def _forwards_all_headers(settings: Settings, _: bool) -> bool:
    return "*" in settings.forward_headers


def _posts_anywhere(settings: Settings, _: bool) -> bool:
    return "*" in settings.webhooks.hosts


def _logs_content(settings: Settings, _: bool) -> bool:
    is_detailed = settings.log_level == "debug" or "*" in settings.log_debug
    return is_detailed and _is_reachable(settings)


RISKS = (
    Risk(
        "sign-in",
        _trusts_all_proxies,
        "Any client can be any user with any role: proxy.sign_in_addresses includes the Internet.",
        "Name only the addresses of the proxy that authenticates people, such as 10.0.0.5.",
    ),
    Risk(
        "operators",
        _has_anonymous_operators,
        "Callers without a credential are operators: they read the data of all users.",
        "Take the role out of access.default_roles, or set access.anonymous: false.",
    ),
    Risk(
        "jwt keys",
        _reads_keys_in_clear,
        "The keys that verify tokens are fetched over http, where others can replace them.",
        "Set jwt.issuer and jwt.jwks to https addresses.",
    ),
    Risk(
        "addresses",
        _trusts_all_addresses,
        "Any client can choose its address, which limits and the audit log rely on: "
        "proxy.addresses includes the Internet.",
        "Name only the addresses of your proxies, such as 10.0.0.0/8.",
    ),
    Risk(
        "cors",
        _answers_pages_with_cookies,
        "Pages of every site may send requests with the cookies of people who visit them.",
        "Name the origins of your pages in cors_origins, or set cors_credentials: false.",
    ),
    Risk(
        "secrets",
        _has_short_secrets,
        "A secret has less than 32 bytes (secret, telemetry.metrics_token or "
        "telemetry.receive_token), so it can be guessed.",
        "`openssl rand -hex 32` prints a better one.",
    ),
    Risk(
        "encryption",
        _sends_secrets_in_clear,
        "A key or the texts of people go over http to a public host: to a model, an MCP server, "
        "the guardrails, or a receiver of telemetry.",
        "Write https in adapter.options, transcription.base_url, cloud_base_url, mcp.servers, "
        "mcp_apps.servers and telemetry.endpoint.",
    ),
    Risk(
        "databases",
        _trusts_all_databases,
        "The address of a store turns off encryption, or the check of the server's certificate.",
        "Write sslmode=verify-full for PostgreSQL, and no ssl_cert_reqs=none for Redis.",
    ),
    Risk(
        "grpc",
        _serves_grpc_in_clear,
        "Other machines call the gRPC services without encryption, also with their tokens.",
        "Set grpc.certificate and grpc.key, or listen on 127.0.0.1 in grpc.address.",
    ),
    Risk(
        "traces",
        _keeps_content_forever,
        "Traces have the texts of people (telemetry.content), and are never deleted.",
        "Set telemetry.retention, such as 604800 for a week, or telemetry.content: none.",
    ),
    Risk(
        "limits",
        _has_no_limits,
        "Callers without a credential may use the model without a limit.",
        "Set limits.runs_per_user, such as 20/hour: anonymous callers count by their address.",
    ),
    Risk(
        "threads",
        _shares_threads,
        "Callers without a credential share stored threads: each reads those of all others.",
        "Set access.anonymous: false, or threads: memory.",
    ),
    Risk(
        "headers",
        _forwards_all_headers,
        "All headers of requests but cookies reach every agent and action: forward_headers has *.",
        "Name those that they need, such as [authorization, x-*].",
    ),
    Risk(
        "webhooks",
        _posts_anywhere,
        "Whoever may start runs can have answers posted to any address of your network: "
        "webhooks.hosts has *.",
        "Name the hosts of your receivers in webhooks.hosts.",
    ),
    Risk(
        "logs",
        _logs_content,
        "The log has questions, answers and arguments of all users, at the level debug.",
        "Set log_level: info, and name namespaces in log_debug.",
    ),
)
"""The risks, the gravest first."""


def _is_anywhere(networks: Iterable[str]) -> bool:
    """Return whether one of the networks is larger than any private one."""
    return any(ip_network(text).prefixlen < 7 for text in networks if text != "unix")


def _is_reachable(settings: Settings) -> bool:
    """Return whether other machines reach the server, as far as the settings show."""
    is_local = settings.host == "localhost" or is_loopback(settings.host)
    return not is_local or bool(
        list_proxy_settings(settings.allowed_hosts, settings.proxy.forwarders)
    )


_PRIVATE = (".localhost", ".local", ".internal", ".svc", ".lan", ".home.arpa", ".test")


def _is_clear(url: str | None) -> bool:
    """Return whether a URL is that of a public host without encryption."""
    parts = urlsplit(url or "")
    return parts.scheme == "http" and _is_internet(parts.hostname or "")


def _is_internet(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:  # a name: those of containers have no dot
        return "." in host and not host.endswith(_PRIVATE)
    return is_public(host)


def _list_stores(settings: Settings) -> Iterator[str]:
    yield from (settings.threads, settings.carrier, settings.limits.store, settings.api_keys.store)
    yield from (settings.planner.store, settings.knowledge.vector_database)
    yield from (source for source in settings.analyst.data if isinstance(source, str))


def _is_unverified(address: str) -> bool:
    _, separator, rest = address.partition("://")
    parts = urlsplit(f"//{rest}" if separator else "")
    options = dict(parse_qsl(parts.query))
    if options.get("ssl_cert_reqs") == "none":
        return True
    return options.get("sslmode") == "disable" and _is_internet(parts.hostname or "")
