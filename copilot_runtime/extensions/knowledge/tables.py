"""Rows of tables with cells that span several columns or rows, and numbers of lists, as text."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    text: str
    columns: int = 1
    rows: int = 1


@dataclass
class Grid:
    """The rows of a table, in which the text of a cell stands in each column and row it spans."""

    longest: int = 200
    """Length of a text that is repeated; a longer one is no label of its neighbours."""
    room: int = 1_000_000
    """Characters that may still be repeated; a few bytes of a table can ask for gigabytes."""
    spans: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """Texts of cells above by column, with the number of further rows."""

    def join(self, cells: Iterable[Cell]) -> str:
        """Return the next row as one line."""
        texts: list[str] = []
        spans: dict[int, tuple[str, int]] = {}
        waiting = [*cells]
        for cell in waiting:
            self._continue(texts, spans)
            columns = cell.columns if len(waiting) > 1 else 1
            for number in range(max(1, min(columns, 50))):
                if number and self.room < 0:
                    break
                text = cell.text if not number else self.repeat(cell.text)
                if cell.rows > 1:
                    spans[len(texts)] = (text, cell.rows - 1)
                texts.append(text)
        self._continue(texts, spans)
        self.spans = spans
        return " | ".join(texts).strip() if any(texts) else ""

    def _continue(self, texts: list[str], spans: dict[int, tuple[str, int]]) -> None:
        """Add the cells that reach down from the rows above to the next columns."""
        while self.room >= 0 and (span := self.spans.get(len(texts))):
            text, rows = span
            if rows > 1:
                spans[len(texts)] = (text, rows - 1)
            texts.append(self.repeat(text))

    def repeat(self, text: str) -> str:
        """Return a text that is repeated, or an empty one if it is long, or there are too many."""
        self.room -= len(text) + 1
        return text if len(text) <= self.longest and self.room >= 0 else ""


def format_number(number: int, style: str = "1") -> str:
    """Return the number of a list item in digits, letters (`a`, `A`) or Roman (`i`, `I`)."""
    if style.lower() == "a" and number > 0:
        letters = ""
        while number:
            number, letter = divmod(number - 1, 26)
            letters = chr(ord(style) + letter) + letters
        return letters
    if style.lower() == "i" and 0 < number < 4000:
        roman = ""
        for value, sign in _ROMAN:
            roman += sign * (number // value)
            number %= value
        return roman.upper() if style == "I" else roman
    return str(number)


_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
