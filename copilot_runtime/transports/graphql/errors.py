"""How errors look in GraphQL: what the client may see, and how it tells them apart."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from graphql import GraphQLError

from copilot_runtime.errors import RUN_FAILED, CopilotError
from copilot_runtime.transports.graphql.statuses import error_extensions

logger = logging.getLogger(__name__)


def format_error(error: GraphQLError) -> dict[str, Any]:
    """Return an error without the server's stack, paths or secrets."""
    cause = error.original_error
    payload: dict[str, Any] = {**error.formatted}
    if isinstance(cause, CopilotError):
        payload["message"] = cause.message
        payload["extensions"] = error_extensions(cause.report())
    elif cause is not None and error.path is not None:
        logger.error("A resolver failed at %s", error.path, exc_info=cause)
        payload["message"] = RUN_FAILED.message
        payload["extensions"] = error_extensions(RUN_FAILED)
    return payload


def build_root_error(error: Exception, key: str) -> Mapping[str, Any]:
    """Return the body of an answer that failed before it began."""
    wrapped = GraphQLError(str(error), path=[key], original_error=error)
    return {"errors": [format_error(wrapped)], "data": None}


def format_errors(errors: Iterable[GraphQLError], code: str) -> Mapping[str, Any]:
    """Return the body of a request that GraphQL itself refused."""
    return {"errors": [{**error.formatted, "extensions": {"code": code}} for error in errors]}
