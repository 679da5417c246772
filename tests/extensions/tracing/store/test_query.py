"""Queries of strangers: what they find, and that they end."""

import asyncio
import itertools
import subprocess
import sys
import threading
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.base.errors import LimitExceeded, Misuse
from copilot_runtime.extensions.tracing.store import TraceFilter, TraceQuery
from copilot_runtime.extensions.tracing.store.records import Record, encode_span
from tests.extensions.tracing.store import make_span
from tests.in_one_test import in_one_test

SPANS: list[Record] = [encode_span(make_span("t", f"s{number}", "n")) for number in range(100)]
DOUBLE = " | ".join(["[@, @]"] * 22)


@in_one_test(
    ("query", "is_match"),
    [
        ("", True),
        ("missing", False),
        ("[0].status.code == `7`", False),
        ("[?kind==`9`]", False),
        ("length([?kind==`9`])", False),
        ("length(@)", True),
        ("[0].parent_span_id", False),
        ("[0].name", True),
        ("`{}`", True),
        ("[?kind=='INTERNAL']", False),
        ("[?kind==`1`]", True),
        ("sort_by(@, &start_time_unix_nano)[0].name", True),
        ("[0] == [0]", True),
        ("contains(`[[1]]`, `[1]`)", True),
        ("join(',', [].name)", True),
        ("to_string(@)", True),
        ("[[@, @], [`1`]][]", True),
        ("name[]", False),
    ],
)
def test_a_trace_matches_unless_the_result_says_that_there_is_nothing(
    query: str, is_match: bool
) -> None:
    assert TraceQuery(query).matches(SPANS) is is_match


@in_one_test(
    "query",
    [
        f"[{DOUBLE}, {DOUBLE}] | [0] == [1]",
        f"to_string({DOUBLE} | [@, @])",
        f"[{DOUBLE}, {DOUBLE}] | contains(@, [0])",
        " | ".join(["[@, @][]"] * 16),
        "[" + ", ".join(["@"] * 600) + "][] | [" + ", ".join(["@"] * 600) + "][]",
        "[].[" + ", ".join(["name"] * 500) + "][] | join(to_string(@), @)",
        " | ".join(["to_string([@, @, @, @])"] * 20),
    ],
)
def test_what_grows_without_end_is_refused_before_it_does(query: str) -> None:
    with pytest.raises(LimitExceeded, match="too large"):
        TraceQuery(query).matches(SPANS)


@in_one_test(
    "query",
    [
        "[].attributes[].x[].y[].z | [?[?a]] || " * 6 + "`false`",
        "sort_by(@, &length(to_string(@)))",
        "sort_by(@, &to_string(sort_by(`[" + ",".join(["1"] * 900) + "]`, &@)))",
        "[*].[[*].[[*].[*]]]",
        "map(&map(&map(&@, @), @), [[@, @, @], [@, @, @]])",
        "max_by([@,@,@][], &length(to_string(@)))",
    ],
)
def test_a_query_that_takes_too_long_is_stopped_while_it_runs(query: str) -> None:
    clock = itertools.count().__next__
    with pytest.raises(LimitExceeded, match="longer than 3 seconds"):
        list(TraceQuery(query, seconds=3, clock=clock).select([SPANS] * 1_000))


@in_one_test(
    "query",
    [
        "nothing(@)",
        "length(`1`)",
        "ceil(`1e999`)",
        "`" + "[" * 40,
        "(" * 40,
        "sum([*].name)",
        "[?starts_with(kind, '1')]",
        "[?starts_with(name, `1`)]",
        "[?starts_with(name)]",
        "[?ends_with(attributes.name, 'n')]",
    ],
)
def test_a_query_that_cannot_be_evaluated_says_so(query: str) -> None:
    with pytest.raises(Misuse):
        TraceQuery(query).matches(SPANS)


@in_one_test(
    ("query", "filter"),
    [
        ("[?status.code==`2`]", TraceFilter(has_error=True)),
        ("[?`2`==status.code].name | [0]", TraceFilter()),
        ("[?`2`==status.code].name", TraceFilter(has_error=True)),
        (
            """[?attributes."gen_ai.agent.name"=='a' && kind==`1` && trace_id=='t']""",
            TraceFilter(agent="a", trace_id="t"),
        ),
        ("[?status.code==`2` || kind==`1`]", TraceFilter()),
        ("[?status.code==`true`]", TraceFilter()),
        ("[?length(name)==`2`]", TraceFilter()),
        ("[?length(name).x=='2']", TraceFilter()),
        ("[0][?trace_id=='t']", TraceFilter()),
        ("[?trace_id==name]", TraceFilter()),
        ("", TraceFilter()),
    ],
)
def test_indexes_rule_out_what_cannot_match(query: str, filter: TraceFilter) -> None:
    assert TraceQuery(query).narrow(TraceFilter()) == filter


def test_a_query_and_a_filter_for_two_things_find_nothing() -> None:
    assert TraceQuery("[?trace_id=='t']").narrow(TraceFilter(trace_id="u")) is None
    assert TraceQuery("[?status.code==`2`]").narrow(TraceFilter(has_error=False)) is None
    both = TraceFilter(agent="b")
    assert TraceQuery("""[?attributes."gen_ai.agent.name"=='a']""").narrow(both) == both


def test_a_query_returns_no_more_spans_than_fit_into_memory() -> None:
    with pytest.raises(LimitExceeded, match="more than 100,000 spans"):
        TraceQuery("").collect([SPANS] * 1_001)


@pytest.mark.anyio
async def test_a_query_that_nobody_awaits_any_more_ends() -> None:
    query, has_begun, has_ended = TraceQuery("[?name]"), threading.Event(), threading.Event()

    def work() -> None:
        has_begun.set()
        try:
            query.collect(itertools.repeat(SPANS))
        except LimitExceeded:
            has_ended.set()
            raise

    task = asyncio.create_task(query.run(work))
    await asyncio.to_thread(has_begun.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(has_ended.wait, 10)


def test_who_makes_a_runtime_imports_neither_jmespath_nor_sqlite() -> None:
    program = (
        "import sys; from copilot_runtime import CopilotRuntime, app; "
        "from copilot_runtime.extensions.tracing.store.memory import MemoryTraceStore; "
        "MemoryTraceStore(); "
        "print([name for name in ('jmespath', 'sqlite3') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


_PATHS = ("name", "kind", "attributes.x", 'attributes."a.b"', "attributes.x.y", "name.x", "missing")
_COMPARISONS = st.builds(
    "{}{}{}".format,
    st.sampled_from(_PATHS),
    st.sampled_from(["==", "!="]),
    st.sampled_from(["'n'", "''", "`1`", "`1.0`", "`0`", "`true`", "`null`", "'1'", '`["n"]`']),
)
_SEARCHES = st.builds(
    "{}({}, {})".format,
    st.sampled_from(["starts_with", "ends_with", "contains"]),
    st.sampled_from(["name", "trace_id", "parent_span_id"]),
    st.sampled_from(["'n'", "''", "'t'", "'nn'"]),
)
_CONDITIONS = st.recursive(
    st.one_of(_COMPARISONS, _SEARCHES, st.sampled_from(["`1`==kind", "name", "kind > `1`"])),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=4,
)
_VALUES = st.sampled_from(["n", "", 1, 1.0, 0, True, False, None, ["n"], {"y": "n"}, {"y": True}])


@given(
    condition=_CONDITIONS,
    spans=st.lists(st.fixed_dictionaries({"x": _VALUES, "a.b": _VALUES}), max_size=2),
)
def test_conditions_mean_what_they_mean_to_the_package(
    condition: str, spans: list[dict[str, Any]]
) -> None:
    records = [encode_span(make_span("t", "s", "n", attributes=values)) for values in spans]
    expected = bool(jmespath.search(f"[?{condition}]", records))
    assert TraceQuery(f"[?{condition}]").matches(records) is expected
