"""Format errors for GraphQL clients, with their public messages and codes."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from graphql import GraphQLError

from copilot_runtime.base.errors import CopilotError, ErrorReport, build_error_report
from copilot_runtime.transports.graphql.statuses import error_extensions

logger = logging.getLogger(__name__)

_NEGATIVE_COUNT = "initialCount must be a positive integer"
"""The message of graphql-core for an invalid `@stream` directive."""


def format_error(error: GraphQLError) -> dict[str, Any]:
    """Return an error without the server's stack, paths or secrets."""
    cause = error.original_error
    payload: dict[str, Any] = {**error.formatted}
    if isinstance(cause, ValueError) and str(cause) == _NEGATIVE_COUNT:
        payload["extensions"] = {"code": "BAD_USER_INPUT"}
    elif isinstance(cause, CopilotError) or (cause is not None and error.path is not None):
        report = _report(cause, f"A resolver failed at {error.path}")
        payload["message"] = report.message
        payload["extensions"] = error_extensions(report)
    return payload


def hide_details(error: Exception) -> GraphQLError:
    """Return the public form of a subscription's error, which Strawberry would send unchanged."""
    report = _report(error, "A subscription failed")
    return GraphQLError(report.message, extensions=error_extensions(report))


def _report(error: Exception, failure: str) -> ErrorReport:
    """Return the public report of an error; log errors that are not a `CopilotError`."""
    if not isinstance(error, CopilotError):
        logger.error(failure, exc_info=error)
    return build_error_report(error)


def build_root_error(error: Exception, key: str | None) -> Mapping[str, Any]:
    """Return the body of an answer that failed before it began."""
    wrapped = GraphQLError(str(error), path=None if key is None else [key], original_error=error)
    return {"errors": [format_error(wrapped)], "data": None}


def format_errors(errors: Iterable[GraphQLError], code: str) -> Mapping[str, Any]:
    """Return the body of a request that GraphQL itself refused."""
    return {"errors": [{**error.formatted, "extensions": {"code": code}} for error in errors]}
