"""Open listening sockets, with readable errors."""

import errno
import socket
from contextlib import suppress

from copilot_runtime.base.errors import ConfigurationFailed


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Return a listening socket; a shared one allows further sockets of the same server.

    Raises `ConfigurationFailed`.
    """
    try:
        return socket.create_server(
            (host, port), family=_choose_family(host), backlog=2048, reuse_port=is_shared
        )
    except OSError as error:
        raise explain_listen_error(error, host, port) from error


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a bound socket that reserves a port for the workers and accepts no connections.

    Raises `OSError`, also if only the workers of another server listen. `SO_REUSEPORT` lets every
    process of a user join a port, so the port is probed without it. Linux allows several sockets
    with `SO_REUSEADDR` to be bound until one of them listens, so the reserving socket does not set
    it: another server is refused even before the first worker listens.
    """
    family = _choose_family(host)
    with socket.create_server((host, port), family=family) as probe:
        port = probe.getsockname()[1]
    try:
        return _bind(family, (host, port), socket.SO_REUSEPORT)
    except OSError:  # closed connections of a server without workers may linger
        return _bind(family, (host, port), socket.SO_REUSEPORT, socket.SO_REUSEADDR)


def explain_listen_error(error: OSError, host: str, port: int) -> ConfigurationFailed:
    """Return the `ConfigurationFailed` for an address that cannot be bound."""
    hint = "Try --host 127.0.0.1, or 0.0.0.0 for every network."
    match error.errno:
        case errno.EADDRINUSE:
            reason = f"Port {port} on {host} is in use."
            hint = (
                f"Stop who has it (lsof -i :{port} names the process), "
                f"or take another: --port {_find_free_port(host, port)}"
            )
        case errno.EACCES:
            reason = f"This user may not listen on port {port}."
            hint = "Ports below 1024 need privileges. Try --port 8000."
        case errno.EADDRNOTAVAIL:
            reason = f"{host} is not an address of this machine."
        case socket.EAI_NONAME:
            reason = f"There is no host {host!r}."
        case _:
            reason = f"Cannot listen on {host}:{port}: {error.strerror or error}."
    return ConfigurationFailed(reason, hint=hint)


def _choose_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _bind(family: socket.AddressFamily, address: tuple[str, int], *options: int) -> socket.socket:
    """Return a socket with the given options that is bound but does not listen.

    Raises `OSError`.
    """
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options:
            bound.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # as `create_server` does
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _find_free_port(host: str, port_in_use: int) -> int:
    """Return a free port, close to the occupied one if possible."""
    family = _choose_family(host)
    for port in [*range(port_in_use + 1, min(port_in_use + 20, 65536)), 0]:
        with suppress(OSError), socket.create_server((host, port), family=family) as listener:
            return listener.getsockname()[1]
    return 0
