"""The rules for Prometheus and the dashboard for Grafana ask for metrics and labels there are."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from copilot_runtime.extensions.tracing.http.metrics import name_metric
from copilot_runtime.telemetry.semconv import METRICS
from tests.documents import DOCS

FOLDER = DOCS / "telemetry"
RULES: Any = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
DASHBOARD: Any = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
LABELS = {
    f"{name_metric(metric)}{end}": {name.replace(".", "_") for name in metric.attributes}
    for metric in METRICS.values()
    for end in (("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",))
}
"""The labels of each series, besides those that all have."""
OF_PROMETHEUS = {"le", "instance"}
"""Labels of the format, and of every target."""


def expressions() -> Iterator[str]:
    """Yield what Prometheus is asked."""
    for group in RULES["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("expression", [*expressions()])
def test_every_expression_asks_for_series_and_labels_that_there_are(expression: str) -> None:
    series = set(re.findall(r"\b(?:gen_ai|copilot)_\w+(?=[{\[)])", expression)) & set(LABELS)
    assert series
    chosen = re.findall(r"\{(\w+)!?=", expression)
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    names = {
        *chosen,
        *(name.strip() for group in grouped for name in group.split(",")),
    } - OF_PROMETHEUS
    assert names <= set.intersection(*(LABELS[one] for one in series))
    words = set(re.findall(r"\b(?:gen_ai|copilot|mcp)_\w+", expression))
    assert words <= {*LABELS, *names}
    assert expression.count("(") == expression.count(")")


def test_each_alert_has_a_name_of_its_own_and_says_what_is_wrong() -> None:
    rules = [rule for group in RULES["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert all(f"by ({name})" in rule["expr"] for name in used)


def test_the_dashboard_takes_any_prometheus_and_its_panels_do_not_overlap() -> None:
    [variable] = DASHBOARD["templating"]["list"]
    assert (variable["name"], variable["query"]) == ("datasource", "prometheus")
    panels = DASHBOARD["panels"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["id"] for panel in panels}) == len(panels)
