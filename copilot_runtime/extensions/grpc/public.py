"""Health and reflection, which need no token: so whoever calls them gets little memory and time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from google.protobuf.message import DecodeError
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

import grpc
from copilot_runtime.extensions.grpc.message import receive, unpack
from copilot_runtime.transports.body import BadRequest
from grpc.aio import ServicerContext

_MAX_CALLS = 16
_CALL_SECONDS = 30.0
_MAX_BYTES = 64 * 1024

Context = ServicerContext[Any, Any]


class PublicServices:
    """Says whether services are there, and which. Nobody waits for changes, without a token.

    There are 16 calls at once, for 30 seconds: one more ends the oldest, not itself. Whoever holds
    calls open keeps nobody else from asking, and what is sent of messages takes little memory.
    """

    def __init__(self, names: Sequence[str], *, reflects: bool) -> None:
        self._names = frozenset(("", *names))
        self._reflects = reflects
        self._reflection: Any = None
        if reflects:
            module: Any = reflection  # the stubs of its types do not know its part for asyncio
            self._reflection = module.aio.ReflectionServicer([*names, HEALTH, REFLECTION])
        self._deadlines: dict[asyncio.Timeout, None] = {}
        self.is_serving = True

    def build_handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return what answers the calls."""
        methods = {"Check": self._limit(self._check), "Watch": self._limit(self._watch)}
        found = [grpc.method_handlers_generic_handler(HEALTH, methods)]
        if self._reflects:
            methods = {"ServerReflectionInfo": self._limit(self._reflect)}
            found.append(grpc.method_handlers_generic_handler(REFLECTION, methods))
        return found

    def _limit(self, work: Callable[[Context], Awaitable[None]]) -> Any:
        async def run(_messages: object, context: Context) -> None:
            try:
                async with asyncio.timeout(_CALL_SECONDS) as deadline:
                    self._end_oldest()
                    self._deadlines[deadline] = None
                    try:
                        await work(context)
                    finally:
                        self._deadlines.pop(deadline, None)
            except TimeoutError:
                context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
                context.set_details("This call took too long, or there were too many.")
            except (BadRequest, DecodeError):
                context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
                context.set_details("The message is none of this method.")

        return grpc.stream_stream_rpc_method_handler(run)

    def _end_oldest(self) -> None:
        while len(self._deadlines) >= _MAX_CALLS:
            oldest = next(iter(self._deadlines))
            del self._deadlines[oldest]
            oldest.reschedule(0)

    async def _check(self, context: Context) -> None:
        data = await receive(context, None)
        request = HealthCheckRequest.FromString(await unpack(data or b"", _MAX_BYTES))
        if request.service not in self._names:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            return
        states = HealthCheckResponse.ServingStatus
        status = states.SERVING if self.is_serving else states.NOT_SERVING
        await context.write(HealthCheckResponse(status=status).SerializeToString())

    async def _watch(self, context: Context) -> None:
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Ask again by Check.")

    async def _reflect(self, context: Context) -> None:
        requests = _read_requests(context)
        async with (
            aclosing(requests),
            aclosing(self._reflection.ServerReflectionInfo(requests, context)) as answers,
        ):
            async for one in answers:
                await context.write(one.SerializeToString())


async def _read_requests(context: Context) -> AsyncGenerator[ServerReflectionRequest, None]:
    while (data := await receive(context, None)) is not None:
        yield ServerReflectionRequest.FromString(await unpack(data, _MAX_BYTES))
