"""An HTML document in parts: a frame, a page, styles and scripts, served as one.

So nothing else has to be found, and the policy can name the very style and the very script that
may be used.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

_FRAME = __name__.rpartition(".")[0]
_PAGE = "<!-- page -->"
_STYLES = "/* styles */"
_SCRIPTS = "/* scripts */"
_TITLE = "__TITLE__"


class Document:
    """The document of a package: its `page.html`, its `page.css` and these scripts, in order.

    The frame around it and the style below it are those beside this module, the same for all, and
    so are the scripts that several pages have in common: `shared`, which run first. One that
    `has_frames` may show documents of this server in frames.
    """

    def __init__(
        self,
        package: str,
        scripts: Sequence[str],
        *,
        title: str,
        shared: Sequence[str] = (),
        has_frames: bool = False,
    ) -> None:
        self._frames = "'self'" if has_frames else "'none'"
        self._shared = shared
        self._files = resources.files(package)
        self._scripts = scripts
        self._title = title

    def respond(self, request: Request, values: Mapping[str, str]) -> Response:
        """Answer with the document, in which each name stands for its value, as text."""
        page = self._template
        for name, value in values.items():
            page = page.replace(name, escape(value))
        document = page.encode()
        headers = {
            "content-security-policy": self._policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-cache",  # keep it, but ask whether it changed
            "etag": f'"{sha256(document).hexdigest()[:32]}"',
        }
        etags = request.headers.get("if-none-match", "").replace("W/", "")
        if headers["etag"] in [tag.strip() for tag in etags.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(document, media_type="text/html", headers=headers)

    @cached_property
    def _template(self) -> str:
        frame = resources.files(_FRAME)
        shared = [_read(frame, name) for name in self._shared]
        scripts = "\n".join([*shared, *(_read(self._files, name) for name in self._scripts)])
        styles = _read(frame, "base.css") + _read(self._files, "page.css")
        parts = {
            _TITLE: self._title,
            _PAGE: _read(self._files, "page.html").strip(),
            _STYLES: f"\n{styles}",
            _SCRIPTS: f'\n"use strict";\n{scripts}',
        }
        template = _read(frame, "frame.html")
        for mark, part in parts.items():
            template = template.replace(mark, part)
        return template

    @cached_property
    def _policy(self) -> str:
        """Allow the page's own style and script by their hashes, its own server, nothing else."""
        return "; ".join(
            [
                "default-src 'none'",
                f"script-src {self._hash_of('script')}",
                f"style-src {self._hash_of('style')}",
                "connect-src 'self'",
                "img-src data:",
                f"frame-src {self._frames}",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )

    def _hash_of(self, element: str) -> str:
        found = re.search(rf"<{element}>(.*?)</{element}>", self._template, re.DOTALL)
        if found is None:
            raise ValueError(f"frame.html has no <{element}>")
        return f"'sha256-{b64encode(sha256(found[1].encode()).digest()).decode()}'"


def _read(files: Traversable, name: str) -> str:
    return files.joinpath(name).read_text(encoding="utf-8")
