"""Spell and match the URLs of a runtime."""

from starlette.types import Scope

from copilot_runtime.base.errors import ConfigurationFailed


class ChatUrls:
    """Matches the URLs of chats: the runtime's URL for every client, and AG-UI's runs below it."""

    def __init__(self, path: str) -> None:
        self._urls = frozenset(spell_url(path))
        self._has_page = not path
        self._runs = f"{path}/agent/"

    def match(self, scope: Scope) -> bool:
        """Return `True` if a request is for one of these URLs.

        If the runtime is at `/`, a GET request may be a browser that opens the page.
        """
        if scope["type"] != "http" or (self._has_page and scope["method"] == "GET"):
            return False
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in self._urls or path.startswith(self._runs)


def spell_url(url: str) -> list[str]:
    """Return a URL with and without a trailing slash, so that no redirect is needed."""
    if url.endswith(":path}"):
        return [url]
    return [url, f"{url}/"] if url else ["/"]


def normalize_path(path: str) -> str:
    """Return the path without a trailing slash.

    Raises `ConfigurationFailed` for a malformed path.
    """
    if not path.startswith("/"):
        raise ConfigurationFailed(
            f"The path {path!r} must begin with a slash.", hint=f"Write '/{path}'."
        )
    return path.rstrip("/")
