"""HTML documents: a page with its style and its scripts, and a policy that permits no others."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

_PLACEHOLDER = re.compile(r"__[A-Z_]+__|<!-- (?:tabs|logo) -->")
_PAGE = "<!-- page -->"
_TOOLS = "<!-- tools -->"
_STYLES = "/* styles */"
_SCRIPTS = "<!-- scripts -->"


class Document:
    """An HTML document: `page.html` and `page.css` of a package, with its scripts in order.

    The frame, the base style and the script of the header are those beside this module, shared by
    all pages. `shared` are scripts used by several pages, which run first, and `libraries` files of
    `vendor/`, before them. A document that `has_frames` may display documents of this server in
    frames. What stands in `page.html` above the mark for tools is put into the header. `page` is
    another name of the two files; a page without a style of its own has only the first. Everything
    is inlined, so that the content security policy can name the hashes of the style and the
    scripts.
    """

    def __init__(
        self,
        package: str,
        scripts: Sequence[str],
        *,
        shared: Sequence[str] = (),
        libraries: Sequence[str] = (),
        has_frames: bool = False,
        page: str = "page",
    ) -> None:
        self._page = page
        self._frames = "'self'" if has_frames else "'none'"
        self._shared = ("scripts/shell.js", *shared)
        self._libraries = libraries
        self._files = resources.files(package)
        self._scripts = scripts

    def respond(self, request: Request, values: Mapping[str, str]) -> Response:
        """Respond with the document, with each placeholder replaced by its value, which is HTML."""
        page = _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), self._frame)
        scripts = "\n".join(f"<script>{program}</script>" for program in self._programs)
        document = page.replace(_STYLES, self._style).replace(_SCRIPTS, scripts).encode()
        headers = {
            "content-security-policy": self._policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",  # cacheable after revalidation
            "etag": f'"{sha256(document).hexdigest()[:32]}"',
        }
        etags = request.headers.get("if-none-match", "").replace("W/", "")
        if headers["etag"] in [tag.strip() for tag in etags.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(document, media_type="text/html", headers=headers)

    @cached_property
    def _frame(self) -> str:
        tools, _, page = _read(self._files, f"{self._page}.html").rpartition(_TOOLS)
        frame = _read(_SHARED, "frame.html").replace(_TOOLS, tools.strip())
        return frame.replace(_PAGE, page.strip())

    @cached_property
    def _style(self) -> str:
        shared = ("base.css", *(["markdown.css"] if self._libraries else ()))
        own = self._files.joinpath(f"{self._page}.css")
        styles = [_read(_SHARED, name) for name in shared]
        styles += [own.read_text(encoding="utf-8")] if own.is_file() else []
        return "\n" + "\n".join(styles)

    @cached_property
    def _programs(self) -> Sequence[str]:
        """The content of each script element: the libraries, and the page's own scripts."""
        scripts = [_read(_SHARED, name) for name in self._shared]
        scripts += [_read(self._files, name) for name in self._scripts]
        libraries = [_read(_SHARED, f"vendor/{name}") for name in self._libraries]
        return [*libraries, '\n"use strict";\n' + "\n".join(scripts)]

    @cached_property
    def _policy(self) -> str:
        """The policy that permits the page's style and scripts by hash, and this server."""
        return "; ".join(
            [
                "default-src 'none'",
                f"script-src {' '.join(map(_hash, self._programs))}",
                f"style-src {_hash(self._style)}",
                "connect-src 'self'",
                "img-src data:",
                f"frame-src {self._frames}",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )


_SHARED = resources.files(__name__.rpartition(".")[0])


def _hash(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


def _read(files: Traversable, name: str) -> str:
    return files.joinpath(name).read_text(encoding="utf-8")
