"""`copilot-runtime codegen`: from a `.proto` to stubs, a service to fill in, and tools."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

ProtoArgument = Annotated[
    list[Path], typer.Argument(metavar="FILE.proto...", help="Protobuf definitions.")
]


def codegen(
    protos: ProtoArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder of the generated files.")] = Path(),
    include: Annotated[
        list[Path] | None, typer.Option("--include", "-I", help="Folder of imported files.")
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="Write tools.yml, by which models call the methods.")
    ] = False,
    service: Annotated[
        bool, typer.Option("--service", help="Write a service for grpc.services, to fill in.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write anew what you may have changed.")
    ] = False,
) -> None:
    """Generate Python from .proto files: messages and stubs, a service to fill in, and tools.

    \b
    copilot-runtime codegen shop.proto
    copilot-runtime codegen shop.proto --service --tools --out shop

    Of shop.proto it makes shop_pb2.py with the messages, shop_pb2.pyi with their types for
    editors, and shop_pb2_grpc.py with stubs for clients. With --service, shop_service.py has a
    class with a method for each one of the service: fill it in, and name it in the setting
    grpc.services as shop/shop_service.py:ShopService. With --tools, tools.yml has a tool for
    each method that a model may call, and where the services are: name it in the setting tools.
    These two are yours to change: they are never written over without --force. Methods that take
    a stream are in neither, which is said on stderr.
    """
    from copilot_runtime.extensions.grpc.codegen import Generation, generate

    generation = Generation(
        protos=protos, out=out, include=include or (), tools=tools, service=service, force=force
    )
    for line in generate(generation, partial(typer.echo, err=True)):
        typer.echo(line)
