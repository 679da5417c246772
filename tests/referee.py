"""A referee from outside: ag-ui-validate, which reads its 46 rules out of AG-UI's documents.

https://github.com/langport-dev/ag-ui-validate
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from copilot_runtime.base.jsonvalue import to_text

_OFF = {
    "AGUI204": "off",  # what a model wrote as arguments is passed on as it is, and may be no JSON
    "AGUI207": "off",  # a result may be that of a call of an earlier run
}


def find_faults(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what the referee calls an error or a warning in a whole stream."""
    package = pytest.importorskip("ag_ui_validate", reason="needs a newer `make setup`")
    validator = package.create_validator(package.ValidatorOptions(severity_overrides=_OFF))
    for event in events:
        validator.feed(_as_before_1_0(event))
    validator.finalize()
    report = validator.report()
    assert not report.internal_errors
    return [
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
