"""Which texts of a PDF page can be seen, by the state of its graphics. It runs in the sandbox."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot, inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdf import PageObject

_Matrix = Sequence[float]
_Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""

_IDENTITY = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
_NOWHERE = (inf, inf, -inf, -inf)
_EVERYWHERE = (-inf, -inf, inf, inf)
_SHOWS = frozenset((b"Tj", b"TJ", b"'", b'"'))
_PLAIN_SPACES = ("/DeviceGray", "/DeviceRGB", "/DeviceCMYK", "/CalGray", "/CalRGB", "/ICCBased")
"""Color spaces in which ones, or no ink, are white."""
_UNPAINTED = 3
"""The rendering mode of text that is not painted, as over a scanned page."""
_FILLED = (0, 4)
_LEAST_SIZE = 1.0
"""The smallest font size that can be read, in points."""
_LEAST_ALPHA = 0.02
_LEAST_WIDTH = 4.0
"""The width of the thinnest line that may be the background of a text, in points."""
_AREAS = 5_000
"""A page with more painted areas is painted everywhere."""


@dataclass(frozen=True, slots=True)
class _State:
    matrix: _Matrix = _IDENTITY
    mode: int = 0
    size: float = 12.0
    width: float = 1.0
    is_white: bool = False
    has_white: bool = True
    """`True` if its color space is one of `_PLAIN_SPACES`."""
    alpha: float = 1.0


@dataclass(slots=True)
class _Level:
    """The page, or an image or a form on it, with the state around it and the saved ones."""

    resources: Any
    outer: _State
    saved: list[_State] = field(default_factory=list[_State])


class Painting:
    """Follows the operators of a page, as a visitor of `extract_text`, to find hidden texts.

    Text that is not painted is hidden, but over an image, where text recognition writes it, and
    over a drawing without any other text. White text is hidden if nothing was painted beneath it.
    """

    def __init__(self, page: "PageObject") -> None:
        self._state = _State()
        self._levels = [_Level(page.get("/Resources") or {}, self._state)]
        left, bottom, right, top = map(float, page.cropbox)
        self._page: _Box = (left, bottom, right, top)
        self._unit = float(page.get("/UserUnit", 1))
        self._path: _Box = _NOWHERE
        self._areas: list[_Box] = []
        self._images: list[_Box] = []
        self._count = self._seen = 0
        """Numbers of texts, and of those that are seen."""
        self._hidden: set[int] = set()
        self._unpainted: dict[int, tuple[float, float]] = {}
        """Places of texts that are not painted, by the number of the text."""
        self._handlers: Mapping[bytes, Callable[[list[Any]], object]] = {
            b"q": lambda _: self._levels[-1].saved.append(self._state),
            b"Q": self._restore,
            b"cm": self._transform,
            b"Tr": lambda it: self._set(mode=int(it[0])),
            b"Tf": lambda it: self._set(size=float(it[1])),
            b"w": lambda it: self._set(width=float(it[0])),
            b"gs": self._read_settings,
            b"cs": self._choose_space,
            **dict.fromkeys((b"sc", b"scn"), self._set_color),
            b"g": self._set_plain_color,
            b"rg": self._set_plain_color,
            b"k": self._set_plain_color,
            **dict.fromkeys((b"m", b"l", b"c", b"v", b"y"), self._extend),
            b"re": self._add_rectangle,
            **dict.fromkeys((b"f", b"F", b"f*", b"B", b"B*", b"b", b"b*"), self._fill),
            **dict.fromkeys((b"S", b"s"), self._stroke),
            b"n": self._end_path,
            b"sh": lambda _: self._areas.append(_EVERYWHERE),
            b"INLINE IMAGE": lambda _: self._add_image(),
        }

    def enter(self, operator: bytes, operands: list[Any], _: object, matrix: _Matrix) -> None:
        """Follow an operator that begins."""
        try:
            if operator in _SHOWS:
                self._count += 1
                self._show(operands, matrix)
            elif operator == b"Do":
                self._levels.append(_Level(self._levels[-1].resources, self._state))
                self._open(operands[0])
            elif (handle := self._handlers.get(operator)) is not None:
                handle(operands)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            pass  # it is malformed

    def leave(self, operator: bytes, *_: object) -> None:
        """Follow an operator that ends, such as that of a form."""
        if operator == b"Do":
            self._state = self._levels.pop().outer

    def find_invisible(self) -> set[int]:
        """Return the numbers of the texts that cannot be seen."""
        if self._areas and not self._seen:
            return self._hidden
        places = self._unpainted.items()
        return self._hidden | {at for at, place in places if not _is_in(self._images, *place)}

    def _show(self, operands: list[Any], text_matrix: _Matrix) -> None:
        parts = operands[-1] if isinstance(operands[-1], list) else operands[-1:]
        length = sum(len(it) for it in parts if isinstance(it, str | bytes) and it.strip())
        if not length:
            return
        state = self._state
        matrix = _multiply(text_matrix, state.matrix)
        size = state.size * hypot(matrix[2], matrix[3])
        if size * self._unit < _LEAST_SIZE or not self._is_on_page(matrix, size, length):
            self._hidden.add(self._count)
        elif state.mode != _UNPAINTED and state.alpha > _LEAST_ALPHA and not state.is_white:
            self._seen += 1
        else:
            self._judge(_move(matrix, state.size * 0.3, state.size * 0.3))

    def _is_on_page(self, matrix: _Matrix, size: float, length: int) -> bool:
        left, bottom, right, top = self._page
        start = matrix[4:]
        if left <= start[0] <= right and bottom <= start[1] <= top:
            return True
        box = _surround(start, _move(matrix, length * self._state.size, 0))
        is_beside = box[2] < left - size or right + size < box[0]
        return not is_beside and box[1] <= top + size and bottom - size <= box[3]

    def _judge(self, place: tuple[float, float]) -> None:
        """Decide on a text that is not painted, or white."""
        state = self._state
        is_painted = state.mode != _UNPAINTED and state.alpha > _LEAST_ALPHA
        if not is_painted:
            self._unpainted[self._count] = place
        elif state.mode in _FILLED and not _is_in((*self._areas, *self._images), *place):
            self._hidden.add(self._count)
        else:
            self._seen += 1

    def _open(self, name: str) -> None:
        """Paint an image, or begin a form."""
        level = self._levels[-1]
        item = level.resources["/XObject"][name]
        if item["/Subtype"] == "/Image":
            self._add_image()
            return
        level.resources = item.get("/Resources") or level.resources
        self._transform(item.get("/Matrix") or _IDENTITY)

    def _transform(self, matrix: Sequence[Any]) -> None:
        self._set(matrix=_multiply([*map(float, matrix)], self._state.matrix))

    def _set(self, **values: Any) -> None:
        self._state = replace(self._state, **values)

    def _restore(self, _: list[Any]) -> None:
        self._state = self._levels[-1].saved.pop()

    def _read_settings(self, operands: list[Any]) -> None:
        settings = self._levels[-1].resources["/ExtGState"][operands[0]]
        self._set(alpha=float(settings.get("/ca", self._state.alpha)))

    def _choose_space(self, operands: list[Any]) -> None:
        spaces = self._levels[-1].resources.get("/ColorSpace") or {}
        space = spaces.get(operands[0], operands[0])
        space = space.get_object()
        kind = space if isinstance(space, str) else space[0]
        self._set(has_white=kind in _PLAIN_SPACES, is_white=False)

    def _set_color(self, operands: list[Any]) -> None:
        self._set(is_white=self._state.has_white and _is_white([*map(float, operands)]))

    def _set_plain_color(self, operands: list[Any]) -> None:
        self._set(has_white=True, is_white=_is_white([*map(float, operands)]))

    def _extend(self, operands: list[Any]) -> None:
        """Add points to the path."""
        points = zip(operands[::2], operands[1::2], strict=True)
        moved = [_move(self._state.matrix, float(x), float(y)) for x, y in points]
        corners = () if self._path is _NOWHERE else (self._path[:2], self._path[2:])
        self._path = _surround(*corners, *moved)

    def _add_rectangle(self, operands: list[Any]) -> None:
        x, y, width, height = map(float, operands)
        self._extend([x, y, x + width, y, x, y + height, x + width, y + height])

    def _fill(self, _: list[Any]) -> None:
        if not self._state.is_white:
            self._add_area(self._path)
        self._path = _NOWHERE

    def _stroke(self, _: list[Any]) -> None:
        left, bottom, right, top = self._path
        half = self._state.width * hypot(*self._state.matrix[:2]) / 2
        if half * 2 > _LEAST_WIDTH:
            self._add_area((left - half, bottom - half, right + half, top + half))
        self._path = _NOWHERE

    def _end_path(self, _: list[Any]) -> None:
        self._path = _NOWHERE

    def _add_image(self) -> None:
        corners = ((0, 0), (0, 1), (1, 0), (1, 1))
        box = _surround(*(_move(self._state.matrix, *it) for it in corners))
        self._images.append(box if len(self._images) < _AREAS else _EVERYWHERE)

    def _add_area(self, box: _Box) -> None:
        if len(self._areas) < _AREAS:
            self._areas.append(box if len(self._areas) < _AREAS - 1 else _EVERYWHERE)


def hide_texts(hidden: set[int]) -> Callable[..., None]:
    """Return a visitor of `extract_text` that leaves out texts by their numbers."""
    count = 0

    def visit(operator: bytes, operands: list[Any], *_: object) -> None:
        nonlocal count
        if operator in _SHOWS:
            count += 1
            if count in hidden:
                if operator == b'"':  # it moves to the next line, too
                    operands[2] = ""
                else:
                    operands.clear()

    return visit


def _is_white(color: Sequence[float]) -> bool:
    is_ink = len(color) == 4
    return bool(color) and all(it <= 0.02 if is_ink else it >= 0.98 for it in color)


def _multiply(first: _Matrix, second: _Matrix) -> _Matrix:
    """Return the matrix of one transformation, and then another."""
    a, b, c, d, e, f = first
    g, h, i, j, k, m = second
    return (
        *(a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j),
        *(e * g + f * i + k, e * h + f * j + m),
    )


def _move(matrix: _Matrix, x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = matrix
    return x * a + y * c + e, x * b + y * d + f


def _surround(*points: Sequence[float]) -> _Box:
    """Return the smallest box around points."""
    xs, ys = [it[0] for it in points], [it[1] for it in points]
    return min(xs), min(ys), max(xs), max(ys)


def _is_in(boxes: Sequence[_Box], x: float, y: float) -> bool:
    return any(it[0] - 2 <= x <= it[2] + 2 and it[1] - 2 <= y <= it[3] + 2 for it in boxes)
