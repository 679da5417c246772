"""Errors for GraphQL clients, and rejections that CopilotKit v1 frontends display to end users.

The v1 client ignores bodies with statuses from 201 to 499, and shows GraphQL errors only to
developers on localhost, but shows the error of a failed response to the user. So a rejected chat is
answered with a failed response; otherwise the frontend would show nothing.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from graphql import GraphQLError

from copilot_runtime.api.events import RunFailed
from copilot_runtime.base.errors import CopilotError, ErrorReport, build_error_report
from copilot_runtime.transports.graphql.types import (
    FailedResponseStatus,
    error_extensions,
    response_status,
)
from copilot_runtime.transports.request import Request

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
    """Return the body of a response that failed before it started."""
    wrapped = GraphQLError(str(error), path=None if key is None else [key], original_error=error)
    return {"errors": [format_error(wrapped)], "data": None}


def format_errors(errors: Iterable[GraphQLError], code: str) -> Mapping[str, Any]:
    """Return the body for a request that GraphQL parsing or validation rejected."""
    return {"errors": [{**error.formatted, "extensions": {"code": code}} for error in errors]}


CLIENT_VERSION = "x-copilotkit-runtime-client-gql-version"
"""The request header in which a CopilotKit v1 client sends its version."""

_OPERATION = "generateCopilotResponse"
_NAME = re.compile(rb'"operationName"\s*:\s*"generateCopilotResponse"')
_THREAD = re.compile(rb'"threadId"\s*:\s*"([\w.-]{1,200})"')


def is_chat(request: Request, body: bytes) -> bool:
    """Return whether this is a chat request of a v1 frontend, judged by the start of its body."""
    return (
        request.method == "POST"
        and CLIENT_VERSION in request.headers
        and _NAME.search(body) is not None
    )


def build_failed_response(report: ErrorReport, body: bytes) -> Mapping[str, Any]:
    """Return a failed chat response with all fields that the client selects.

    It has the thread id of the request, if the body names one.
    """
    thread = _THREAD.search(body)
    status = response_status(RunFailed(error=report))
    assert isinstance(status, FailedResponseStatus)
    response = {
        "threadId": thread[1].decode() if thread else "",
        "runId": None,
        "extensions": None,
        "status": {
            "code": status.code.value,
            "reason": status.reason.value,
            "details": status.details,
            "__typename": "FailedResponseStatus",
        },
        "messages": [],
        "metaEvents": [],
        "__typename": "CopilotResponse",
    }
    return {"data": {_OPERATION: response}}
