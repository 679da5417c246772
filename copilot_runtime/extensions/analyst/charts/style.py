"""Chart styling: the palette of series, and formats of numbers and dates."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from copilot_runtime.base.jsonvalue import JsonValue

PALETTE = (
    *("#0f766e", "#e2a54e", "#5b4fcf", "#74b3ee", "#dd84b5", "#828a97"),
    *("#7aa637", "#b4532a", "#46a4bc", "#8e4a9e", "#a99c2d", "#5b6b80"),
)
"""The first four colours are hues of the console's `base.css`. The first six differ for the
colour-blind, too, since dark and light ones alternate; all are visible on white and on black."""

FONT = "Inter, system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"

NEUTRAL = "#768090"
"""A grey that is readable on white and on black: the background is chosen by the frontend."""

GRID = "rgba(128,128,128,0.2)"

LONG_LABEL = 14
"""Number of characters of a label from which bars are drawn horizontally."""


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of an image, which has its own background: those of the console's `base.css`."""

    background: str
    series: Sequence[str]
    """Colours in place of those of `PALETTE`."""
    text: str
    muted: str
    grid: str


THEMES: Mapping[str, Theme] = {
    "light": Theme(
        background="#ffffff", series=PALETTE, text="#1a1c1f", muted="#5d6168", grid="#e5e5e1"
    ),
    "dark": Theme(
        background="#17191c",
        series=(
            *("#45c4b7", "#e2a54e", "#7d72ee", "#4a9be0", "#d9679f", "#e0e3e8"),
            *("#7aa637", "#cf6a3c", "#a9d3fa", "#ad6cbf", "#a99c2d", "#7689a1"),
        ),
        text="#ececed",
        muted="#a2a7af",
        grid="#2b2f34",
    ),
}

_SHARES = re.compile(r"(^|_|\b)(share|percent|percentage|pct|rate|ratio)(_|\b|$)", re.I)
_TAGS = re.compile(r"</?[A-Za-z][^>]*>")
_MAX_TITLE = 200


def write_title(text: str) -> str:
    """Return a title on one line, without markup: it may contain data."""
    return " ".join(strip_tags(text).split())[:_MAX_TITLE]


def strip_tags(text: str) -> str:
    """Return a text without markup that Plotly would interpret: `<5` stays."""
    return remove_tags(_TAGS, text) if "<" in text else text


def remove_tags(tags: re.Pattern[str], text: str) -> str:
    """Return a text without the tags of a pattern, also without those that a removal joins."""
    text = tags.sub("", text)
    # nested tags are no text, and none of their parts may become a tag
    return text.replace("<", "") if tags.search(text) else text


def humanize(name: str) -> str:
    """Return a column name as an axis title: `avg_score` becomes `Avg score`."""
    words = " ".join(re.sub(r"[_\s]+", " ", strip_tags(name)).split())
    return (words[:1].upper() + words[1:])[:80]


def choose_number_format(values: Iterable[JsonValue], name: str = "") -> str:
    """Return a d3 format for numbers: short for large ones, a percentage for shares."""
    numbers = [abs(value) for value in values if isinstance(value, int | float)]
    largest = max(numbers, default=0)
    if numbers and largest <= 1 and _SHARES.search(name):
        return ".0%" if largest >= 0.1 else ".1%"
    if largest >= 10_000:
        return "~s"
    if all(float(number).is_integer() for number in numbers):
        return ",d"
    return ",.2~f" if largest >= 0.1 else ".3~g"


def choose_hover_format(values: Iterable[JsonValue], name: str = "") -> str:
    """Return a d3 format for one exact number."""
    numbers = [value for value in values if isinstance(value, int | float)]
    if numbers and max(map(abs, numbers)) <= 1 and _SHARES.search(name):
        return ".1%"
    if all(float(number).is_integer() for number in numbers):
        return ",d"
    return ",.4~f"


def choose_time_format(values: Sequence[JsonValue]) -> str:
    """Return the shortest d3 format that distinguishes the times."""
    times = [parse_time(value) for value in values]
    valid = [time for time in times if time is not None]
    if any(time.hour or time.minute or time.second for time in valid):
        is_one_day = len({time.date() for time in valid}) == 1
        return "%H:%M" if is_one_day else "%b %-d %H:%M"
    if valid and all(time.day == 1 for time in valid):
        is_years = all(time.month == 1 for time in valid) and len(valid) > 1
        return "%Y" if is_years else "%b %Y"
    is_one_year = len({time.year for time in valid}) <= 1
    return "%b %-d" if is_one_year else "%b %-d, %Y"


def parse_time(value: JsonValue) -> datetime | None:
    """Parse an ISO text as a time, or return `None`."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def has_long_labels(labels: Sequence[JsonValue]) -> bool:
    """Return `True` if bars should be horizontal, so that their labels are readable."""
    lengths = [len(str(label)) for label in labels]
    longest = max(lengths, default=0)
    return (longest > LONG_LABEL and len(labels) >= 4) or (longest > 8 and len(labels) > 12)
