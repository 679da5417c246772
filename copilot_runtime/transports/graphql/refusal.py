"""Refusals that pages of CopilotKit v1 show to everybody.

Its client reads no body of another status than 200 (up to 500), and shows an error of GraphQL to
developers alone, on localhost. What ends an answer is shown to the person who asked. So whoever may
not ask, or not now, gets an answer that has failed: without one, the page would say nothing.
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
    """Return whether a page of v1 asks a question, by the beginning of the body at least."""
    return (
        request.method == "POST"
        and CLIENT_VERSION in request.headers
        and _NAME.search(body) is not None
    )


def build_failed_response(report: ErrorReport, body: bytes) -> Mapping[str, Any]:
    """Return the answer to a question, which ends with an error: all that the client asks for.

    The page goes on in its thread, if the body names it.
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
