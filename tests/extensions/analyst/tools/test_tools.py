"""What each tool returns for the tables of the contract."""

from dataclasses import replace

import pytest

from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.analyst.result_storage import write_line
from copilot_runtime.extensions.analyst.semantic.catalog import MetricCatalog
from copilot_runtime.extensions.analyst.session import Session
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.extensions.analyst.tools.call import call_tool
from copilot_runtime.extensions.analyst.tools.compare_data import compute_t_quantile
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


async def call(session: Session, name: str, **arguments: object) -> JsonObject:
    return (await call_tool(session, name, arguments)).output


async def test_a_summary_has_columns_values_and_statistics(session: Session) -> None:
    output = await call(session, "summarize_data")
    assert (output["row_count"], len(output["columns"])) == (1000, 8)
    assert output["numeric_stats"]["faithfulness_score"] == {"avg": 0.495, "min": 0.0, "max": 0.99}
    assert output["filter_values"]["environment"] == ["dev", "production", "staging"]
    assert output["time_range"]["column"] == "ts"


async def test_tables_are_found_by_words_of_their_names_and_columns(session: Session) -> None:
    output = await call(session, "summarize_data", find="KPIs, faithfulness")
    found = [str(table).partition("(")[0] for table in output["tables"]]
    assert (found, output["all_tables"]) == (["kpi_data", "eval_data"], 3)


async def test_a_lookup_finds_a_column_by_part_of_its_name(session: Session) -> None:
    output = await call(
        session, "query_data", filter_column="environ", filter_value="PROD", limit=500
    )
    assert (output["resolved_column"], output["total_matching"]) == ("environment", 334)
    assert output["returned"] == len(output["records"]) == 50


async def test_a_value_that_looks_like_sql_is_a_value(session: Session) -> None:
    value = "x' OR 1=1 --"
    output = await call(session, "query_data", filter_column="environment", filter_value=value)
    assert output["total_matching"] == 0


async def test_the_record_with_the_most_is_found(session: Session) -> None:
    output = await call(session, "query_data", find_max_column="faithfulness_score")
    assert output["max_record"]["faithfulness_score"] == 0.99


@in_one_test("tool", ["query_data", "analyze_data", "compare_data", "analyze_patterns"])
async def test_values_that_are_no_numbers_are_counted_by_each_tool(
    session: Session, tool: str
) -> None:
    arguments: dict[str, dict[str, str]] = {
        "query_data": {"find_max_column": "latency"},
        "analyze_data": {"metric": "latency", "aggregation": "sum"},
        "compare_data": {"group_column": "environment", "metrics": "latency"},
        "analyze_patterns": {"columns": "latency", "type": "outliers"},
    }
    output = await call(session, tool, **arguments[tool])
    left_out = "100 of 1,000 values of 'latency' are no numbers and left out."
    assert left_out in output["warnings"]


async def test_groups_are_aggregated_and_filters_count(session: Session) -> None:
    output = await call(
        session,
        "analyze_data",
        group_by="environment",
        metric="latency",
        aggregation="mean",
        filters='{"environment": ["dev", "STAGING"], "faithfulness_score": {">=": 0.5}}',
    )
    assert [one["environment"] for one in output["data"]] == ["dev", "staging"]
    assert output["data"][0]["row_count"] == 167


async def test_dates_are_grouped_by_week(session: Session) -> None:
    output = await call(session, "analyze_data", group_by="ts", time_grain="week")
    assert output["data"][0] == {"ts": "2025-12-29T00:00:00", "row_count": 96}


async def test_numbers_without_groups_are_described(session: Session) -> None:
    output = await call(session, "analyze_data", metric="latency,faithfulness_score")
    assert output["distributions"]["latency"]["count"] == 900
    assert output["warnings"] == ["100 of 1,000 values of 'latency' are no numbers and left out."]
    assert output["insights"] == ["faithfulness_score is low: 0.495 on average."]


async def test_two_groups_are_compared_with_how_sure_it_is(session: Session) -> None:
    output = await call(
        session,
        "compare_data",
        group_column="source_name",
        group_a="alpha_bot",
        group_b="beta_bot",
        metrics=["faithfulness_score"],
    )
    assert output["comparison"]["faithfulness_score"] == {
        "a": 0.49,
        "b": 0.5,
        "count_a": 500,
        "count_b": 500,
        "delta": 0.01,
        "relative_delta": 0.020408,
        "effect_size": 0.034613,
        "effect": "negligible",
        "confidence_interval": [-0.025856, 0.045856],
        "is_significant": False,
    }


@in_one_test(("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (5, 2.57058), (30, 2.04227)])
def test_quantiles_are_those_of_students_tables(freedom: float, quantile: float) -> None:
    assert compute_t_quantile(freedom) == pytest.approx(quantile, rel=2e-3)


async def test_key_figures_are_filtered(session: Session) -> None:
    output = await call(session, "query_kpi_data", filters={"kpi_category": "customer"})
    assert output["total"] == 2


async def test_a_statement_returns_at_most_its_limit(session: Session) -> None:
    sql = "SELECT dataset_id AS rate_limit FROM eval_data"
    output = await call(session, "run_sql", sql=sql)
    assert (output["returned"], output["total_rows"], output["truncated"]) == (100, 1000, True)


async def test_patterns_are_computed_over_all_rows(session: Session) -> None:
    output = await call(session, "analyze_patterns", columns="faithfulness_score,latency")
    assert output["correlations"][0]["count"] == 900
    assert [one["outliers_iqr"] for one in output["outliers"]] == [0, 0]
    trend = next(one for one in output["trends"]["trends"] if one["column"] == "latency")
    assert (trend["direction"], trend["slope_per_day"]) == ("rising", 72.0)


async def test_a_chart_has_the_rows_and_the_title(session: Session) -> None:
    sql = "SELECT environment, avg(relevance_score) AS rel FROM eval_data GROUP BY 1 ORDER BY 1"
    arguments = {"chart_type": "bar", "sql": sql, "x_column": "environment", "title": "T"}
    result = await call_tool(session, "plot_data", arguments)
    assert result.chart is not None
    trace = result.chart.plotly["data"][0]
    assert (trace["type"], trace["x"]) == ("bar", ["dev", "production", "staging"])
    assert result.chart.plotly["layout"]["title"]["text"] == "T"
    charts = session.services.charts
    assert await charts.get(result.chart.id, session.scope) is result.chart
    with pytest.raises(NotFound):
        await charts.get(result.chart.id, Scope(user="eve"))


async def test_traces_of_plotly_are_filled_and_lose_what_could_load(session: Session) -> None:
    sql = "SELECT environment, count(*) AS n FROM eval_data GROUP BY 1 ORDER BY 1"
    layout = {
        "title": "Rows<<a>img src=x>",
        "images": [{"source": "https://evil.example/x"}],
        "yaxis": {"range": [0, 500]},
    }
    traces = [{"type": "bar", "x": "environment", "y": "n", "name": "Rows"}]
    result = await call_tool(session, "plot_data", {"sql": sql, "traces": traces, "layout": layout})
    assert result.chart is not None
    plotly = result.chart.plotly
    assert plotly["data"][0]["y"] == [333, 334, 333]
    assert plotly["layout"]["title"]["text"] == "Rowsimg src=x>"
    assert plotly["layout"]["yaxis"]["range"] == [0, 500]
    assert "images" not in plotly["layout"]


async def test_no_rows_make_no_chart(session: Session) -> None:
    result = await call_tool(
        session, "plot_data", {"chart_type": "line", "sql": "SELECT 1 AS a WHERE false"}
    )
    assert result.chart is None
    assert "No data" in result.output["result"]


async def test_a_file_is_for_its_owner_and_without_formulas(session: Session) -> None:
    sql = "SELECT formula, f, 'a,\"b' AS c FROM oddities"
    result = await call_tool(session, "download_data", {"sql": sql, "filename": "../x/a.csv"})
    download = result.download
    assert download is not None
    assert (download.filename, download.row_count) == ("a.csv", 1)
    assert "SELECT" not in str(download)
    downloads = session.services.downloads
    stream = await downloads.open(download.id, Scope(user="ann"))
    body = b"".join([chunk async for chunk in stream.chunks])
    assert body == b'formula,f,c\r\n\'=1+1,,"a,""b"\r\n'
    with pytest.raises(NotFound):
        await downloads.open(download.id, Scope(user="eve"))


@in_one_test("text", ["=1", " =1", "\u3000@a", "\uff1d1", "\uff0b1", "\ufeff-1", "\ta"])
def test_no_cell_of_a_csv_file_is_a_formula(text: str) -> None:
    assert write_line([text]).decode().strip().strip('"') == f"'{text}"
    assert write_line(["a=1", -1, ""]) == b"a=1,-1,\r\n"


async def test_the_name_of_a_column_does_not_show_the_row_filter(session: Session) -> None:
    filtered = replace(session, scope=Scope(user="ann", agent_name="alpha_bot"))
    sql = "SELECT * FROM (SELECT (SELECT count(*) FROM eval_data))"
    output = await call(filtered, "run_sql", sql=sql)
    assert [column["name"] for column in output["columns"]] == ["(SELECT COUNT(*) FROM eval_data)"]


async def test_a_file_has_the_rows_that_its_owner_may_see_when_it_is_fetched(
    session: Session,
) -> None:
    filtered = replace(session, scope=Scope(user="ann", agent_name="alpha_bot"))
    sql = "SELECT DISTINCT source_name FROM eval_data"
    result = await call_tool(filtered, "download_data", {"sql": sql})
    assert result.download is not None
    assert result.lineage is not None
    assert result.lineage.filters == ["eval_data: only rows that you may see"]
    stream = await session.services.downloads.open(result.download.id, Scope(user="ann"))
    assert [chunk async for chunk in stream.chunks] == [b"source_name\r\n", b"alpha_bot\r\n"]


async def test_a_large_file_asks_a_person_first(session: Session) -> None:
    own = replace(session, services=replace(session.services, approval_rows=999))
    arguments = {"sql": "SELECT * FROM eval_data", "filename": "all.csv"}
    result = await call_tool(own, "download_data", arguments)
    assert result.approval is not None
    assert (result.approval.rows, result.approval.arguments) == (1000, arguments)
    own.approve("download_data", arguments)
    assert (await call_tool(own, "download_data", arguments)).download is not None


async def test_a_file_can_be_json(session: Session) -> None:
    sql = "SELECT kpi_name, kpi_value FROM kpi_data ORDER BY 1 LIMIT 2"
    result = await call_tool(session, "download_data", {"sql": sql, "format": "json"})
    assert result.download is not None
    stream = await session.services.downloads.open(result.download.id, session.scope)
    body = b"".join([chunk async for chunk in stream.chunks])
    assert body == (
        b'[\n{"kpi_name":"csat","kpi_value":4.4},\n{"kpi_name":"nps","kpi_value":42.0}\n]\n'
    )


async def test_rows_are_saved_as_a_data_set_of_their_owner(session: Session) -> None:
    sql = "SELECT * FROM eval_data WHERE faithfulness_score < 0.1"
    arguments = {"name": "Low scores", "sql": sql}
    output = (await call_tool(session, "save_as_dataset", arguments)).output
    assert output["row_count"] == 100
    count = await call(session, "run_sql", sql=f"SELECT count(*) AS n FROM {output['table']}")
    assert count["rows"] == [{"n": 100}]
    stranger = Session(services=session.services, scope=Scope(user="eve"), dataset="eval_data")
    denied = await call(stranger, "run_sql", sql=f"SELECT * FROM {output['table']}")
    assert denied["code"] == "table_not_allowed"
    await session.services.engine.delete(output["table"], "ann")


async def test_a_memory_without_entries_says_so(session: Session) -> None:
    assert "No memory" in (await call(session, "recall_memory"))["memory"]


async def test_a_metric_of_the_catalogue_is_computed_as_it_is_defined(session: Session) -> None:
    value = "avg(CASE WHEN faithfulness_score >= 0.5 THEN 1 ELSE 0 END)"
    catalog = MetricCatalog.parse(
        "metric_catalog:\n  quality:\n    good_share:\n      table: eval_data\n"
        f"      sql: {value}\n      dimensions: [environment]\n      time: ts\n"
    )
    own = replace(session, services=replace(session.services, catalog=catalog))
    arguments = {
        "metric": "good_share",
        "group_by": "environment",
        "filters": {"ts": {"<": "2026-01-02"}},
    }
    result = await call_tool(own, "analyze_data", arguments)
    assert result.lineage is not None
    assert (result.lineage.trust, result.lineage.metrics) == ("verified", ["good_share"])
    assert result.output["data"][0] == {"environment": "dev", "good_share": 0.0}
    result = await call_tool(own, "run_sql", {"sql": f"SELECT {value} AS g FROM eval_data"})
    assert result.lineage is not None
    assert result.lineage.trust == "verified"
    other = "SELECT avg(faithfulness_score) AS good_share FROM eval_data"
    result = await call_tool(own, "run_sql", {"sql": other})
    assert result.lineage is not None
    assert result.lineage.trust == "free_sql"


async def test_sql_named_after_another_metric_is_not_verified(session: Session) -> None:
    entry = "{{table: eval_data, sql: {}}}"
    first, second = entry.format("sum(faithfulness_score)"), entry.format("max(ts)")
    catalog = MetricCatalog.parse(
        f"metric_catalog:\n  speed:\n    total: {first}\n    most: {second}\n"
    )
    own = replace(session, services=replace(session.services, catalog=catalog))
    for name, trust in (("total", "verified"), ("s", "verified"), ("most", "free_sql")):
        sql = f"SELECT sum(faithfulness_score) AS {name} FROM eval_data"
        lineage = (await call_tool(own, "run_sql", {"sql": sql})).lineage
        assert lineage is not None
        assert lineage.trust == trust


async def test_a_join_is_no_metric_without_its_filter_and_a_plain_count_is_none(
    session: Session,
) -> None:
    every, rows = (
        "{table: eval_data, sql: sum(relevance_score)}",
        "{table: eval_data, sql: count(*)}",
    )
    dev = f"{every[:-1]}, filters: [environment = 'dev']}}"
    catalog = MetricCatalog.parse(
        f"metric_catalog:\n  q:\n    every: {every}\n    dev: {dev}\n    rows: {rows}\n"
    )
    own = replace(session, services=replace(session.services, catalog=catalog))
    join = "FROM eval_data AS a JOIN eval_data AS b ON a.ts = b.ts"
    joined = await call_tool(
        own, "run_sql", {"sql": f"SELECT sum(a.relevance_score) AS dev {join}"}
    )
    counted = await call_tool(own, "run_sql", {"sql": "SELECT COUNT(*) AS rows FROM eval_data"})

    assert joined.lineage is not None
    assert "This is the metric every, and not dev" in joined.lineage.checks[0]
    assert counted.lineage is not None
    assert (counted.lineage.trust, counted.lineage.metrics) == ("free_sql", [])


async def test_a_metric_under_the_name_of_another_is_not_verified(session: Session) -> None:
    metrics = "\n".join(
        f"    {name}: {{table: eval_data, sql: {sql}}}"
        for name, sql in (
            ("score", "avg(relevance_score)"),
            ("raw_score", "avg(faithfulness_score)"),
        )
    )
    catalog = MetricCatalog.parse(f"metric_catalog:\n  quality:\n{metrics}\n")
    services = replace(session.services, catalog=catalog)
    sql = "SELECT avg(faithfulness_score) AS found FROM eval_data"
    for question, trust in (
        ("What is the score?", "free_sql"),
        ("What is the raw score?", "verified"),
        ("And by city?", "verified"),
    ):
        own = replace(session, services=services, question=question)
        result = await call_tool(own, "run_sql", {"sql": sql})
        assert result.lineage is not None and result.lineage.trust == trust
        assert any("raw_score" in one for one in result.lineage.checks) == (trust == "free_sql")


@in_one_test(
    ("filters", "count"),
    [
        ({"ts": "2026-01-02"}, 24),
        ({"ts": {"between": ["2026-01-01", "2026-01-02"]}}, 48),
        ({"ts": {">=": "2026-01-01T06:00:00", "<": "2026-01-01T08:00:00"}}, 2),
        ({"faithfulness_score": "0.5"}, 10),
        ({"environment": {"!=": "DEV"}}, 667),
        ({"latency": {"contains": "n/"}}, 100),
        ({"latency": 30}, 0),
        ({"latency": 33}, 1),
        ({"faithfulness_score": {"<": float("inf")}}, 1000),
        ({"environment": []}, 0),
        ([{"column": "env", "operator": "in", "value": ["dev", "staging"]}], 666),
        ({"query": {"is_null": True}}, 0),
    ],
)
async def test_filters_of_models_select_what_they_mean(
    session: Session, filters: object, count: int
) -> None:
    output = await call(session, "query_data", filters=filters)
    assert output["total_matching"] == count


async def test_a_date_that_is_none_is_an_error(session: Session) -> None:
    output = await call(session, "query_data", filters={"ts": {">": "last week"}})
    assert output["error"] == "'last week' is no date, for 'ts'."


async def test_the_preview_of_a_file_is_no_warning_that_it_is_cut(session: Session) -> None:
    sql = "SELECT * FROM generate_series(1, 60)"
    result = await call_tool(session, "download_data", {"sql": sql, "filename": "all"})
    assert result.download is not None
    assert result.download.row_count == 60
    assert result.lineage is not None
    assert not result.lineage.checks


async def test_sql_that_grows_without_end_is_told_the_limit_that_it_exceeded(
    session: Session,
) -> None:
    sql = "SELECT list_reduce(list_transform(range(40), lambda x: 'x'), lambda a, b: a || a || b)"
    result = await call_tool(session, "run_sql", {"sql": sql})
    assert result.is_error
    assert "analyst.memory_limit (512MB)" in str(result.output)

    result = await call_tool(session, "run_sql", {"sql": "SELECT count(*) AS n FROM eval_data"})
    assert not result.is_error
