"""Surfaces for tests of the page: one with every component, and one that means harm."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.server import MCPServer

from copilot_runtime import McpServer
from copilot_runtime.api.events import Activity
from copilot_runtime.extensions.generative_ui.a2ui.operations import (
    OPERATIONS,
    SURFACE,
    Operation,
    create_surface,
    update_components,
    update_data_model,
)
from copilot_runtime.extensions.generative_ui.options import McpApps, McpAppServer
from tests.wire_agui.server import serving

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
    "DwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def draw(*components: Mapping[str, Any], data: Any = None, name: str = "s") -> Activity:
    """Return the activity of a surface with these components."""
    operations: list[Operation] = [create_surface(name), update_components(name, components)]
    if data is not None:
        operations.append(update_data_model(name, data))
    return show({OPERATIONS: operations}, name)


def show(content: Any, name: str = "s") -> Activity:
    return Activity(message_id=f"a2ui-surface-{name}", activity_type=SURFACE, content=content)


def part(id: str, component: str, **properties: Any) -> Mapping[str, Any]:
    return {"id": id, "component": component, **properties}


def column(*children: str, id: str = "root") -> Mapping[str, Any]:
    return part(id, "Column", children=children)


def at(path: str) -> Mapping[str, str]:
    return {"path": path}


def call(function: str, **arguments: Any) -> Mapping[str, Any]:
    return {"call": function, "args": arguments}


def tab(title: str, child: str) -> Mapping[str, str]:
    return {"title": title, "child": child}


def event(name: str, **context: Any) -> Mapping[str, Any]:
    return {"event": {"name": name, "context": context}}


_OPTIONS = [{"label": "Red", "value": "r"}, {"label": "Green", "value": "g"}]

GALLERY: Sequence[Mapping[str, Any]] = [
    column("tabs", "modal", "list", "rule", "media", "unknown"),
    part("tabs", "Tabs", tabs=[tab("Words", "words"), tab("Inputs", "inputs")]),
    column("h1", "h5", "body", "caption", "price", "when", "count", "icons", id="words"),
    part("h1", "Text", text="A *gallery*", variant="h1"),
    part("h5", "Text", text="of components", variant="h5"),
    part("body", "Text", text="**Bold**, `code` and a list\n- one\n- 2\\. two"),
    part("caption", "Text", text="Small words", variant="caption"),
    part("price", "Text", text=call("formatCurrency", value=1234.5, currency="EUR")),
    part("when", "Text", text=call("formatDate", value="2030-05-04", format="EEE, d MMM yyyy")),
    part(
        "count",
        "Text",
        text=call(
            "formatString",
            value="${/name} has ${/n} ${pluralize(value: ${/n}, one: 'seat', other: 'seats')}",
        ),
    ),
    part("icons", "Row", children=["star", "drawn", "pixel"], align="center"),
    part("star", "Icon", name="star"),
    part("drawn", "Icon", name={"svgPath": "M4 4h16v16H4z"}),
    part("pixel", "Image", url=PIXEL, description="A pixel", variant="avatar"),
    column("name", "mail", "age", "day", "color", "size", "fine", "send", id="inputs"),
    part("name", "TextField", label="Name", value=at("/name")),
    part(
        "mail",
        "TextField",
        label="Mail",
        value=at("/mail"),
        checks=[{"condition": call("email", value=at("/mail")), "message": "This is no address."}],
    ),
    part("age", "Slider", label="Age", value=at("/n"), min=0, max=9, step=1),
    part("day", "DateTimeInput", label="Day", value=at("/day"), enableDate=True),
    part(
        "color",
        "ChoicePicker",
        label="Colours",
        value=at("/colors"),
        options=_OPTIONS,
        variant="multipleSelection",
        displayStyle="chips",
    ),
    part("size", "ChoicePicker", label="Size", value=at("/size"), options=_OPTIONS),
    part("fine", "CheckBox", label="Fine", value=at("/fine")),
    part(
        "send",
        "Button",
        child="send-label",
        variant="primary",
        checks=[{"condition": call("email", value=at("/mail")), "message": "A mail is missing."}],
        action=event("send", all=at("/")),
    ),
    part("send-label", "Text", text="Send it"),
    part("modal", "Modal", trigger="open", content="inside"),
    part("open", "Button", child="open-label", action={}),
    part("open-label", "Text", text="Open"),
    part("inside", "Text", text="Inside of the dialog"),
    part("list", "List", children={"componentId": "item", "path": "/ships"}, listStyle="ordered"),
    part("item", "Row", children=["ship", "ports"], justify="spaceBetween"),
    part("ship", "Text", text=at("name")),
    part("ports", "Row", children={"componentId": "port", "path": "ports"}),
    part("port", "Text", text=at("."), variant="caption"),
    part("rule", "Divider"),
    part("media", "Row", children=["photo", "film", "sound"]),
    part("photo", "Image", url="https://pictures.example/a.png", description="A ship"),
    part("film", "Video", url="https://films.example/a.mp4"),
    part("sound", "AudioPlayer", url="https://sounds.example/a.mp3", description="A horn"),
    part("unknown", "Carousel", children=["h1"]),
]

DATA = {
    "name": "Ada",
    "mail": "",
    "n": 1,
    "day": "2030-05-04",
    "colors": ["g"],
    "size": ["r"],
    "fine": True,
    "ships": [
        {"name": "Tern", "ports": ["Skerry", "Brannoc"]},
        {"name": "Gannet", "ports": ["Oban"]},
    ],
}

HOSTILE: Sequence[Mapping[str, Any]] = [
    column("script", "link", "picture", "button", "icon", "loop", "deep", "many", "regex", "self"),
    part("script", "Text", text="<script>document.title = 'taken'</script><img src=x onerror=x>"),
    part("link", "Text", text="[press](javascript:document.title='taken')"),
    part("picture", "Image", url="javascript:document.title='taken'", description="no picture"),
    part(
        "button",
        "Button",
        child="label",
        action={"functionCall": call("openUrl", url="javascript:document.title='taken'")},
    ),
    part("label", "Text", text="Press me"),
    part("icon", "Icon", name={"svgPath": '"><script>document.title="taken"</script>'}),
    column("loop", id="loop"),
    part("self", "Column", children={"componentId": "self", "path": "/list"}),
    column("d1", id="deep"),
    *(column(f"d{n + 1}", id=f"d{n}") for n in range(1, 60)),
    part("many", "List", children={"componentId": "row", "path": "/list"}),
    part("row", "Text", text="row"),
    part("regex", "TextField", label="Slow", value=at("/slow"), validationRegexp="^(a+)+$"),
    *(part(f"n{n}", "Text", text="one of many") for n in range(10_000)),
]


CARD = "ui://weather/card.html"

PAGE = Path(__file__).with_name("weather_app.html")


@dataclass
class WeatherServer:
    """The server, and what was called on it."""

    port: int = 0
    calls: list[str] = field(default_factory=list[str])

    def apps(self) -> McpApps:
        server = McpServer(f"http://127.0.0.1:{self.port}/mcp")
        return McpApps(servers=[McpAppServer(server=server, id="weather")])


@asynccontextmanager
async def serve_app() -> AsyncGenerator[WeatherServer, None]:
    """Serve a tool with a page, one for the page alone, and one that is for neither."""
    weather = WeatherServer()
    mcp: MCPServer[Any] = MCPServer("weather")

    @mcp.tool(meta={"ui": {"resourceUri": CARD}})
    def show_weather(city: str) -> str:
        return f"21 degrees in {city}"

    @mcp.tool(meta={"ui": {"resourceUri": CARD, "visibility": ["app"]}})
    def refresh() -> str:
        weather.calls.append("refresh")
        return "22 degrees"

    @mcp.tool()
    def delete_everything() -> str:
        weather.calls.append("delete_everything")
        return "deleted"

    @mcp.resource(CARD, mime_type="text/html;profile=mcp-app")
    def card() -> str:
        return PAGE.read_text()

    async with serving(mcp.streamable_http_app()) as weather.port:
        yield weather
