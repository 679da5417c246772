"""A client of gRPC server reflection.

https://grpc.io/docs/guides/reflection
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from copilot_runtime.base.errors import ConfigurationFailed, CopilotError, LimitExceeded
from copilot_runtime.extensions.tools.catalog.grpc.protos import MAX_SIZE, Protos, build_absence

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.grpc.client import Client

_METHODS = tuple(
    f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    for version in ("v1", "v1alpha")
)
"""Both versions have the same messages."""

_MAX_FILES = 500
_TIMEOUT = 10.0


async def reflect(client: "Client", service: str) -> Protos:
    """Return a server's description of a service, with all dependencies.

    Raises `CopilotError` if the server has no reflection, or its response is invalid.
    """
    for method in _METHODS:
        files = await _collect_files(client, method, service)
        if files is not None:
            return Protos(files)
    raise ConfigurationFailed(
        f"The gRPC server at {client.address.target!r} does not describe itself.",
        hint="Switch reflection on there, or name a .proto: `proto:` or `descriptors:`.",
    )


async def _collect_files(
    client: "Client", method: str, service: str
) -> Iterable[FileDescriptorProto] | None:
    """Return the files that define a service, or None if the server lacks this method."""
    files: dict[str, FileDescriptorProto] = {}
    requests = [ServerReflectionRequest(file_containing_symbol=service)]
    opened: set[str] = set()
    size = 0
    try:
        while requests:
            answer = await _ask(client, method, requests.pop())
            size += answer.ByteSize()
            for file in _read_files(answer, service):
                files.setdefault(file.name, file)
            if size > MAX_SIZE or len(files) > _MAX_FILES:
                raise LimitExceeded(
                    f"The gRPC server at {client.address.target!r} describes itself at such "
                    "length that it is not read."
                )
            imports = {name for file in files.values() for name in file.dependency}
            missing = sorted(imports - files.keys() - opened, reverse=True)
            opened.update(missing)
            requests += [ServerReflectionRequest(file_by_filename=name) for name in missing]
    except CopilotError as error:
        if error.kind == "UNIMPLEMENTED":
            return None
        raise
    return files.values()


async def _ask(
    client: "Client", method: str, request: ServerReflectionRequest
) -> ServerReflectionResponse:
    """Return the response to a request.

    It has its own stream, because some servers end after the first.
    """
    data = request.SerializeToString()
    answers = await client.collect(method, data, metadata=(), timeout=_TIMEOUT, max_messages=1)
    if not answers:
        raise _build_refusal(client, "and closed half-way")
    try:
        return ServerReflectionResponse.FromString(answers[0])
    except DecodeError as error:
        raise _build_refusal(client, "and answered with what is no description") from error


def _read_files(answer: ServerReflectionResponse, service: str) -> list[FileDescriptorProto]:
    if answer.HasField("error_response"):
        if answer.original_request.file_by_filename:
            return []  # it may be one of Google's own files, which we have
        words = answer.error_response.error_message[:500]
        raise build_absence(service, f"The server says: {words}")
    try:
        return [
            FileDescriptorProto.FromString(data)
            for data in answer.file_descriptor_response.file_descriptor_proto
        ]
    except DecodeError as error:
        raise ConfigurationFailed(
            f"The description of {service} by its server is none: {error}."
        ) from error


def _build_refusal(client: "Client", what: str) -> CopilotError:
    return CopilotError(
        f"The gRPC server at {client.address.target!r} was asked to describe itself {what}."
    )
