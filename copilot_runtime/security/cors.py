"""CORS: cross-origin requests of browsers (https://fetch.spec.whatwg.org/#http-cors-protocol).

An allowed origin is echoed, never answered with `*`: clients send `credentials: "include"`,
and custom headers, and neither works with a wildcard.
"""

from collections.abc import Callable, Collection, Mapping

RawHeaders = list[tuple[bytes, bytes]]


class Cors:
    """Builds CORS headers for the allowed `origins`; `*` allows every origin.

    With `credentials`, requests may have cookies and HTTP authentication.

    While `is_silent` returns `True`, no headers are added: the surrounding application adds them.
    """

    def __init__(
        self,
        origins: Collection[str] = ("*",),
        *,
        credentials: bool = True,
        is_silent: Callable[[], bool] = lambda: False,
    ) -> None:
        self._origins = frozenset(origins)
        self._credentials = credentials
        self.is_silent = is_silent

    def allows(self, origin: str) -> bool:
        return "*" in self._origins or origin in self._origins

    def headers(self, request: Mapping[str, str]) -> RawHeaders:
        """Return the CORS headers of a response; an empty list without an `Origin`."""
        origin = request.get("origin")
        if origin is None or self.is_silent():
            return []
        if not self.allows(origin):
            return [(b"vary", b"Origin")]
        headers = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]
        if self._credentials:
            headers.append((b"access-control-allow-credentials", b"true"))
        return headers

    def preflight(self, request: Mapping[str, str]) -> RawHeaders:
        """Return the headers of a preflight response, which allow what the browser requests."""
        origin = request.get("origin")
        if origin is None or not self.allows(origin):
            return [(b"vary", b"Origin")]
        headers = [item for item in self.headers(request) if item[0] != b"vary"]
        headers.append((b"vary", b"Origin, Access-Control-Request-Headers"))
        if method := request.get("access-control-request-method"):
            headers.append((b"access-control-allow-methods", method.encode("latin-1")))
        if names := request.get("access-control-request-headers"):
            headers.append((b"access-control-allow-headers", names.encode("latin-1")))
        return headers
