"""What the tools of this example do: a stand-in for the systems of a ferry company."""

from typing import Literal

NOTICES: list[str] = []
"""What was published, in order."""


def find_tides(harbour: str, day: str) -> dict[str, object]:
    """Find the times of high water."""
    return {"harbour": harbour, "day": day, "high_water": ["09:40", "22:05"]}


def find_weather(day: str) -> dict[str, object]:
    """Find the forecast for a day."""
    return {"day": day, "wind": "south-west 3", "sea": "slight", "fog": False}


def find_fare(passenger: Literal["adult", "child"]) -> dict[str, object]:
    """Find what a passage costs, in pounds."""
    return {"passenger": passenger, "pounds": {"adult": 18, "child": 9}[passenger]}


def publish_notice(text: str) -> dict[str, object]:
    """Publish a notice."""
    NOTICES.append(text)
    return {"address": f"https://skerryline.example/notices/{len(NOTICES)}"}
