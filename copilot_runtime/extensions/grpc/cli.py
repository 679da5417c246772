"""`copilot-runtime develop codegen`: from a `.proto` to stubs, a service to fill in, and tools."""

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
        bool, typer.Option("--tools", help="Write tools.yml, with a tool per method.")
    ] = False,
    service: Annotated[
        bool, typer.Option("--service", help="Write a service skeleton for grpc.services.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that you may have changed.")
    ] = False,
) -> None:
    """Generate Python from .proto files: messages and stubs, a service to fill in, and tools.

    \b
    copilot-runtime develop codegen shop.proto
    copilot-runtime develop codegen shop.proto --service --tools --out shop

    From shop.proto it generates shop_pb2.py with the messages, shop_pb2.pyi with their types for
    editors, and shop_pb2_grpc.py with client stubs. With --service, shop_service.py has a class
    with the methods of the service: implement them, and name the class in the setting
    grpc.services as shop/shop_service.py:ShopService. With --tools, tools.yml has a tool for
    each method that a model may call, and the addresses of the services: name it in the setting
    tools. You may edit these two files: they are not overwritten without --force. Methods with
    request streams are omitted from both, and listed on stderr.
    """
    from copilot_runtime.extensions.grpc.codegen import Generation, generate

    generation = Generation(
        protos=protos, out=out, include=include or (), tools=tools, service=service, force=force
    )
    for line in generate(generation, partial(typer.echo, err=True)):
        typer.echo(line)
