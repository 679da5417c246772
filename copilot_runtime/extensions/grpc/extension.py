"""Services over gRPC, at an address of their own."""

import errno
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from copilot_runtime.app.extension import Contribution, Core, Extension
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.cli.listen import reserve_port
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.extensions.settings import narrow_settings
from copilot_runtime.transports.auth import Authenticator
from copilot_runtime.transports.transport import Services

if TYPE_CHECKING:
    from copilot_runtime.extensions.grpc.server import GrpcServer


class GrpcExtension(Extension):
    """Serves the services that the setting `grpc.services` names.

    Raises `MissingPackage`, `UnknownName`, and `ConfigurationFailed` for services that cannot be
    offered.
    """

    name = "grpc"
    requires = ("access", "tracing", "knowledge", "events", "planner")
    opens = "last"

    def build(self, core: Core) -> Contribution:  # noqa: ARG002  # the interface's
        self._server: GrpcServer | None = None
        return Contribution()

    def connect(self, core: Core, services: Services, authenticator: Authenticator) -> None:
        if not narrow_settings(core.settings).grpc.services:
            return
        try:
            from copilot_runtime.extensions.grpc.server import GrpcServer
        except ImportError as error:
            what = "The setting grpc.services"
            raise MissingPackage(what, error.name or "grpcio", "grpc") from error
        self._server = GrpcServer(
            narrow_settings(core.settings),
            services,
            authenticator=authenticator,
            telemetry=core.telemetry,
            has_users=core.has_users,
            policies=core.policies,
        )
        core.parts.add(GrpcServer, self._server)

    async def open(self) -> None:
        if self._server is not None:
            self._server.shares_port = self.shares_ports
            await self._server.open()

    async def aclose(self) -> None:
        if self._server is not None:
            await self._server.aclose()

    def reserve_ports(self, settings: CoreSettings) -> AbstractContextManager[object]:
        section = narrow_settings(settings).grpc
        host, _, port = section.address.rpartition(":")
        if not section.services or section.address.startswith("unix:") or not int(port):
            return nullcontext()
        try:
            return reserve_port(host.strip("[]"), int(port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return nullcontext()  # gRPC itself reports other errors of the address
            raise ConfigurationFailed(
                f"Port {port} on {host} is in use; services over gRPC were to be there.",
                hint=f"Stop who has it (lsof -i :{port} names the process), or set grpc.address to "
                "another one.",
            ) from error
