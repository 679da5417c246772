"""How exports travel over HTTP: whatever a receiver answers, only its status is of interest."""

from typing import Any

import requests
from urllib3.exceptions import HTTPError

_MAX_ANSWER = 64 * 1024


class ExportSession(requests.Session):
    """Reads at most a small answer, so that its connection is used again, and drops larger ones."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _keep_headers

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, and return an answer without a body."""
        response = super().send(request, **{**options, "stream": True})
        try:
            rest = response.raw.read(_MAX_ANSWER + 1, decode_content=False)
        except HTTPError:
            rest = b" " * (_MAX_ANSWER + 1)
        if len(rest) > _MAX_ANSWER:
            response.close()
        answer = requests.Response()
        answer.status_code = response.status_code
        answer.reason = response.reason
        answer.headers = response.headers
        return answer


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Send the headers as they are: a file .netrc would replace `Authorization` otherwise."""
    return request
