"""A referee from outside: ag-ui-validate, which reads its 46 rules out of AG-UI's documents.

https://github.com/langport-dev/ag-ui-validate
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from copilot_runtime.base.jsonvalue import to_text

FEATURES = (
    "agentic-chat",
    "backend-tool-rendering",
    "human-in-the-loop",
    "agentic-generative-ui",
    "tool-based-generative-ui",
    "shared-state",
    "predictive-state-updates",
)
"""The seven features of AG-UI's dojo. The two generative ones cannot be seen in a stream."""

_OFF = {
    "AGUI204": "off",  # what a model wrote as arguments is passed on as it is, and may be no JSON
    "AGUI207": "off",  # a result may be that of a call of an earlier run
}


def find_faults(events: Iterable[Mapping[str, Any]], features: Iterable[str] = ()) -> list[str]:
    """Return what the referee calls an error or a warning in a whole stream.

    `features` are those that the stream has to show: a missing one that can be seen is a fault.
    """
    package = pytest.importorskip("ag_ui_validate", reason="needs a newer `make setup`")
    options = package.ValidatorOptions(severity_overrides=_OFF, features=[*features])
    validator = package.create_validator(options)
    for event in events:
        validator.feed(_as_before_1_0(event))
    validator.finalize()
    report = validator.report()
    assert not report.internal_errors
    missing = [name for name in features if report.features[name] == "not-exercised"]
    return [f"not shown: {name}" for name in missing] + [
        f"{found.rule}: {found.message}"
        for found in report.diagnostics
        if found.severity != "info" and not _is_failed_start(found)
    ]


def _is_failed_start(found: Any) -> bool:
    """Return whether the fault is that a run failed before it began, which 1.0 allows."""
    return (found.rule, found.event_type) == ("AGUI001", "RUN_ERROR")


def _as_before_1_0(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event as the referee knows it: its version is 0.0.58, where results are texts."""
    if event.get("type") == "TOOL_CALL_RESULT":
        return {**event, "content": to_text(event.get("content"))}
    return dict(event)
