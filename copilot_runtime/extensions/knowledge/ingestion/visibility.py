"""Finds invisible texts on the pages of a PDF. It runs in the sandbox."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import hypot, inf
from typing import TYPE_CHECKING, Any, TypeAlias, cast

if TYPE_CHECKING:
    from pypdf import PageObject

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of dictionaries that are not as the standard says."""

_Box: TypeAlias = tuple[float, float, float, float]
"""Left, bottom, right and top edge."""
_EVERYWHERE: _Box = (-inf, -inf, inf, inf)
_SHOWS = (b"Tj", b"TJ", b"'", b'"')
_FILLS = (b"f", b"F", b"f*", b"B", b"B*", b"b", b"b*")
_PATHS = {b"re": 4, b"m": 2, b"l": 2, b"c": 6, b"v": 4, b"y": 4}
"""The operators of a path, and how many numbers each has."""
_COLORS = {b"g": 1, b"rg": 3, b"k": 4, b"sc": 3, b"scn": 3, b"cs": 9}
_BLANK = b" \0\1\3\xa0\t\r\n"
"""Codes of spaces in most fonts."""
_ASCII = frozenset(range(32, 127)) | {*_BLANK}
"""Codes that are ASCII in fonts that say nothing."""
_FORMS_BYTES = 1_000_000
"""Bytes of drawings above which they are not watched, as most of them have no text."""


def read_text(page: "PageObject") -> tuple[str, Iterable[str], bool]:
    """Return the text of a page, the kinds of invisible texts in it, and whether letters are lost.

    Letters are lost where a font does not say which characters they are.
    """
    watch: _Watch | None = None
    try:
        if _is_watchable(page):
            watch = _Watch(page)
    except MALFORMED:
        pass
    if watch is None:
        return page.extract_text(), (), False
    text = page.extract_text(
        visitor_operand_before=watch.look, visitor_operand_after=watch.leave_form
    )
    return text, watch.reasons, watch.is_lossy


def _is_watchable(page: "PageObject") -> bool:
    """Return whether a page has a text, and no drawings that are long to parse."""
    contents = page.get_contents()
    if contents is None or not any(it in contents.get_data() for it in (b"Tj", b"TJ", b"Do")):
        return False
    parts: Any = _find_resources(page, "/XObject").values()
    forms = (it.get_object() for it in parts)
    sizes = (len(it.get_data()) for it in forms if it["/Subtype"] == "/Form")
    return sum(sizes) < _FORMS_BYTES


@dataclass(frozen=True, slots=True)
class _Pen:
    """The settings with which a text is painted."""

    font: Any = None
    size: float = 0.0
    mode: int = 0
    is_white: bool = False
    alpha: float = 1.0
    is_mixed: bool = False
    """Whether an area that it paints lets the text below it shine through."""
    clip: _Box = _EVERYWHERE


class _Watch:
    """Finds invisible texts among the operators of a page.

    Where a form stands is not known, so the size and the place of texts in it are not looked at.
    """

    def __init__(self, page: "PageObject") -> None:
        self.reasons: dict[str, None] = {}
        self.is_lossy = False
        self._fonts: Any = _find_resources(page, "/Font")
        self._states: Any = _find_resources(page, "/ExtGState")
        self._box = cast("_Box", tuple(map(float, page.cropbox)))
        self._pen = _Pen()
        self._stack: list[_Pen] = []
        self._forms: list[tuple[_Pen, int, int, int]] = []
        """The pen before each form around, and how many operators, areas and pens there were."""
        self._path: list[tuple[float, float]] = []
        self._boxes: list[_Box] = []
        """The rectangles of the path."""
        self._texts: list[tuple[tuple[float, float], tuple[float, float]]] = []
        """Two points in each text."""
        self._looks = 2_000_000
        """How many times a text may still be compared with an area."""
        self._areas: list[_Box] = []
        """Where something is painted that is not white."""
        self._count = 0
        self._has_picture = False

    def look(self, operator: bytes, operands: Any, cm: list[float], tm: list[float]) -> None:
        """Follow an operator before it is carried out."""
        self._count += 1
        with suppress(*MALFORMED):
            self._follow(operator, operands, cm, tm)

    def _follow(self, operator: bytes, operands: Any, cm: list[float], tm: list[float]) -> None:
        if operator in _SHOWS:
            self._look_at_text(operands, cm, tm)
        elif operator == b"q":
            self._stack.append(self._pen)
        elif operator == b"Q" and self._stack:
            self._pen = self._stack.pop()
        elif operator == b"Tf" and len(operands) > 1:
            self._pen = replace(self._pen, font=operands[0], size=abs(float(operands[1])))
        elif operator == b"Tr" and operands:
            self._pen = replace(self._pen, mode=int(operands[0]))
        elif operator in _COLORS:
            self._pen = replace(self._pen, is_white=_is_white(operator, operands))
        elif operator in _PATHS and len(operands) == _PATHS[operator]:
            self._add_points(operator, [*map(float, operands)], cm)
        elif operator in _FILLS:
            if self._path and not self._pen.is_white:
                self._add_area(self._path)
            self._cover_texts(operator)
            self._path, self._boxes = [], []
        elif operator in (b"n", b"S", b"s"):
            self._path, self._boxes = [], []
        elif operator in (b"W", b"W*") and self._path:
            self._pen = replace(self._pen, clip=_intersect(self._pen.clip, _frame(self._path)))
        elif operator == b"gs" and not self._forms:
            self._set_state(self._states[operands[0]])
        elif operator == b"sh":
            self._areas.append(_EVERYWHERE)
        elif operator == b"INLINE IMAGE":
            self._add_picture(cm)
        elif operator == b"Do":
            before = (self._count, len(self._areas), len(self._stack))
            self._forms.append((self._pen, *before))

    def leave_form(self, operator: bytes, _: Any, cm: list[float], tm: list[float]) -> None:  # noqa: ARG002
        """Go on behind a form or a picture."""
        if operator != b"Do":
            return
        self._pen, count, areas, pens = self._forms.pop()
        del self._stack[pens:]
        if count == self._count:
            self._add_picture(cm)
        elif areas != len(self._areas):
            self._areas.append(_EVERYWHERE)

    def _look_at_text(self, operands: Any, cm: list[float], tm: list[float]) -> None:
        last = operands[-1] if operands else b""
        pieces = last if isinstance(last, list) else [last]
        text = b"".join(it for it in cast("list[Any]", pieces) if isinstance(it, bytes))
        if not text.strip(_BLANK):
            return
        pen, start = self._pen, _move(tm[4], tm[5], cm)
        self.is_lossy |= not _ASCII.issuperset(text) and self._is_silent(pen.font)
        if pen.mode == 3 or not pen.alpha:
            # scanned pages have one behind their picture
            reason = "" if self._has_picture or self._forms else "Text that is not painted"
        elif pen.is_white and pen.mode == 0 and not any(_has(it, start) for it in self._areas):
            reason = "White text"
        else:
            reason = ""
        if reason:
            self.reasons[reason] = None
        if self._forms:
            return
        length = len(text) * pen.size
        if not reason:
            across, up = 0.25 * length, 0.25 * pen.size
            self._texts += ((start, _move(tm[4] + tm[0] * across, tm[5] + tm[3] * up, cm)),)
        end = _move(tm[4] + tm[0] * length, tm[5] + tm[1] * length, cm)
        height = pen.size * hypot(
            *(a - b for a, b in zip(_move(tm[2], tm[3], cm), cm[4:], strict=True))
        )
        text_box = _frame([start, end])
        text_box = (*text_box[:3], text_box[3] + height)
        if not _overlap(text_box, self._box):
            self.reasons["Text outside of the page"] = None
        elif not _overlap(text_box, pen.clip):
            self.reasons["Text that is cut away"] = None
        elif height < 1 and not self._is_drawn(pen.font):
            self.reasons["Text smaller than 1 pt"] = None

    def _is_drawn(self, name: Any) -> bool:
        """Return whether a font has drawings as glyphs, whose size the font says."""
        return name in self._fonts and self._fonts[name].get("/Subtype") == "/Type3"

    def _is_silent(self, name: Any) -> bool:
        """Return whether a font does not say which characters it shows but those of ASCII."""
        if self._forms or name not in self._fonts:
            return False
        font = self._fonts[name]
        is_mapped = "/ToUnicode" in font or "/Encoding" in font
        return not is_mapped and font.get("/Subtype") == "/TrueType"

    def _set_state(self, state: Any) -> None:
        if "/ca" in state:
            self._pen = replace(self._pen, alpha=float(state["/ca"]))
        for name, plain in (("/BM", ("/Normal", "/Compatible")), ("/SMask", ("/None",))):
            if name in state:
                self._pen = replace(self._pen, is_mixed=state[name] not in plain)

    def _cover_texts(self, operator: bytes) -> None:
        """Find the texts under the rectangles of the path, which are painted."""
        pen, reason = self._pen, "Text under a painted area"
        if pen.alpha < 1 or pen.is_mixed or self._forms or reason in self.reasons:
            return
        if operator.endswith(b"*") and len(self._boxes) > 1:  # a frame
            return
        for box in self._boxes:
            area = _intersect(box, pen.clip)
            self._looks -= len(self._texts)
            if self._looks > 0 and any(_has(area, a) and _has(area, b) for a, b in self._texts):
                self.reasons[reason] = None

    def _add_points(self, operator: bytes, numbers: list[float], cm: list[float]) -> None:
        if operator == b"re":
            x, y, width, height = numbers
            numbers = [x, y, x + width, y, x, y + height, x + width, y + height]
        points = zip(numbers[::2], numbers[1::2], strict=True)
        moved = [_move(x, y, cm) for x, y in points]
        self._path += moved
        if operator == b"re" and (cm[1] == cm[2] == 0 or cm[0] == cm[3] == 0):
            self._boxes.append(_frame(moved))

    def _add_picture(self, cm: list[float]) -> None:
        self._has_picture = True
        self._add_area([_move(x, y, cm) for x, y in ((0, 0), (0, 1), (1, 0), (1, 1))])

    def _add_area(self, points: list[tuple[float, float]]) -> None:
        is_full = len(self._areas) >= 10_000  # as on a map
        self._areas.append(_EVERYWHERE if is_full else _frame(points))


def _find_resources(page: "PageObject", kind: str) -> Any:
    """Return the resources of a kind that the operators of a page name."""
    resources: Any = page["/Resources"]
    return resources[kind] if kind in resources else {}  # noqa: SIM401 - `get` follows no reference


def _move(x: float, y: float, matrix: list[float]) -> tuple[float, float]:
    """Return a point in the coordinates of the page."""
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


def _frame(points: list[tuple[float, float]]) -> _Box:
    across, up = zip(*points, strict=True)
    return min(across), min(up), max(across), max(up)


def _intersect(a: _Box, b: _Box) -> _Box:
    return max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])


def _overlap(a: _Box, b: _Box) -> bool:
    left, bottom, right, top = _intersect(a, b)
    return left <= right and bottom <= top


def _has(box: _Box, point: tuple[float, float]) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _is_white(operator: bytes, operands: Any) -> bool:
    """Return whether an operator chooses white; one number may be the share of any ink."""
    numbers = [float(it) for it in operands if isinstance(it, int | float)]
    if len(numbers) == 4 and operator in (b"k", b"sc", b"scn"):
        return max(numbers) <= 0.03
    return len(numbers) == _COLORS[operator] and min(numbers) >= 0.97
