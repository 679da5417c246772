"""What is kept of runs here, as data to ask about."""

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.extensions.analyst.engine.sources import DataSource, parse_source

TRACES = "traces"
"""The word in `analyst.data` for what is kept of runs here, and the name of its source."""


def read_source(text: str, trace_file: str) -> DataSource:
    """Return the source of a setting. What is kept of runs is for operators alone."""
    if text != TRACES:
        return parse_source(text)
    if not trace_file:
        raise ConfigurationFailed(
            "analyst.data has traces, and this server keeps none in a file.",
            hint="Set telemetry.store to sqlite:.copilot/traces.db.",
        )
    return parse_source({"name": TRACES, "location": trace_file, "for_operators": True})
