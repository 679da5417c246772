"""Rejections that CopilotKit v1 frontends display to end users.

The v1 client ignores bodies with statuses from 201 to 499, and shows GraphQL errors only to
developers on localhost, but shows the error of a failed response to the user. So a rejected chat is
answered with a failed response; otherwise the frontend would show nothing.
"""

import re
from collections.abc import Mapping
from typing import Any

from copilot_runtime.api.events import RunFailed
from copilot_runtime.base.errors import ErrorReport
from copilot_runtime.transports.graphql.statuses import FailedResponseStatus, response_status
from copilot_runtime.transports.request import Request

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
