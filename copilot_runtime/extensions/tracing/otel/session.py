"""The HTTP session of the OTLP exporters, which evaluates only the status of responses."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite
from time import monotonic
from typing import Any

import requests
from urllib3.exceptions import HTTPError

from copilot_runtime.extensions.tracing.dialects import strip_url

_MAX_ANSWER = 64 * 1024
_PATIENCE = 1.0
_MAX_PAUSE = 600.0
"""Maximum delay in seconds that is accepted from `Retry-After`."""
_PAUSES = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_RETRY_AFTER = "retry-after"


class ExportSession(requests.Session):
    """Reads small response bodies so that connections are reused, and closes on larger ones.

    No request is sent before the time of the last `Retry-After` header. A redirect is an error:
    OpenTelemetry's exporters do not follow redirects, and count them as success.
    """

    def __init__(self) -> None:
        super().__init__()
        self.auth = _keep_headers
        self._pause = requests.Response()
        self._pause_end = 0.0

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, and return the response without its body."""
        if (seconds := self._pause_end - monotonic()) > 0:
            self._pause.headers[_RETRY_AFTER] = str(seconds)
            return self._pause
        response = super().send(request, **{**options, "stream": True})
        _read_rest(response)
        answer = requests.Response()
        answer.status_code = response.status_code
        answer.reason = response.reason
        answer.headers = response.headers
        if response.is_redirect:
            place = strip_url(response.headers["location"])
            raise requests.RequestException(f"{answer.status_code}, it redirects to {place}")
        if answer.status_code in _PAUSES:
            self._pause = answer
            self._pause_end = monotonic() + _read_seconds(response.headers.get(_RETRY_AFTER, ""))
        return answer


def _read_rest(response: requests.Response) -> None:
    """Read a response body; close the connection if it is too long or too slow."""
    until, size = monotonic() + _PATIENCE, 0
    try:
        while chunk := response.raw.read1(_MAX_ANSWER, decode_content=False):
            size += len(chunk)
            if size > _MAX_ANSWER or monotonic() > until:
                response.close()
                return
    except HTTPError:
        response.close()


def _read_seconds(text: str) -> float:
    """Parse `Retry-After`, seconds or a date, to seconds; 0 if it is missing or invalid."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):  # no date, or one without a zone
            return 0.0
    return min(max(0.0, seconds), _MAX_PAUSE) if isfinite(seconds) else 0.0


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Send the headers as they are: a file .netrc would replace `Authorization` otherwise."""
    return request
