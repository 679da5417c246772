"""The URLs of a runtime: how one is written, and which of them are chats."""

from starlette.types import Scope

from copilot_runtime.base.errors import ConfigurationFailed


class ChatUrls:
    """The URL of every client at a path, and AG-UI's runs below it: where chats are."""

    def __init__(self, path: str) -> None:
        self._urls = frozenset(spell_url(path))
        self._has_page = not path
        self._runs = f"{path}/agent/"

    def match(self, scope: Scope) -> bool:
        """Return whether a request is for one of them.

        Where they are at `/`, what gets it may be a browser that opens the page.
        """
        if scope["type"] != "http" or (self._has_page and scope["method"] == "GET"):
            return False
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in self._urls or path.startswith(self._runs)


def spell_url(url: str) -> list[str]:
    """Return a URL with and without a last slash, so that nobody is redirected."""
    if url.endswith(":path}"):
        return [url]
    return [url, f"{url}/"] if url else ["/"]


def normalize_path(path: str) -> str:
    """Return the path without its last slash. Raises `ConfigurationFailed` for what is none."""
    if not path.startswith("/"):
        raise ConfigurationFailed(
            f"The path {path!r} must begin with a slash.", hint=f"Write '/{path}'."
        )
    return path.rstrip("/")
