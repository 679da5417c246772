"""Protobuf descriptors: from `.proto` files, a descriptor set, or server reflection."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    SourceCodeInfo,
)
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    MissingPackage,
)

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.grpc.client import Client


MAX_SIZE = 8 * 1024 * 1024
"""Maximum size of a descriptor set, in bytes."""

_COMPILE_TIMEOUT = 30.0
_MAX_WORDS = 2000
_GOOGLE_FOLDER = "google/protobuf/"


class Protos:
    """A self-contained set of services and messages, in its own descriptor pool."""

    def __init__(self, files: Iterable[FileDescriptorProto]) -> None:
        """Raises `ConfigurationFailed` if the files are inconsistent."""
        self.pool = DescriptorPool()
        self.comments: dict[str, str] = {}
        """Comments of services, methods, messages and fields, by full name."""
        for file in _sort(files):
            try:
                self.pool.AddSerializedFile(file.SerializeToString())
            except TypeError as error:
                raise ConfigurationFailed(f"{file.name!r} is no valid .proto: {error}.") from error
            _read_comments(file, self.comments)

    def find_method(self, service: str, method: str) -> MethodDescriptor:
        """Return a method. Raises `ConfigurationFailed` with Copilot-LD's message."""
        for name in (service, service.replace("-", "_")):  # no package can have a hyphen
            try:
                found = self.pool.FindServiceByName(name)
            except KeyError:
                continue
            if method in found.methods_by_name:
                return found.methods_by_name[method]
            names = ", ".join(sorted(found.methods_by_name)) or "none"
            raise ConfigurationFailed(
                f"Method {method} not found in service {name}.", hint=f"It has: {names}."
            )
        raise build_absence(service, f"The descriptors read for {service!r} do not describe it.")

    def find_message(self, name: str) -> Descriptor:
        """Return a message type. Raises `ConfigurationFailed` with Copilot-LD's message."""
        for spelling in (name, name.replace("-", "_")):
            try:
                return self.pool.FindMessageTypeByName(spelling)
            except KeyError:
                continue
        raise ConfigurationFailed(f"Request type not found: {name}")


def build_absence(service: str, hint: str) -> ConfigurationFailed:
    """Return the error for a service without a description, with Copilot-LD's message."""
    name = service.rpartition(".")[2]
    return ConfigurationFailed(f"Client class not found: {name}Client", hint=hint)


async def compile_files(paths: Sequence[Path], imports: Sequence[Path]) -> Protos:
    """Compile `.proto` files, with imports from these folders and from their own.

    Raises `ConfigurationFailed` with the file and line of each error.
    """
    # the compiler always ends, so its thread can be abandoned
    return await asyncio.to_thread(_compile, paths, imports)


def _compile(paths: Sequence[Path], imports: Sequence[Path]) -> Protos:
    if missing := [str(path) for path in paths if not path.is_file()]:
        raise ConfigurationFailed(f"There is no {', '.join(missing)}.")
    folders = dict.fromkeys([*(path.parent for path in paths), *imports])
    with TemporaryDirectory() as temporary:
        output = Path(temporary, "descriptors")
        try:
            done = subprocess.run(  # noqa: S603 - the operator's files, and no shell
                [
                    *(sys.executable, "-m", "grpc_tools.protoc", "--include_imports"),
                    *("--include_source_info", f"--descriptor_set_out={output}"),
                    *(f"--proto_path={folder}" for folder in folders),
                    *map(str, paths),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COMPILE_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ConfigurationFailed(
                f"protoc did not finish within {_COMPILE_TIMEOUT:g} s."
            ) from None
        words = done.stderr.decode(errors="replace").strip()
        if "No module named" in words:
            raise MissingPackage("A .proto file", "grpcio-tools", "grpc")
        if done.returncode:
            raise ConfigurationFailed(f"protoc refuses {paths[0].name}: {words[:_MAX_WORDS]}")
        return read_descriptor_set(output)


def read_descriptor_set(path: Path) -> Protos:
    """Read a file written by `protoc --include_imports --descriptor_set_out`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise ConfigurationFailed(f"{path} cannot be read: {error.strerror}.") from error
    return parse_descriptor_set(data, str(path))


def parse_descriptor_set(data: bytes, source: str) -> Protos:
    """Return the services and messages of a serialized `FileDescriptorSet`."""
    if len(data) > MAX_SIZE:
        raise ConfigurationFailed(
            f"The descriptors of {source} are larger than {MAX_SIZE // 1024**2} MB."
        )
    try:
        files = FileDescriptorSet.FromString(data).file
    except DecodeError as error:
        raise ConfigurationFailed(
            f"{source} is no descriptor set.",
            hint="protoc writes one with --include_imports --descriptor_set_out=FILE.",
        ) from error
    if not files:
        raise ConfigurationFailed(f"{source} describes nothing.")
    return Protos(files)


def _sort(files: Iterable[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return files in dependency order, with Google's own files added if missing."""
    by_name = {file.name: file for file in files}
    order: dict[str, FileDescriptorProto] = {}
    waiting = [*reversed(by_name)]
    opened: set[str] = set()
    while waiting:
        name = waiting[-1]
        file = by_name.get(name) or _find_google_file(name)
        imports = [] if file is None or name in opened else file.dependency
        opened.add(name)
        if missing := [one for one in imports if one not in order and one not in opened]:
            waiting += missing
            continue
        waiting.pop()
        if file is not None:  # otherwise the pool's error names the missing file
            order.setdefault(name, file)
    return [*order.values()]


def _find_google_file(name: str) -> FileDescriptorProto | None:
    if not name.startswith(_GOOGLE_FOLDER):
        return None
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        import_module(module)  # the import adds it to the default pool
        found = Default().FindFileByName(name)
    except (ImportError, KeyError):
        return None
    file = FileDescriptorProto()
    found.CopyToProto(file)
    return file


def _read_comments(file: FileDescriptorProto, comments: dict[str, str]) -> None:
    """Add the comments of a file, by the full names of the commented elements."""
    locations = {
        tuple(one.path): text
        for one in file.source_code_info.location
        if (text := _read_comment(one))
    }
    if not locations:
        return
    prefix = f"{file.package}." if file.package else ""
    for index, message in enumerate(file.message_type):
        _read_message(message, (4, index), prefix, locations, comments)
    for index, service in enumerate(file.service):
        for number, method in enumerate(service.method):
            if text := locations.get((6, index, 2, number)):
                comments[f"{prefix}{service.name}.{method.name}"] = text


def _read_message(
    message: DescriptorProto,
    path: tuple[int, ...],
    prefix: str,
    locations: Mapping[tuple[int, ...], str],
    comments: dict[str, str],
) -> None:
    name = prefix + message.name
    if text := locations.get(path):
        comments[name] = text
    for number, field in enumerate(message.field):
        if text := locations.get((*path, 2, number)):
            comments[f"{name}.{field.name}"] = text
    for number, inner in enumerate(message.nested_type):
        _read_message(inner, (*path, 3, number), f"{name}.", locations, comments)


def _read_comment(location: SourceCodeInfo.Location) -> str:
    return " ".join((location.leading_comments or location.trailing_comments).split())


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
        raise _build_refusal(client, "and sent an invalid descriptor") from error


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
