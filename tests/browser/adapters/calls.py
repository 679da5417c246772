"""What models call in these tests, and what comes of it: actions of both pages, one of ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copilot_runtime import action


@dataclass(frozen=True, slots=True)
class Call:
    """A call and its result: a text, or what the JSON of one says."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    result: Any

    @property
    def exchange(self) -> tuple[str, Any, Any]:
        """What a provider is to be told of it: ids may be the provider's own."""
        return self.name, self.arguments, self.result


ADD = Call(
    "call_1",
    "addTask",
    {"title": "Water the plants", "owner": "Ada"},
    'Added "Water the plants".',
)
MOVE = Call(
    "call_2",
    "moveTask",
    {"title": "Order a cake for Friday", "column": "doing"},
    'Moved "Order a cake for Friday" to doing.',
)
DESTINATION = Call(
    "call_1",
    "showDestination",
    {"city": "Lisbon", "sky": "sunny"},
    "The page shows Lisbon.",
)
WEATHER = Call(
    "call_2",
    "showWeather",
    {"city": "Oslo"},
    {"city": "Oslo", "sky": "cloudy", "celsius": 13},
)
CLOCK = Call("call_1", "local_time", {"city": "Oslo"}, "It is noon in Oslo.")


@action
def local_time(city: str) -> str:
    """Tell the time in a city: the one action that the server runs."""
    return f"It is noon in {city}."
