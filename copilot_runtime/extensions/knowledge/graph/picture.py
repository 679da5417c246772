"""Draw an ontology as SVG.

Classes are placed in columns by their distance in links from a central class.
So every link leads to the same column or to the next one, and runs in the gap between: no line
crosses a box.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from copilot_runtime.extensions.knowledge.graph.ontology import (
    Ontology,
    OntologyClass,
    OntologyProperty,
)
from copilot_runtime.extensions.knowledge.graph.subjects import local_name

_MOST_CLASSES = 60
_MOST_ROWS = 14
_MOST_LINKS = 150
"""Maximum number of links drawn, to keep the drawing readable."""
_ROW = 17
_HEADER = 30
_PADDING = 10
_CHARACTER = 6.7
"""The width of a character of 12 pixels, about; text that needs more is squeezed."""
_BETWEEN_BOXES = 44
_MARGIN = 40
_NARROWEST, _WIDEST = 150, 300
_TARGETS_OF_ONE_PROPERTY = 3

_STYLE = """
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: #1f2937 }
  .name { font-weight: 600; font-size: 13px } .count, .type { fill: #6b7280; font-size: 11px }
  .box { fill: #fff; stroke: #94a3b8 } .head { fill: #e0e7ff }
  .link { fill: none; stroke-width: 1.4; opacity: .75 }
  .label { font-size: 11px; paint-order: stroke; stroke: #f8fafc; stroke-width: 4px;
    stroke-linejoin: round }
"""
_COLORS = ("#4f46e5", "#0f766e", "#b45309", "#be185d", "#1d4ed8", "#15803d", "#7c3aed", "#b91c1c")


@dataclass(slots=True)
class _Box:
    """The box of a class, with its position."""

    item: OntologyClass
    properties: list[OntologyProperty]
    """The listed properties, one per row."""
    rows: list[tuple[str, str]]
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    column: int = 0

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class _Link:
    """The line from a property to the class of its values."""

    source: int
    target: int
    label: str
    row: int
    """The row of the property in its box."""
    instances: int
    is_mutual: bool = False


@dataclass(slots=True)
class _Labels:
    """The areas that labels already occupy."""

    areas: list[tuple[float, float, float, float]] = field(
        default_factory=list[tuple[float, float, float, float]]
    )

    def overlap(self, x: float, y: float, width: float, height: float) -> float:
        """Return the occupied area of a rectangle around a point."""
        left, top = x - width / 2, y - height / 2
        return sum(
            max(0.0, min(left + width, right) - max(left, other_left))
            * max(0.0, min(top + height, bottom) - max(top, other_top))
            for other_left, other_top, right, bottom in self.areas
        )

    def take(self, x: float, y: float, width: float, height: float) -> None:
        """Mark a rectangle around a point as occupied."""
        left, top = x - width / 2, y - height / 2
        self.areas.append((left, top, left + width, top + height))


def draw_ontology(ontology: Ontology, title: str = "Ontology") -> str:
    """Return an SVG of classes, their properties, and the links between them."""
    boxes = [_make_box(item) for item in ontology.classes[:_MOST_CLASSES]]
    links, hidden_links = _choose_links(boxes)
    columns = _choose_columns(boxes, links)
    _order_columns(boxes, links, columns)
    width, height = _place(boxes, links, columns)
    labels = _Labels([(box.x, box.y, box.x + box.width, box.y + box.height) for box in boxes])
    shapes = [_draw_link(link, number, boxes, labels) for number, link in enumerate(links)]
    hidden = {"classes": len(ontology.classes) - len(boxes), "links": hidden_links}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{_escape(title)}">',
        f"<title>{_escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "<defs>",
        *(_draw_arrow(number, color) for number, color in enumerate(_COLORS)),
        "</defs>",
        '<rect width="100%" height="100%" fill="#f8fafc"/>',
        *(path for path, _ in shapes),
        *(line for box in boxes for line in _draw_box(box)),
        *(label for _, label in shapes),
    ]
    if any(hidden.values()) or not boxes:
        more = [f"{count} more {name}" for name, count in hidden.items() if count]
        text = f"and {' and '.join(more)}" if more else "No resource has a type yet."
        lines.append(f'<text x="{_MARGIN}" y="{height - 14:.0f}" class="count">{text}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _make_box(item: OntologyClass) -> _Box:
    properties = [part for part in item.properties if not part.is_inverse]
    hidden = 0 if len(properties) <= _MOST_ROWS else len(properties) - _MOST_ROWS + 1
    properties = properties[: len(properties) - hidden]
    rows = [(part.name, _describe(part)) for part in properties]
    if hidden:
        rows.append((f"and {hidden} more", ""))
    texts = [
        f"{item.name}  {item.instances}",
        *(f"{name}  {description}" for name, description in rows),
    ]
    width = max(map(len, texts)) * _CHARACTER + 2 * _PADDING
    height = _HEADER + len(rows) * _ROW + (_PADDING if rows else 0)
    return _Box(item, properties, rows, min(max(width, _NARROWEST), _WIDEST), height)


def _describe(item: OntologyProperty) -> str:
    """Return the type and the cardinality of a property's values."""
    if item.nodes == "literal":
        kind = " | ".join(local_name(datatype) for datatype in item.datatypes) or "text"
    elif item.classes:
        kind = " | ".join(local_name(iri) for iri, _ in item.classes[:_TARGETS_OF_ONE_PROPERTY])
    else:
        kind = local_name(item.dominant) or ("IRI" if item.nodes == "iri" else "any")
    count = {(1, True): "1", (1, False): "1..*", (0, True): "0..1", (0, False): "*"}
    return f"{kind}  {count[min(item.min_count, 1), item.max_count == 1]}"


def _choose_links(boxes: Sequence[_Box]) -> tuple[list[_Link], int]:
    """Return the links to draw, those with the most instances, and the number of omitted ones."""
    links = [*_find_links(boxes)]
    if len(links) <= _MOST_LINKS:
        return links, 0
    chosen = sorted(links, key=lambda link: -link.instances)[:_MOST_LINKS]
    return chosen, len(links) - _MOST_LINKS


def _find_links(boxes: Sequence[_Box]) -> Iterator[_Link]:
    """Yield the links between classes of the properties listed in the boxes.

    Two inverse properties are one link.
    """
    numbers = {box.item.iri: number for number, box in enumerate(boxes)}
    drawn: set[tuple[int, int, str]] = set()
    for source, box in enumerate(boxes):
        for row, item in enumerate(box.properties):
            for iri in _targets(item):
                target = numbers.get(iri)
                if target is None or (target, source, item.path) in drawn:
                    continue
                is_mutual = bool(item.inverse) and iri == item.dominant
                label = item.name
                if is_mutual:
                    drawn.add((source, target, item.inverse))
                    if item.inverse != item.path:
                        label = f"{item.name} / {local_name(item.inverse)}"
                yield _Link(source, target, label, row, item.instances, is_mutual)


def _targets(item: OntologyProperty) -> Iterable[str]:
    if item.nodes == "literal":
        return ()
    if 0 < len(item.classes) <= _TARGETS_OF_ONE_PROPERTY:
        return (iri for iri, _ in item.classes)
    return (item.dominant,)


def _choose_columns(boxes: Sequence[_Box], links: Iterable[_Link]) -> list[list[int]]:
    """Return the classes of each column, from the root class with the smallest drawing."""
    neighbours: dict[int, set[int]] = {number: set() for number in range(len(boxes))}
    for link in links:
        if link.source != link.target:
            neighbours[link.source].add(link.target)
            neighbours[link.target].add(link.source)
    columns: list[list[int]] = []
    rest = set(neighbours)
    alone = [number for number in sorted(rest) if not neighbours[number]]
    rest -= {*alone}
    while rest:
        levels = min(
            (_levels(root, neighbours) for root in sorted(rest)),
            key=lambda levels: (_largeness(levels, boxes), levels[0]),
        )
        rest -= {number for level in levels for number in level}
        for column, level in enumerate(levels):
            if column == len(columns):
                columns.append([])
            columns[column] += level
    _add_alone(columns, alone, boxes)
    return columns


def _levels(root: int, neighbours: Mapping[int, set[int]]) -> list[list[int]]:
    distances = {root: 0}
    queue = deque([root])
    while queue:
        number = queue.popleft()
        for other in sorted(neighbours[number]):
            if other not in distances:
                distances[other] = distances[number] + 1
                queue.append(other)
    levels: list[list[int]] = [[] for _ in range(max(distances.values()) + 1)]
    for number, distance in distances.items():
        levels[distance].append(number)
    return levels


def _largeness(levels: list[list[int]], boxes: Sequence[_Box]) -> float:
    """Return the height of a drawing, or its scaled width if that is larger."""
    height = max(_height_of(level, boxes) for level in levels)
    width = sum(max(boxes[number].width for number in level) + 200 for level in levels)
    return max(height, width / 1.6)


def _height_of(level: Iterable[int], boxes: Sequence[_Box]) -> float:
    return sum(boxes[number].height + _BETWEEN_BOXES for number in level)


def _add_alone(columns: list[list[int]], alone: Iterable[int], boxes: Sequence[_Box]) -> None:
    """Put classes without links into free space, or into new columns of about a square."""
    alone = [*alone]
    if not columns and alone:
        count = max(1, round((_height_of(alone, boxes) / 250) ** 0.5))
        columns += [[] for _ in range(min(count, len(alone)))]
    for number in alone:
        min(columns, key=lambda level: _height_of(level, boxes)).append(number)


def _order_columns(boxes: Sequence[_Box], links: Iterable[_Link], columns: list[list[int]]) -> None:
    """Order the classes within columns so that linked classes are close."""
    neighbours: dict[int, list[int]] = {}
    for link in links:
        neighbours.setdefault(link.source, []).append(link.target)
        neighbours.setdefault(link.target, []).append(link.source)
    for column, level in enumerate(columns):
        for number in level:
            boxes[number].column = column
    for _ in range(12):
        for level in (*columns, *reversed(columns)):
            places = _places(columns)

            def weight(number: int, places: Mapping[int, float] = places) -> float:
                others = [places[other] for other in neighbours.get(number, ())]
                return sum(others) / len(others) if others else 2.0

            level.sort(key=weight)


def _places(columns: Iterable[Sequence[int]]) -> dict[int, float]:
    """Return the relative position of each class in its column, from 0 to 1."""
    return {number: (at + 0.5) / len(level) for level in columns for at, number in enumerate(level)}


def _place(
    boxes: Sequence[_Box], links: Sequence[_Link], columns: Sequence[Sequence[int]]
) -> tuple[float, float]:
    """Set the position of every box. Returns width and height of the drawing."""
    height = max((_height_of(level, boxes) for level in columns), default=60.0)
    gaps = _gaps(boxes, links, len(columns))
    x = _MARGIN + gaps[-1]
    for column, level in enumerate(columns):
        width = max(boxes[number].width for number in level)
        spare = height - _height_of(level, boxes)
        y = _MARGIN + spare / 2 / max(1, len(level)) + _BETWEEN_BOXES / 2
        for number in level:
            boxes[number].x, boxes[number].y = x, y
            boxes[number].width = width
            y += boxes[number].height + _BETWEEN_BOXES + spare / max(1, len(level))
        x += width + gaps[column]
    return max(x + _MARGIN, 320.0), height + 2 * _MARGIN


def _gaps(boxes: Sequence[_Box], links: Iterable[_Link], count: int) -> list[float]:
    """Return the gap after each column, wide enough for its labels and links."""
    longest = [0.0] * (count + 1)
    numbers = [0] * (count + 1)
    for link in links:
        column = min(boxes[link.source].column, boxes[link.target].column)
        longest[column] = max(longest[column], len(link.label) * _CHARACTER)
        numbers[column] += 1
    return [
        max(60.0, length + 60 + 5 * number) if number else (60.0 if length else 30.0)
        for length, number in zip(longest, numbers, strict=True)
    ]


Point = tuple[float, float]
Curve = tuple[Point, Point, Point, Point]


def _draw_link(link: _Link, number: int, boxes: Sequence[_Box], labels: _Labels) -> tuple[str, str]:
    """Return the SVG path of a link, and its label at the position with the least overlap."""
    curve = _curve(link, number, boxes)
    color = number % len(_COLORS)
    start, *rest = (f"{x:.1f},{y:.1f}" for x, y in curve)
    ends = f' marker-end="url(#arrow{color})"'
    if link.is_mutual:
        ends += f' marker-start="url(#arrow{color})"'
    path = f'<path class="link" stroke="{_COLORS[color]}" d="M{start} C{" ".join(rest)}"{ends}/>'
    width = len(link.label) * _CHARACTER * 0.93
    is_bow = boxes[link.source].column == boxes[link.target].column
    aside = max(0.0, width / 2 - 12) if is_bow else 0.0  # its label would lie over the boxes
    tries = [_point(curve, part / 100) for part in (50, 42, 58, 34, 66, 26, 74, 20, 80, 14, 86)]
    x, y = min(
        ((x + aside, y) for x, y in tries),
        key=lambda point: labels.overlap(*point, width, 15),
    )
    labels.take(x, y, width, 15)
    text = _escape(link.label)
    label = (
        f'<text class="label" text-anchor="middle" x="{x:.1f}" y="{y + 4:.1f}" '
        f'style="fill:{_COLORS[color]}">{text}</text>'
    )
    return path, label


def _curve(link: _Link, number: int, boxes: Sequence[_Box]) -> Curve:
    """Return the curve of a link, from the row of its property to the head of the other box."""
    source, target = boxes[link.source], boxes[link.target]
    start_y = source.y + _HEADER + link.row * _ROW + _ROW / 2
    end_y = target.y + 8 + number * 7 % (_HEADER - 12)
    if source.column == target.column:
        bulge = 46 + number * 13 % 60
        right = source.x + source.width, target.x + target.width
        return (
            (right[0], start_y),
            (right[0] + bulge, start_y),
            (right[1] + bulge, end_y),
            (right[1] + 2, end_y),
        )
    is_right = target.column > source.column
    start_x = source.x + (source.width if is_right else 0)
    end_x = target.x + (-2 if is_right else target.width + 2)
    reach = (end_x - start_x) * 0.5
    return (start_x, start_y), (start_x + reach, start_y), (end_x - reach, end_y), (end_x, end_y)


def _point(curve: Curve, part: float) -> Point:
    """Return a point of a curve, from 0 for its start to 1 for its end."""
    rest = 1 - part
    weights = (rest**3, 3 * rest**2 * part, 3 * rest * part**2, part**3)
    return (
        sum(weight * x for weight, (x, _) in zip(weights, curve, strict=True)),
        sum(weight * y for weight, (_, y) in zip(weights, curve, strict=True)),
    )


def _draw_box(box: _Box) -> Iterator[str]:
    x, y, width = box.x, box.y, box.width
    corners = f"h{width - 12:.1f} q6,0 6,6 v{_HEADER - 6} h{-width:.1f} v{6 - _HEADER} q0,-6 6,-6 z"
    head = f"M{x + 6:.1f},{y:.1f} {corners}"
    yield f"<g><title>{_escape(box.item.iri)}</title>"
    yield (
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{box.height:.1f}" rx="6"/>'
    )
    yield f'<path class="head" d="{head}"/>'
    yield _draw_row(box, y + 20, box.item.name, str(box.item.instances), "name", "count")
    for number, (name, description) in enumerate(box.rows):
        yield _draw_row(box, y + _HEADER + number * _ROW + 14, name, description, "", "type")
    yield "</g>"


def _draw_row(box: _Box, y: float, left: str, right: str, *classes: str) -> str:
    """Return two texts at the sides of a box, squeezed if they are too long for it."""
    room = box.width - 2 * _PADDING
    needed = (len(left) + len(right) + 2) * _CHARACTER
    share = min(1.0, room / needed)
    parts: list[str] = []
    for text, x, anchor, name in (
        (left, box.x + _PADDING, "start", classes[0]),
        (right, box.x + box.width - _PADDING, "end", classes[1]),
    ):
        squeeze = (
            f' textLength="{len(text) * _CHARACTER * share:.0f}" lengthAdjust="spacingAndGlyphs"'
            if share < 1 and text
            else ""
        )
        parts.append(
            f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{squeeze}>'
            f"{_escape(text)}</text>"
        )
    return "".join(parts)


def _draw_arrow(number: int, color: str) -> str:
    return (
        f'<marker id="arrow{number}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="{color}"/>'
        "</marker>"
    )


def _escape(text: str) -> str:
    """Return text escaped for XML, without forbidden characters."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
