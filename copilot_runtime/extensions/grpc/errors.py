"""Converts gRPC statuses to our errors."""

import grpc
from grpc.aio import AioRpcError

from copilot_runtime.base.errors import (
    AuthenticationFailed,
    CopilotError,
    LimitExceeded,
    NetworkError,
    RateLimited,
    RunStalled,
)

_MAX_WORDS = 500

_TOO_LARGE = "message larger than max"
"""gRPC's error text, on either side, for a message over the size limit."""


def convert_rpc_error(error: AioRpcError, where: str, timeout: float) -> CopilotError:
    """Return our error for a server's status; its `kind` is the name of the status.

    `where` is the subject of the message, such as "The gRPC server at 'shop:50051'".
    """
    status, words = error.code(), read_details(error)
    sentence = f"{where} says {status.name}" + (f": {words}" if words else ".")
    match status:
        case grpc.StatusCode.UNAVAILABLE:
            return NetworkError(f"{where} cannot be reached.", hint=words, kind=status.name)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return RunStalled(f"{where} did not answer within {timeout:g} s.", kind=status.name)
        case grpc.StatusCode.RESOURCE_EXHAUSTED if _TOO_LARGE in words:
            return LimitExceeded(f"{where}: {words}.", kind=status.name)
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return RateLimited(sentence, kind=status.name)
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return AuthenticationFailed(sentence, kind=status.name)
        case _:
            return CopilotError(sentence, kind=status.name)


def read_details(error: AioRpcError) -> str:
    """Return the details of a failure as one line of a bounded length."""
    return " ".join((error.details() or "").split())[:_MAX_WORDS]
