"""Runs all checks concurrently, each with a timeout, and masks secrets in their findings."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from copilot_runtime.api.hooks import call_quietly
from copilot_runtime.app.app import CopilotRuntime
from copilot_runtime.app.threads import name_stores
from copilot_runtime.base.secrets import REDACTOR
from copilot_runtime.config.loader import is_independent
from copilot_runtime.extensions.operations.doctor import (
    Finding,
    explain_error,
    good,
    problem,
)
from copilot_runtime.extensions.operations.doctor.machine import (
    check_disks,
    check_files,
    check_limits,
    check_packages,
    check_ports,
)
from copilot_runtime.extensions.operations.doctor.stores import (
    check_audit,
    check_carrier,
    check_clock,
    check_limit_store,
    check_objects,
    check_schemas,
    check_sharing,
    check_vectors,
)
from copilot_runtime.extensions.operations.doctor.upstream import (
    check_access,
    check_embeddings,
    check_mcp_servers,
    check_provider,
    check_risks,
    check_telemetry,
    check_tools,
)
from copilot_runtime.extensions.settings import Settings, narrow_settings

Check = Callable[[], Awaitable[Sequence[Finding]]]

_SECONDS = 20.0
"""Timeout of one check in seconds."""


async def examine(
    settings: Settings,
    make_runtime: Callable[[], CopilotRuntime],
    *,
    config: Path | None = None,
    environ: Mapping[str, str],
    calls: bool = False,
    options: Mapping[str, Any] | None = None,
    is_http: bool = True,
) -> Sequence[Finding]:
    """Check everything that a server with these settings needs. Does not raise.

    `make_runtime` builds the runtime without opening it. With `calls`, the model and the embedder
    are requested. `options` are host and port of the command line. `is_http` is `False` for a
    server with gRPC only.
    """
    found = [good("configuration", f"read from '{config}'" if config else "defaults, environment")]
    runtime: CopilotRuntime | None = None
    try:
        runtime = make_runtime()
        if config and is_independent(runtime.settings, settings, options or ()):
            found = [good("configuration", f"written in the program, which ignores '{config}'")]
        settings = _merge_listener(settings, narrow_settings(name_stores(runtime)), options or {})
    except Exception as error:  # an error at startup is a finding
        found = [explain_error("configuration", error)]
    checks = _list_checks(settings, config, is_http=is_http)
    if runtime is not None:
        checks["settings"] = partial(check_risks, runtime, settings)
        checks["access"] = partial(check_access, runtime, settings, is_http=is_http)
        checks["provider"] = partial(check_provider, runtime, calls=calls, is_http=is_http)
        checks["tools"] = partial(check_tools, runtime, calls=calls)
        checks["embeddings"] = partial(check_embeddings, runtime, calls=calls)
    results = await asyncio.gather(*(_run(name, one) for name, one in checks.items()))
    if runtime is not None:
        await call_quietly(runtime.adapter.aclose)
    REDACTOR.learn([settings, environ])
    return [_redact(one) for one in [*found, *(one for part in results for one in part)]]


def _merge_listener(settings: Settings, written: Settings, options: Mapping[str, Any]) -> Settings:
    """Return the program's settings, with the host and port at which `serve` listens."""
    names = {"host", "port"} - written.model_fields_set
    return written.model_copy(
        update={name: getattr(settings, name) for name in names} | {**options}
    )


def _list_checks(settings: Settings, config: Path | None, *, is_http: bool) -> dict[str, Check]:
    """Return the checks that need only settings, by name."""
    return {
        "packages": _in_thread(check_packages),
        "open files": _in_thread(check_limits),
        "disk": _in_thread(partial(check_disks, settings)),
        "files": _in_thread(partial(check_files, settings, config)),
        "port": _in_thread(partial(check_ports, settings, is_http=is_http)),
        "clock": partial(check_clock, settings),
        "stores": partial(check_schemas, settings),
        "carrier": partial(check_carrier, settings),
        "limits": partial(check_limit_store, settings),
        "sharing": partial(check_sharing, settings),
        "knowledge": partial(check_objects, settings),
        "vectors": partial(check_vectors, settings),
        "audit log": partial(check_audit, settings),
        "mcp server": partial(check_mcp_servers, settings),
        "telemetry": partial(check_telemetry, settings),
    }


async def _run(name: str, check: Check) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(_SECONDS):
            return await check()
    except TimeoutError:
        hint = "Something does not answer: see whether it runs, and what firewalls allow."
        return [problem(name, f"It took longer than {_SECONDS:g} seconds.", hint)]
    except Exception as error:  # an error of a check is a finding
        return [explain_error(name, error)]


def _in_thread(check: Callable[[], Sequence[Finding]]) -> Check:
    return partial(asyncio.to_thread, check)


def _redact(finding: Finding) -> Finding:
    text, hint = map(REDACTOR.redact, (finding.text, finding.hint))
    return replace(finding, text=text, hint=hint)
