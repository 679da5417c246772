"""Forward a request built by one HTTP client through the client of the host application.

Clients of httpx and of httpx2, which the package `mcp` uses, have the same methods. This module
imports neither.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx
    import httpx2

_WRITTEN_BY_CLIENT = frozenset({b"connection", b"host", b"user-agent"})
"""Headers that the client of the host application writes itself."""


async def forward_request(
    client: "httpx.AsyncClient | httpx2.AsyncClient", request: "httpx.Request | httpx2.Request"
) -> Any:
    """Return the client's response to the same request, its body unread. Follows no redirect.

    The client's headers, cookies, authentication, proxies, hooks and transport are used, with the
    timeouts of the request. A header of the request replaces the client's; an `authorization`
    header also replaces the client's authentication.
    """
    headers = [
        (name, value)
        for name, value in request.headers.raw
        if name.lower() not in _WRITTEN_BY_CLIENT
    ]
    own: Any = client  # both packages have the same parameters, of types of their own
    return await own.send(
        own.build_request(
            request.method,
            str(request.url),
            headers=headers,
            content=await request.aread(),
            extensions={"timeout": request.extensions["timeout"]},
        ),
        stream=True,
        follow_redirects=False,
        **({"auth": None} if "authorization" in request.headers else {}),
    )
