"""The widget: a chat that a page of any site gets with one script element."""

import re
from functools import cache
from hashlib import sha256
from importlib import resources
from json import dumps

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_LIBRARIES = {"markdownit": "markdown-it.min.js", "DOMPurify": "purify.min.js"}
"""Name in the program → file of `vendor/`, whose global variables stay inside of the program."""

_SCRIPTS = (
    *("format", "stream", "wire", "conversation", "markdown", "json", "questions"),
    "widget",
)
_STYLES = ("base.css", "markdown.css", "widget.css")
_REM = re.compile(r"(?<![\w-])(\d*\.?\d+)rem\b")


def widget_route(endpoint: str, title: str) -> Route:
    """Return the route of the widget's program, which pages of other sites may load, too.

    `endpoint` is the path of the runtime, relative to the app, and `title` stands above the chat.

    It contains no data: it sends requests with the credentials that its page gives to it.
    """

    async def answer(request: Request) -> Response:
        root = request.scope.get("root_path", "").rstrip("/")
        values = {"endpoint": root + endpoint or "/", "title": title}
        program = f"(() => {{\nconst SERVER = {dumps(values)};\n{_program()}\n}})();\n".encode()
        headers = {
            "x-content-type-options": "nosniff",
            "access-control-allow-origin": "*",
            "cross-origin-resource-policy": "cross-origin",
            "cache-control": "public, max-age=300",
            "etag": f'"{sha256(program).hexdigest()[:32]}"',
        }
        if request.headers.get("if-none-match", "").removeprefix("W/") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(program, media_type="text/javascript", headers=headers)

    return Route("/widget.js", answer, methods=["GET"], name="widget")


@cache
def _program() -> str:
    libraries = [
        f"const {name} = ((module, exports) => {{\n{_read(f'vendor/{file}')}\n"
        "return module.exports;\n})(...((module) => [module, module.exports])({ exports: {} }));"
        for name, file in _LIBRARIES.items()
    ]
    own = "\n".join(_read(f"scripts/{name}.js") for name in _SCRIPTS)
    return "\n".join([*libraries, f"const STYLE = {dumps(_style())};", own])


def _style() -> str:
    """Return the style of the pages for a shadow root, without units that its page decides."""
    style = ":host { all: initial; }\n" + "\n".join(map(_read, _STYLES))
    style = re.sub(r":root(\[[^]]*\])", r":host(\1)", style).replace(":root", ":host")
    return _REM.sub(lambda size: f"{float(size[1]) * 16:g}px", style)


def _read(name: str) -> str:
    return resources.files(__name__.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8")
