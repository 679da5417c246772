"""The doors of a server as a table of a document: entry points, and for whom they are."""

from tests.extensions.access.matrix.rows import ROWS
from tests.extensions.access.matrix.rows.asks import Kind

_FOR: dict[Kind, str] = {
    "public": "everybody: it has nothing of anybody",
    "token": "whoever has the token of that one",
    "operator": "operators",
}
_OWN = "| whoever signs in: what is theirs | all others |"


def doors_table() -> str:
    """Return a table of those for whom there are doors, each with its doors, and of all others."""
    lines = ["| for | entry points |", "|---|---|"]
    for kind, people in _FOR.items():
        names = [door for door, row in ROWS.items() if row.kind == kind]
        twins = {name.replace("GET ", "HEAD ") for name in names if name.startswith("GET ")}
        doors = " ".join(f"`{name}`" for name in names if name not in twins)
        lines.append(f"| {people} | {doors} |")
    return "\n".join([*lines, _OWN]) + "\n"
