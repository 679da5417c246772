"""Charts show all rows in an order that reads well, in every language, and load nothing."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any, get_args

import pytest

from copilot_runtime.base.errors import LimitExceeded, NotFound
from copilot_runtime.extensions.analyst.charts.data import (
    MOST_SERIES,
    MOST_SLICES,
    ChartData,
    ChartKind,
    Roles,
    build_chart_data,
)
from copilot_runtime.extensions.analyst.charts.image import (
    MAX_SPEC,
    ChartRenderer,
    build_vega_lite,
    prepare_image,
)
from copilot_runtime.extensions.analyst.charts.plotly import build_plotly, validate_plotly
from copilot_runtime.extensions.analyst.charts.terminal import draw_chart, draw_sparkline
from copilot_runtime.extensions.analyst.result_storage import MOST_OF_ONE, build_chart_store
from copilot_runtime.extensions.analyst.results import Chart, Column, Table
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.extensions.analyst.tools.tool import ToolFailed
from tests.in_one_test import in_one_test

SALES = Table(
    columns=[Column("month", "VARCHAR"), Column("shop", "VARCHAR"), Column("sales", "DOUBLE")],
    rows=[("Mar", "b", 5.0), ("Jan", "a", float("nan")), ("Jan", "b", 2.0), ("Feb", "a", 3.0)],
)


def table(rows: Sequence[Sequence[Any]], *columns: tuple[str, str]) -> Table:
    return Table(columns=[Column(*column) for column in columns], rows=rows)


def draw(data: ChartData, title: str = "Sales") -> Chart:
    return Chart(id="1", title=title, plotly=build_plotly(data), vega_lite=build_vega_lite(data))


@in_one_test("kind", get_args(ChartKind))
def test_every_kind_is_valid_for_plotly_and_drawn_as_text(kind: ChartKind) -> None:
    roles = Roles(x="sales" if kind == "histogram" else "month", y=["sales"], split_by="shop")
    roles = replace(roles, split_by="") if kind == "pie" else roles
    chart = draw(build_chart_data(kind, SALES, roles, "Sales", is_ordered=False))
    validate_plotly(chart.plotly)
    assert "template" not in chart.plotly["layout"]
    assert draw_chart(chart, 60).startswith("Sales\n")
    assert max(map(len, draw_chart(chart, 60).splitlines())) <= 60


def test_months_stand_in_the_order_of_the_calendar_and_nan_is_a_gap() -> None:
    data = build_chart_data("line", SALES, Roles(split_by="shop"), "", is_ordered=False)
    assert [(one.name, one.x, one.y) for one in data.series] == [
        ("a", ["Jan", "Feb"], [None, 3.0]),
        ("b", ["Jan", "Mar"], [2.0, 5.0]),
    ]


def test_the_order_of_the_statement_stays() -> None:
    rows = [("z", 1), ("a", 3), ("m", 2)]
    sales = table(rows, ("name", "VARCHAR"), ("n", "BIGINT"))
    ordered, sized = (
        build_chart_data("bar", sales, Roles(), "", is_ordered=is_ordered).series[0].x
        for is_ordered in (True, False)
    )
    assert (ordered, sized) == (["z", "a", "m"], ["a", "m", "z"])


def test_dates_are_iso_texts_and_utc_for_vega() -> None:
    days = table([(date(2026, 1, 2), 2), (date(2026, 1, 1), 1)], ("day", "DATE"), ("n", "BIGINT"))
    data = build_chart_data("line", days, Roles(), "", is_ordered=False)
    assert build_plotly(data)["data"][0]["x"] == ["2026-01-01", "2026-01-02"]
    assert build_vega_lite(data)["data"]["values"][0]["x"] == "2026-01-01T00:00:00Z"


def test_small_slices_become_one_and_small_series_are_named_as_missing() -> None:
    rows = [(f"c{index}", 100 - index) for index in range(30)]
    many = table(rows, ("country", "VARCHAR"), ("n", "BIGINT"))
    pie = build_chart_data("pie", many, Roles(), "", is_ordered=False).series[0]
    assert (len(pie.x), pie.x[-1], sum(pie.y)) == (MOST_SLICES, "Other", 2565)
    lines = build_chart_data(
        "line", many, Roles(x="n", y=["n"], split_by="country"), "", is_ordered=False
    )
    assert len(lines.series) == MOST_SERIES
    assert lines.notes == ["Of 30 series, the 12 largest are shown."]


def test_long_labels_lie_beside_their_bars() -> None:
    rows = [(f"A rather long name of a product {index}", index) for index in range(6)]
    products = table(rows, ("product", "VARCHAR"), ("n", "BIGINT"))
    plotly = build_plotly(build_chart_data("bar", products, Roles(), "", is_ordered=False))
    assert plotly["data"][0]["orientation"] == "h"
    assert plotly["layout"]["yaxis"]["title"]["text"] == "Product"


@in_one_test(
    ("kind", "roles", "message"),
    [
        ("bar", Roles(y=["shop"]), "not numbers"),
        ("bar", Roles(x="profit"), "no column 'profit'"),
        ("heatmap", Roles(x="month", y=["month"], split_by="nope"), "no column 'nope'"),
    ],
)
def test_a_column_that_cannot_be_drawn_is_named(
    kind: ChartKind, roles: Roles, message: str
) -> None:
    with pytest.raises(ToolFailed, match=message):
        build_chart_data(kind, SALES, roles, "", is_ordered=False)


def test_a_chart_that_would_load_something_loads_nothing() -> None:
    chart = draw(build_chart_data("bar", SALES, Roles(), "", is_ordered=False))
    remote = replace(chart, vega_lite={**chart.vega_lite, "data": {"url": "file:///etc/passwd"}})
    assert "passwd" not in prepare_image(remote, "dark")
    huge = replace(chart, vega_lite={"data": {"values": ["x" * MAX_SPEC]}})
    with pytest.raises(LimitExceeded):
        prepare_image(huge, "light")


def test_series_have_brighter_colours_in_the_dark() -> None:
    rows = [(month, shop, 1.0) for month in ("Jan", "Feb") for shop in ("a", "b", "c")]
    sales = table(rows, ("month", "VARCHAR"), ("shop", "VARCHAR"), ("total", "DOUBLE"))
    roles = Roles(x="month", y=["total"], split_by="shop")
    chart = draw(build_chart_data("bar", sales, roles, "", is_ordered=False))
    ranges = [
        json.loads(prepare_image(chart, theme))["encoding"]["color"]["scale"]["range"]
        for theme in ("light", "dark")
    ]
    assert ranges == [["#0f766e", "#e2a54e", "#5b4fcf"], ["#45c4b7", "#e2a54e", "#7d72ee"]]


@pytest.mark.anyio
async def test_an_image_is_a_png_and_an_svg_with_the_title() -> None:
    chart = draw(build_chart_data("bar", SALES, Roles(), "Sales", is_ordered=False))
    renderer = ChartRenderer()
    assert (await renderer.render_png(chart, scale=1)).startswith(b"\x89PNG")
    assert ">Sales</text>" in await renderer.render_svg(chart, theme="dark")


def test_a_terminal_gets_no_characters_that_it_would_obey() -> None:
    rows = [("\x1b[31mred\x07", 1), ("\u202eabc", 2)]
    data = build_chart_data(
        "bar", table(rows, ("a", "VARCHAR"), ("n", "BIGINT")), Roles(), "", is_ordered=True
    )
    text = draw_chart(draw(data, "T\x1b]0;x\x07"), 50)
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def test_a_sparkline_is_as_long_as_it_may_be() -> None:
    assert draw_sparkline([0, None, 7]) == "▁ █"
    assert len(draw_sparkline(list(range(1000)), 40)) == 40
    assert draw_sparkline([]) == ""


@pytest.mark.anyio
async def test_a_store_drops_the_oldest_of_one_person_and_what_has_expired() -> None:
    now = [0.0]
    store = build_chart_store(seconds=10, clock=lambda: now[0])
    ann, bob = Scope(user="ann"), Scope(user="bob")
    chart = draw(build_chart_data("bar", SALES, Roles(), "", is_ordered=False))
    await store.add("bob", replace(chart, id="bob"), bob)
    for number in range(MOST_OF_ONE + 1):
        await store.add(str(number), replace(chart, id=str(number)), ann)
    assert (await store.get("1", ann)).id == "1"
    assert (await store.get("bob", bob)).id == "bob"
    now[0] = 11
    for id, scope in (("0", ann), ("1", ann), ("bob", bob)):
        with pytest.raises(NotFound):
            await store.get(id, scope)
