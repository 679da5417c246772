"""An HTML document in parts: a page, a style and scripts, served as one.

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

from starlette.requests import Request
from starlette.responses import Response

_STYLE = "/* page.css */"
_SCRIPT = "/* scripts */"


class Document:
    """The document of a package: its `page.html`, its `page.css` and these scripts, in order."""

    def __init__(self, package: str, scripts: Sequence[str]) -> None:
        self._package = package
        self._scripts = scripts

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
        scripts = "\n".join(self._part(name) for name in self._scripts)
        page = self._part("page.html").replace(_STYLE, f"\n{self._part('page.css')}")
        return page.replace(_SCRIPT, f'\n"use strict";\n{scripts}')

    def _part(self, name: str) -> str:
        return resources.files(self._package).joinpath(name).read_text(encoding="utf-8")

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
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )

    def _hash_of(self, element: str) -> str:
        found = re.search(rf"<{element}>(.*?)</{element}>", self._template, re.DOTALL)
        if found is None:
            raise ValueError(f"page.html has no <{element}>")
        return f"'sha256-{b64encode(sha256(found[1].encode()).digest()).decode()}'"
