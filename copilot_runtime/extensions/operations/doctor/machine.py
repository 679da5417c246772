"""The machine and the program: versions, open files, disks, ports and file permissions."""

import os
import platform
import shutil
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from errno import EADDRINUSE
from functools import partial
from http.client import HTTPConnection, HTTPException
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic, sleep

from copilot_runtime import __version__
from copilot_runtime.extensions.operations.doctor import Finding, good, problem, warning
from copilot_runtime.extensions.operations.places import list_paths
from copilot_runtime.extensions.settings import Settings

_PACKAGES = ("uvicorn", "fastapi", "starlette", "pydantic", "strawberry-graphql")
_PATIENCE = 2.0
"""Timeout in seconds of one probe of a port."""
_STARTING = 6.0
"""Seconds for which a silent port is probed again."""
_PAUSE = 0.5
_SERVING = b"\x08\x01"
"""The status SERVING, as a message of protobuf."""
_FEW_FILES = 4096
_LITTLE_DISK = 1 << 30
_NO_DISK = 100 << 20


def check_packages() -> Sequence[Finding]:
    """Report the versions."""
    found: list[str] = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            return [problem("packages", f"{name} is not installed.", "pip install copilot-runtime")]
    text = f"copilot-runtime {__version__}, Python {platform.python_version()}, {', '.join(found)}"
    return [good("packages", text)]


def check_limits() -> Sequence[Finding]:
    """Check the limit on open files of a process: each stream uses one."""
    try:
        import resource
    except ImportError:  # Windows
        return []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FEW_FILES:
        return [
            warning(
                "open files",
                f"A process may have only {soft} open files: each stream needs one or two.",
                f"ulimit -n {65536 if hard < 0 else min(hard, 65536)}, or LimitNOFILE=65536 in the "
                "unit of systemd.",
            )
        ]
    return [good("open files", f"{soft} at one time")]


def check_disks(settings: Settings) -> Sequence[Finding]:
    """Check the free disk space of the folders that the server writes to."""
    found: dict[int, Finding] = {}
    for path in list_paths(settings):
        folder = _find_folder(path)
        usage, device = shutil.disk_usage(folder), folder.stat().st_dev
        name, text = "disk", f"{usage.free / (1 << 30):.1f} GB free at '{folder}'"
        hint = "Make room, or set thread_retention, telemetry.retention and events.max_bytes."
        if usage.free < _NO_DISK:
            found[device] = problem(name, text, hint)
        elif usage.free < _LITTLE_DISK:
            found[device] = warning(name, text, hint)
        else:
            found.setdefault(device, good(name, text))
    return [*found.values()]


def check_files(settings: Settings, config: Path | None) -> Sequence[Finding]:
    """Check that this user may write the server's files, and that others may not read them."""
    found = [*_find_wrong_modes([*list_paths(settings), *([config] if config else [])])]
    for path in list_paths(settings):
        if not os.access(path if path.exists() else _find_folder(path), os.W_OK):
            found.append(
                problem(
                    "files",
                    f"This user may not write '{path}'.",
                    "Run it as the user of the server, or give it the folder: chown.",
                )
            )
    return found or [
        good("files", "the server's files are writable, and only their owner can read them")
    ]


def _find_wrong_modes(paths: Sequence[Path]) -> Iterator[Finding]:
    for path in paths:
        if not path.is_file():
            continue
        mode = path.stat().st_mode
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            text = f"Others may write '{path}' (mode {stat.S_IMODE(mode):04o})."
            yield problem("files", text, f"chmod 600 {path}")
        elif mode & (stat.S_IRGRP | stat.S_IROTH) and path.suffix not in (".yml", ".yaml"):
            text = f"Others may read '{path}' (mode {stat.S_IMODE(mode):04o})."
            yield warning("files", text, f"chmod 600 {path}")


def check_ports(settings: Settings, *, is_http: bool = True) -> Sequence[Finding]:
    """Check that the ports are free or used by our own server."""
    places = [("port", settings.host, settings.port)] if is_http else []
    if settings.grpc.services and not settings.grpc.address.startswith("unix:"):
        host, _, port = settings.grpc.address.rpartition(":")
        places.append(("grpc port", host.strip("[]"), int(port)))
    has_tls = bool(settings.grpc.certificate)
    return [_check_port(*place, has_tls=has_tls) for place in places]


def _check_port(name: str, host: str, port: int, *, has_tls: bool) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return good(name, f"{host}:{port} is free")
    except OSError as error:
        is_grpc = name == "grpc port"
        if error.errno == EADDRINUSE and is_grpc and has_tls:
            return good(name, f"something listens at {host}:{port}: a server of ours, if one runs")
        ask = _has_health if is_grpc else _is_ours
        if error.errno == EADDRINUSE and _answers_soon(partial(ask, host, port)):
            return good(name, f"a server of ours answers at {host}:{port}")
        return problem(
            name,
            f"Cannot listen at {host}:{port}: {error.strerror or error}.",
            f"lsof -i :{port} says who has it; the setting {'grpc.address' if is_grpc else 'port'} "
            "names another. If a server of ours is only starting, look again in a moment.",
        )


def _answers_soon(ask: Callable[[], bool | None]) -> bool:
    """Probe a port repeatedly while it gives no response, as a server may be starting."""
    ends_at = monotonic() + _STARTING
    while (found := ask()) is None and monotonic() < ends_at:
        sleep(_PAUSE)
    return bool(found)


def _is_ours(host: str, port: int) -> bool | None:
    """Return `True` if our HTTP server answers at a port, or `None` without a response."""
    connection = HTTPConnection(_find_local_name(host), port, timeout=_PATIENCE)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().status == 200
    except OSError:  # also one that hangs up
        return None
    except HTTPException:
        return False
    finally:
        connection.close()


def _has_health(host: str, port: int) -> bool | None:
    """Return `True` if a gRPC server reports SERVING at a port, or `None` without a response."""
    import grpc  # an extra

    name = _find_local_name(host)
    address = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=_PATIENCE)
        except grpc.RpcError:
            return None
    return answer == _SERVING


def _find_local_name(host: str) -> str:
    """Return the local address of a listener on all interfaces, or the host itself."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def _find_folder(path: Path) -> Path:
    """Return the nearest existing folder of a path."""
    folder = path if path.is_dir() else path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    return folder
