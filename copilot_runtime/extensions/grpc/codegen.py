"""Generates Python modules from users' `.proto` files, and skeletons of services and tools."""

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent, wrap
from typing import TYPE_CHECKING

from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        FileDescriptorProto,
        MethodDescriptorProto,
        ServiceDescriptorProto,
    )

logger = logging.getLogger(__name__)

_TIMEOUT = 60.0
_MOST_WORDS = 2_000
_ENDS = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")
_WIDTH = 90
_OWN_FUNCTIONS = ("list_methods", "descriptor")
"""Names of a service class that cannot be methods of its `.proto`."""

_HEADER = '''"""{summary}

Made by `copilot-runtime develop codegen`, and yours from now on: fill it in. To serve it:

    grpc:
      services: ["{place}:{name}Service"]
"""

from collections.abc import {generator}Mapping

from copilot_runtime.extensions.grpc.service import Call, RpcMethod, RpcService
from copilot_runtime.transports.transport import Services

{imports}


class {name}Service(RpcService):
    """`{full_name}`"""

    descriptor = {own}.DESCRIPTOR.services_by_name["{name}"]

    def __init__(self, services: Services) -> None:
        self._services = services  # the parts of the runtime: its knowledge, runs, settings

    def list_methods(self) -> Mapping[str, RpcMethod]:
        # the scope is what a caller needs: data:read, data:write, runs:start, or operate, which
        # services have by service_tokens.roles: [operator] alone
        return {{
{table}
        }}
'''

_METHOD = '''
    async def {function}(
        self, request: {request}, call: Call
    ) -> {answer}:
        """{summary}

        `call.caller.user` is who asks.
        """
        {body}
'''

_PLACES = """\
# Where services are. One that asks who calls wants a token, such as that of a copilot-runtime with
# access.authenticate: [service_tokens]; SERVICE_SECRET is one of its service_tokens.secrets.
services:
"""
_PLACE = """\
  {}:
    address: grpc://127.0.0.1:50051
    # token: {{service: tools, secret: "${{secret:SERVICE_SECRET}}", form: bound}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The options of a code generation."""

    protos: Sequence[Path]
    out: Path
    include: Sequence[Path] = ()
    tools: bool = False
    service: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """The named `.proto` files, and the file of each message."""

    files: "Sequence[FileDescriptorProto]"
    places: Mapping[str, str]

    def name_class(self, message: str) -> str:
        """Return the qualified class name of a message, for a module that imports its module."""
        name = message.removeprefix(".")
        path = self.places[name]
        package = next((one.package for one in self.files if one.name == path), None)
        if package is None:  # Google's own types, and those of imports
            package = name.rpartition(".")[0]
        return f"{_module_of(path)}.{name.removeprefix(f'{package}.') if package else name}"


def generate(
    generation: Generation, warn: Callable[[str], object] = logger.warning
) -> Iterator[str]:
    """Write the files, and yield a line for each. Raises `ConfigurationFailed`, `MissingPackage`.

    `warn` is called with a line for each method that becomes neither a service's nor a tool.
    """
    sources = _compile(generation)
    if generation.service or generation.tools:
        for name in _list_client_streams(sources.files):
            warn(f"left out {name}: it takes a stream, and a call has one message")
    for file in sources.files:
        base = file.name.removesuffix(".proto")
        yield from (f"wrote   {generation.out / f'{base}{end}'}" for end in _ENDS)
    for file in sources.files if generation.service else ():
        for service in file.service:
            module = f"{_snake(service.name)}_service"
            place = module if generation.out == Path() else f"{generation.out / module}.py"
            text = _write_service(sources, file, service, place)
            yield _write(generation, f"{module}.py", text)
    if generation.tools:
        methods = [*_list_methods(sources.files)]
        if not methods:
            raise ConfigurationFailed("No method of these files can be a tool: there is none.")
        names = dict.fromkeys(file.package or service.name for file, service, _, _ in methods)
        places = _PLACES + "".join(map(_PLACE.format, names))
        tools = (_write_tool(generation, *one) for one in methods)
        yield _write(generation, "tools.yml", "\n".join([places, *tools]))


def _compile(generation: Generation) -> Sources:
    """Write messages and stubs, and return the compiled files."""
    if missing := [str(path) for path in generation.protos if not path.is_file()]:
        raise ConfigurationFailed(f"There is no {', '.join(missing)}.")
    if odd := [path.name for path in generation.protos if not path.stem.isidentifier()]:
        raise ConfigurationFailed(
            f"{odd[0]} makes no module of Python.", hint="Call it with letters, digits and _ alone."
        )
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
    except ImportError as error:
        raise MissingPackage("Code generation", error.name or "protobuf", "grpc") from error
    try:
        generation.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationFailed(f"{generation.out} is no folder: {error.strerror}.") from error
    folders = dict.fromkeys([*(path.parent for path in generation.protos), *generation.include])
    with TemporaryDirectory() as temporary:
        descriptors = Path(temporary, "descriptors")
        _run_protoc(
            [
                *(f"--proto_path={folder}" for folder in folders),
                *(f"--{kind}_out={generation.out}" for kind in ("python", "pyi", "grpc_python")),
                *("--include_imports", "--include_source_info"),
                f"--descriptor_set_out={descriptors}",
                *map(str, generation.protos),
            ]
        )
        found = FileDescriptorSet.FromString(descriptors.read_bytes()).file
    paths = [path.resolve().as_posix() for path in generation.protos]
    own = [one for one in found if any(path.endswith(f"/{one.name}") for path in paths)]
    return Sources(own, dict(_list_messages(found)))


def _list_messages(files: "Iterable[FileDescriptorProto]") -> Iterator[tuple[str, str]]:
    """Yield the full names of messages, including nested ones, and the file of each."""
    for file in files:
        waiting = [(file.package, one) for one in file.message_type]
        while waiting:
            prefix, message = waiting.pop()
            name = f"{prefix}.{message.name}" if prefix else message.name
            yield name, file.name
            waiting += [(name, one) for one in message.nested_type]


def _run_protoc(arguments: Sequence[str]) -> None:
    if find_spec("grpc_tools") is None:
        raise MissingPackage("Code generation", "grpcio-tools", "grpc")
    try:
        done = subprocess.run(  # noqa: S603 - the user's files, and no shell
            [sys.executable, "-m", "grpc_tools.protoc", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationFailed(f"protoc did not finish within {_TIMEOUT:g} s.") from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()[:_MOST_WORDS]
        raise ConfigurationFailed(f"protoc refuses this: {words}")


def _write(generation: Generation, name: str, text: str) -> str:
    """Write a user's file, unless it exists; return a line that describes the result."""
    path = generation.out / name
    if path.exists() and not generation.force:
        return f"kept    {path}: --force writes it anew"
    path.write_text(text, encoding="utf-8")
    return f"wrote   {path}"


def _write_service(
    sources: Sources, file: "FileDescriptorProto", service: "ServiceDescriptorProto", place: str
) -> str:
    comments = read_comments(file)
    methods = [one for one in service.method if not one.client_streaming]
    full_name = f"{file.package}.{service.name}" if file.package else service.name
    messages = {name for one in methods for name in (one.input_type, one.output_type)}
    paths = {file.name, *(sources.places[name.removeprefix(".")] for name in messages)}
    head = _HEADER.format(
        summary=_sentence(comments.get(service.name) or f"The service {full_name}."),
        place=place,
        name=service.name,
        full_name=full_name,
        generator="AsyncGenerator, " if any(one.server_streaming for one in methods) else "",
        imports="\n".join(map(_write_import, sorted(paths))),
        own=_module_of(file.name),
        table="\n".join(
            f'            "{one.name}": RpcMethod(run=self.{_name_function(one)}, scope="operate"),'
            for one in methods
        ),
    )
    return head + "".join(
        _write_method(sources, one, comments.get(f"{service.name}.{one.name}", ""))
        for one in methods
    )


def _write_method(sources: Sources, method: "MethodDescriptorProto", comment: str) -> str:
    answer = sources.name_class(method.output_type)
    body = f'raise NotImplementedError("{method.name}")'
    if method.server_streaming:
        body += f"\n        yield {answer}()"
        answer = f"AsyncGenerator[{answer}, None]"
    return _METHOD.format(
        function=_name_function(method),
        request=sources.name_class(method.input_type),
        answer=answer,
        summary=_sentence(comment or f"Answer {method.name}."),
        body=body,
    )


def _write_import(path: str) -> str:
    package, _, name = path.removesuffix(".proto").replace("/", ".").rpartition(".")
    return f"from {package} import {name}_pb2" if package else f"import {name}_pb2"


def _list_methods(
    found: "Sequence[FileDescriptorProto]",
) -> "Iterator[tuple[FileDescriptorProto, ServiceDescriptorProto, MethodDescriptorProto, str]]":
    for file in found:
        comments = read_comments(file)
        for service in file.service:
            for method in service.method:
                if not method.client_streaming:  # tools cannot send a stream
                    comment = comments.get(f"{service.name}.{method.name}", "")
                    yield file, service, method, comment


def _list_client_streams(files: "Sequence[FileDescriptorProto]") -> Iterator[str]:
    """Yield the full names of methods with a request stream."""
    for file in files:
        package = f"{file.package}." if file.package else ""
        for service in file.service:
            for method in service.method:
                if method.client_streaming:
                    yield f"{package}{service.name}.{method.name}"


def _write_tool(
    generation: Generation,
    file: "FileDescriptorProto",
    service: "ServiceDescriptorProto",
    method: "MethodDescriptorProto",
    comment: str,
) -> str:
    """Return the YAML of a tool, whose parameters are read from the `.proto` at runtime."""
    package = f"{file.package}." if file.package else ""
    purpose = _fold(comment or f"Calls {method.name} of {service.name}. Say here what it does.")
    return (
        f"{_snake(method.name)}:\n"
        f"  purpose: |\n{purpose}"
        f"  applicability: |\n{_fold('Say here when a model should call it.')}"
        f"  endpoint:\n"
        f"    grpc:\n"
        f"      method: {package}{service.name}.{method.name}\n"
        f"      proto: {_find_path(generation, file)}\n"
    )


def _find_path(generation: Generation, file: "FileDescriptorProto") -> str:
    """Return the path of a `.proto`, relative to the file of tools."""
    path = next(
        one for one in generation.protos if one.resolve().as_posix().endswith(f"/{file.name}")
    )
    return Path(os.path.relpath(path, generation.out)).as_posix()


def read_comments(file: "FileDescriptorProto") -> Mapping[str, str]:
    """Return the comments of a file's services and methods, by their names."""
    found: dict[str, str] = {}
    for location in file.source_code_info.location:
        words = " ".join(location.leading_comments.split())
        match tuple(location.path):
            case (6, number):
                found[file.service[number].name] = words
            case (6, number, 2, inner):
                service = file.service[number]
                found[f"{service.name}.{service.method[inner].name}"] = words
            case _:
                pass
    return found


def _module_of(path: str) -> str:
    return f"{Path(path).stem}_pb2"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _name_function(method: "MethodDescriptorProto") -> str:
    name = _snake(method.name)
    return f"{name}_" if iskeyword(name) or name in _OWN_FUNCTIONS else name


def _sentence(text: str) -> str:
    """Return a text that is safe in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''").rstrip('"')


def _fold(text: str) -> str:
    return indent("\n".join(wrap(text, _WIDTH)), "    ") + "\n"
