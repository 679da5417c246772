"""A few lines of YAML whose aliases stand for more values than fit into memory."""


def _build(first: str, repeat: str) -> str:
    """Return fields each of which has the one before ten times."""
    lines = [f"a0: &a0 {first}"]
    for number in range(1, 12):
        names = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} {repeat.format(names)}")
    return "\n".join(lines) + "\n"


BOMBS = (
    _build("[x, x, x, x, x, x, x, x, x, x]", "[{}]"),
    _build("{k0: 0, k1: 1, k2: 2, k3: 3, k4: 4}", "{{<<: [{}]}}"),
)
"""Of lists, and of mappings that are merged. The fifth line is the first that is too much."""
