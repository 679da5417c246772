"""A chart of lines over time, as SVG that needs no font and no script."""

from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 760, 320, 60, 50, 40
_COLORS = ("#1f6feb", "#bf3989", "#1a7f37", "#9a6700")


def draw_chart(series: Mapping[str, Sequence[float]], step: float, title: str) -> str:
    """Return an SVG with a line for each series, whose values are `step` seconds apart."""
    longest = max(len(values) for values in series.values())
    highest = max((max(values) for values in series.values()), default=0.0) or 1.0
    across, up = _WIDTH - _LEFT - 20, _HEIGHT - _BOTTOM - _TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-weight="bold">{title}</text>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _TOP + up * (1 - share)
        parts.append(f'<path d="M{_LEFT} {y:.0f}h{across}" stroke="#d0d7de"/>')
        value = f"{highest * share:.3g}"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{value}</text>')
        x, time = _LEFT + across * share, longest * step * share
        y = _HEIGHT - _BOTTOM + 18
        parts.append(f'<text x="{x:.0f}" y="{y}" text-anchor="middle">{time:.3g} s</text>')
    for number, (name, values) in enumerate(series.items()):
        color = _COLORS[number % len(_COLORS)]
        apart = across / max(1, longest - 1)
        points = " ".join(
            f"{_LEFT + apart * at:.1f},{_TOP + up * (1 - value / highest):.1f}"
            for at, value in enumerate(values)
        )
        parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{points}"/>')
        x = _LEFT + number * 230
        parts.append(f'<text x="{x}" y="{_HEIGHT - 8}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])
