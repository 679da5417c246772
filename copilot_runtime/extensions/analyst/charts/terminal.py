"""Charts as text, for terminals: bars, sparklines and tables of blocks."""

import math
from collections.abc import Sequence
from typing import Any, cast

from copilot_runtime.base import formatting
from copilot_runtime.base.formatting import fit_text
from copilot_runtime.base.jsonvalue import JsonObject, JsonValue, as_list, as_objects, as_text
from copilot_runtime.extensions.analyst.charts.style import parse_time
from copilot_runtime.extensions.analyst.results import Chart

_SPARKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SHADES = " ░▒▓█"
_DOTS = " ·•●"
_FIELD_ROWS = 12
_MOST_BARS = 30
_MOST_LABEL = 24
_MOST_BINS = 12

Number = int | float


def draw_chart(chart: Chart, width: int = 80) -> str:
    """Return a chart as lines of text of at most `width` characters."""
    width = max(width, 30)
    traces = as_objects(chart.plotly.get("data"))
    lines = [clean_text(chart.title)] if chart.title else []
    kind = as_text(traces[0].get("type")) if traces else ""
    if kind == "heatmap":
        lines += _draw_heatmap(traces[0], width)
    elif kind == "histogram":
        lines += draw_bars(*_count_bins(as_list(traces[0].get("x"))), width)
    elif kind == "box":
        lines += _draw_boxes(traces, width)
    else:
        lines += _draw_traces(traces, width)
    return "\n".join(line[:width].rstrip() for line in lines)


def draw_sparkline(values: Sequence[JsonValue], width: int = 60) -> str:
    """Return numbers as one line of blocks; long series are averaged."""
    numbers = _average([_read_number(value) for value in values], width)
    valid = [number for number in numbers if number is not None]
    if not valid:
        return ""
    low, high = min(valid), max(valid)
    steps = len(_SPARKS) - 1
    scale = steps / (high - low) if high > low else 0
    return "".join(
        " " if number is None else _SPARKS[round((number - low) * scale) if scale else steps // 2]
        for number in numbers
    )


def draw_bars(labels: Sequence[str], values: Sequence[Number | None], width: int) -> list[str]:
    """Return one line per value: label, bar and number."""
    pairs = list(zip(labels, values, strict=True))[:_MOST_BARS]
    left = min(max((len(label) for label, _ in pairs), default=0), 2 * width // 5)
    texts = [format_number(value) for _, value in pairs]
    right = max(map(len, texts), default=0)
    room = max(width - left - right - 3, 4)
    largest = max((abs(value) for _, value in pairs if value is not None), default=0)
    lines = [
        f"{fit_text(label, left)} {_draw_bar(value, largest, room)} {text}"
        for (label, value), text in zip(pairs, texts, strict=True)
    ]
    if len(labels) > len(pairs):
        lines.append(f"… and {len(labels) - len(pairs)} more")
    return lines


def format_number(value: JsonValue) -> str:
    """Format a number for people: 12,345 and 0.123."""
    number = _read_number(value)
    if number is None:
        return "-"
    if float(number).is_integer() and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.2f}" if abs(number) >= 100 else f"{number:.4g}"


def clean_text(value: JsonValue) -> str:
    """Return a text on one line without terminal control characters."""
    return " ".join(formatting.clean_text(str(value)).split())


def _draw_traces(traces: Sequence[JsonObject], width: int) -> list[str]:
    lines: list[str] = []
    for trace in traces:
        labels, values = _read_points(trace)
        name = clean_text(trace.get("name", ""))
        if len(traces) > 1 and name:
            lines += ["", name]
        mode = as_text(trace.get("mode"))
        if mode == "markers":
            lines += _draw_points(trace, width)
        elif trace.get("type") in ("scatter", "scattergl") and ("lines" in mode or len(labels) > 1):
            lines += _draw_line(labels, values, width)
        else:
            lines += draw_bars(labels, values, width)
    return lines


def _read_points(trace: JsonObject) -> tuple[list[str], list[Number | None]]:
    x, y = ("labels", "values") if trace.get("type") == "pie" else ("x", "y")
    if trace.get("orientation") == "h":
        x, y = y, x
    labels = [_write_label(value) for value in as_list(trace.get(x))]
    values = [_read_number(value) for value in as_list(trace.get(y))]
    size = min(len(labels), len(values))
    return labels[:size], values[:size]


def _draw_line(labels: Sequence[str], values: Sequence[Number | None], width: int) -> list[str]:
    """Return a line as a sparkline between its first and last label, with its range."""
    valid = [value for value in values if value is not None]
    if not valid:
        return ["No numbers."]
    spark = draw_sparkline(values, width)
    first, last = labels[0], labels[-1]
    gap = max(len(spark) - len(first) - len(last), 1)
    low, high = format_number(min(valid)), format_number(max(valid))
    spread = f"from {low} to {high}, last {format_number(values[-1])}"
    return [spark, f"{first}{' ' * gap}{last}", spread]


def _draw_points(trace: JsonObject, width: int) -> list[str]:
    """Draw a scatter plot as text: denser cells get larger dots."""
    pairs = zip(as_list(trace.get("x")), as_list(trace.get("y")), strict=False)
    numbers = [(_read_number(x), _read_number(y)) for x, y in pairs]
    points = [(x, y) for x, y in numbers if x is not None and y is not None]
    if not points:
        return ["No numbers."]
    (left, right), (low, high) = ((min(one), max(one)) for one in zip(*points, strict=True))
    counts: dict[tuple[int, int], int] = {}
    for x, y in points:
        column = round((x - left) / (right - left or 1) * (width - 1))
        row = round((high - y) / (high - low or 1) * (_FIELD_ROWS - 1))
        counts[row, column] = counts.get((row, column), 0) + 1
    field = [
        "".join(_DOTS[min(counts.get((row, column), 0), len(_DOTS) - 1)] for column in range(width))
        for row in range(_FIELD_ROWS)
    ]
    ends = f"x {format_number(left)} to {format_number(right)}"
    return [*field, f"{ends}, y {format_number(low)} to {format_number(high)}"]


def _draw_bar(value: Number | None, largest: Number, room: int) -> str:
    if value is None or not largest:
        return " " * room
    eighths = round(abs(value) / largest * room * 8)
    full, rest = divmod(eighths, 8)
    bar = ("█" if value >= 0 else "▒") * full + (_EIGHTHS[rest] if rest and value >= 0 else "")
    return bar.ljust(room)[:room]


def _count_bins(values: Sequence[JsonValue]) -> tuple[list[str], list[Number | None]]:
    numbers = [number for value in values if (number := _read_number(value)) is not None]
    if not numbers:
        return [], []
    low, high = min(numbers), max(numbers)
    size = _choose_step((high - low) / _MOST_BINS) if high > low else 1
    start = math.floor(low / size) * size
    counts: dict[int, int] = {}
    for number in numbers:
        index = math.floor((number - start) / size)
        counts[index] = counts.get(index, 0) + 1
    bins = range(max(counts) + 1)
    labels = [
        f"{format_number(start + index * size)} to {format_number(start + (index + 1) * size)}"
        for index in bins
    ]
    return labels, [counts.get(index, 0) for index in bins]


def _choose_step(least: float) -> float:
    """Return the next round number (1, 2, 5, 10 and so on) that is not smaller."""
    power = 10 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def _draw_boxes(traces: Sequence[JsonObject], width: int) -> list[str]:
    groups: dict[str, list[Number]] = {}
    for trace in traces:
        for label, value in zip(*_read_points(trace), strict=True):
            if value is not None:
                groups.setdefault(label, []).append(value)
    lines: list[str] = []
    for label, values in list(groups.items())[:_MOST_BARS]:
        values.sort()
        parts = [values[round(share * (len(values) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)]
        low, first, middle, third, high = map(format_number, parts)
        lines.append(f"{fit_text(label, _MOST_LABEL)} {low} ├ {first} [{middle}] {third} ┤ {high}")
    return [line[:width] for line in lines]


def _draw_heatmap(trace: JsonObject, width: int) -> list[str]:
    rows = cast("list[list[Any]]", as_list(trace.get("z")))
    labels = [_write_label(value) for value in as_list(trace.get("y"))]
    numbers = [n for row in rows for value in row if (n := _read_number(value)) is not None]
    low, high = (min(numbers), max(numbers)) if numbers else (0, 0)
    scale = (len(_SHADES) - 1) / (high - low) if high > low else 0
    left = min(max(map(len, labels), default=0), _MOST_LABEL)
    columns = max(width - left - 1, 1)
    wide = 2 if rows and 2 * len(rows[0]) <= columns else 1
    lines = [
        fit_text(label, left)
        + " "
        + "".join(_shade(value, low, scale) * wide for value in row[:columns])
        for label, row in list(zip(labels, rows, strict=False))[:_MOST_BARS]
    ]
    return [*lines, f"░ {format_number(low)}  █ {format_number(high)}"]


def _shade(value: JsonValue, low: Number, scale: float) -> str:
    number = _read_number(value)
    return " " if number is None else _SHADES[round((number - low) * scale)]


def _average(values: Sequence[Number | None], most: int) -> list[Number | None]:
    """Reduce numbers to at most `most` by averaging neighbours."""
    if len(values) <= most:
        return list(values)
    found: list[Number | None] = []
    for index in range(most):
        start, end = index * len(values) // most, (index + 1) * len(values) // most
        valid = [value for value in values[start:end] if value is not None]
        found.append(sum(valid) / len(valid) if valid else None)
    return found


def _write_label(value: JsonValue) -> str:
    time = parse_time(value) if isinstance(value, str) and value[:4].isdecimal() else None
    if time is not None:
        is_day = not (time.hour or time.minute or time.second)
        return time.strftime("%Y-%m-%d" if is_day else "%Y-%m-%d %H:%M")
    return format_number(value) if isinstance(value, int | float) else clean_text(value)


def _read_number(value: JsonValue) -> Number | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None
