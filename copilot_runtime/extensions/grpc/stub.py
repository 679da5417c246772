"""The base class of client stubs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor


class Stub:
    """A stub with a callable for each method of a service, on any channel of gRPC.

    >>> found = await VectorStub(channel).SearchContent(request)
    """

    descriptor: "ServiceDescriptor"

    def __init__(self, channel: Any) -> None:
        for method in self.descriptor.methods:
            call = channel.unary_stream if method.server_streaming else channel.unary_unary
            self.__dict__[method.name] = call(
                f"/{self.descriptor.full_name}/{method.name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...
