"""Translates simple questions about data into calls of the analyst's tools, for the demo model.

A question is answered only if every word of it is understood: a number that answers another
question than the one that was asked is worse than none.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from copilot_runtime.adapters.demo.matching import NOTE, Call
from copilot_runtime.adapters.demo.question import (
    COUNTING,
    HIGHEST,
    LOWEST,
    UNITS,
    Group,
    Question,
    group_by_time,
    guess_amount,
    is_ratio,
    list_stems,
    read_question,
)
from copilot_runtime.adapters.demo.schema import Table, join_tables, quote_name, stem
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_objects, as_text, get_text

_FUNCTIONS = {
    "AVG": list_stems("average avg mean"),
    "MEDIAN": list_stems("median"),
    "SUM": list_stems("total sum overall altogether"),
}
_NAMES = {"AVG": "average_", "MEDIAN": "median_", "MAX": "highest_", "MIN": "lowest_", "SUM": ""}
_SHARES = list_stems("share percent percentage proportion rate fraction")
_CHARTS = list_stems("chart plot graph draw diagram trend")
_TOP = 20


def plan_call(text: str, tables: Sequence[Table], tools: Collection[str]) -> Call | None:
    """Return the call that answers a question about tables, or `None` if it is not understood."""
    for table in _list_tables(text, tables):
        call, unknown = _plan(text, table)
        if call is not None and not unknown and call.tool in tools:
            return call
    return None


def _list_tables(text: str, tables: Sequence[Table]) -> Sequence[Table]:
    """Return the tables that a question may be about: the chosen one or all, and those named."""
    words = {*stem(text)}
    found = (*tables, *join_tables(tables))
    return [table for table in found if not table.is_other or words >= {*stem(table.name)}]


def refuse_question(text: str, tables: Sequence[Table]) -> str:
    """Return the demo model's answer to a question about tables that it does not understand."""
    named = {word for table in tables for name in table.list_names() for word in stem(name)}
    table, unknown = min(
        ((each, _plan(text, each)[1]) for each in _list_tables(text, tables)),
        key=lambda one: (len(one[1]), sum(stem(word)[0] in named for word in one[1])),
    )  # a word that another table has is not the reason
    words = ", ".join(f"“{word}”" for word in unknown[:5])
    chosen = [each for each in tables if not each.is_other]
    about = [each for each in tables if {*stem(text)} >= {*stem(each.name)}] or chosen
    reason = f"I do not understand {words} here." if words else "I miss the number that is meant."
    return (
        f"{reason}{_explain_words(unknown, table, chosen)} "
        "I can count, add up and average the columns of your data, by month or by group, with "
        "questions such as:\n\n"
        f"{suggest_questions(about)}"
    )


def _explain_words(words: Sequence[str], table: Table, others: Sequence[Table]) -> str:
    """Return a sentence about a column that one of the words names, or an empty string."""
    stems = [stem(word)[0] for word in words]
    parts = [stems[at:] for at in range(len(stems))]
    own = [column for column in table.columns if any(map(column.match, parts))]
    for column in own:
        if column.type == "VARCHAR" and (column.note or column.match(stems)):
            return f" '{column.name}' {column.note or 'is a text, which I cannot add up'}."
    if table.time is None and {*stems} & {*UNITS}:
        for column in table.columns:
            if "its dates" in column.note:
                return f" '{column.name}' {column.note}."
    for other in () if own else others:
        for column in other.columns:
            if any(column.match(part) > 1 for part in parts):
                return (
                    f" '{column.name}' is a column of {other.name}, which I cannot join with "
                    f"{table.name}; for a real model, set `OPENAI_API_KEY`."
                )
    return ""


def suggest_questions(tables: Sequence[Table]) -> str:
    """Return questions that the demo model answers about one of some tables, as a list."""
    table = next((one for one in tables if guess_amount(one)), tables[0])
    amount = guess_amount(table) or next((one for one in table.columns if one.is_number), None)
    texts = [column for column in table.columns if column.type == "VARCHAR"]
    texts.sort(key=lambda column: len(column.values) < 2)
    group = _name(texts[0].name) if texts else ""
    questions = [f"How many rows are in {_name(table.name)}?"]
    questions += [f"How many rows by {group}?"] if group else []
    if amount is not None:
        name = _name(amount.name)
        questions.append(f"What is the average {name}?")
        questions += [f"Which {group} has the highest {name}?"] if group else []
        questions += [f"Show {name} by month as a chart"] if table.time else []
    return "\n".join(f"- {question}" for question in questions)


def describe_result(name: str, output: JsonObject) -> str:
    """Return the demo model's text about a result of the analyst's tools, or an empty string."""
    if "error" in output:
        return ""
    rows = as_objects(output.get("rows"))
    notes = " ".join([*filter(None, map(as_text, as_list(output.get("warnings")))), NOTE])
    if name == "plot_data":
        return f"Here is the chart. {notes}"
    if name == "download_data":
        return f"The file {get_text(output, 'filename')} is ready. {NOTE}"
    if name in ("run_sql", "analyze_data"):
        if not any(value is not None for row in rows for value in row.values()):
            return f"No rows match, so there is no answer. {notes}"
        columns = {key: [row.get(key) for row in rows] for key in rows[0]}
        first = ", ".join(f"{_name(key)} **{_show(*cells)}**" for key, cells in columns.items())
        total = output.get("total_rows") or len(rows)
        count = f"{total} rows; the first: " if len(rows) > 1 else ""
        return f"{count}{first}. {notes}"
    return f"Here is what I found. {NOTE}" if name in _FOUND else ""


_FOUND = ("compare_data", "summarize_data")


def _plan(text: str, table: Table) -> tuple[Call | None, list[str]]:
    """Return a call, and the words of the question that it does not answer."""
    question = read_question(text, table)
    return _choose_tool(question), question.list_unknown()


def _choose_tool(question: Question) -> Call | None:
    table = question.table
    if question.take({"export", "download"}):
        name = {"filename": table.name, "format": "json" if question.take({"json"}) else "csv"}
        return Call("download_data", {"sql": _select_rows(question), **name})
    if question.take(_DESCRIBING) and not question.values and not question.period:
        question.take(question.rows | {"tabl"})
        return Call("summarize_data", {"table": table.name})
    if question.take({"compar"}):
        return _compare(question)
    charts = question.take(_CHARTS)
    is_chart = bool(charts)
    kind = next((one for one in ("bar", "line") if is_chart and question.take(list_stems(one))), "")
    groups = [*question.take_groups()]
    if is_chart and not groups and table.time is not None:
        groups = [group_by_time(table.time, "month")]
    measure = _measure(question, groups)
    if measure is None or not is_chart:
        sql = "" if measure is None else _aggregate(question, measure)
        return Call("run_sql", {"sql": sql}) if sql else None
    if len(measure.groups) != 1:
        question.return_places(charts)
        return None
    return Call(
        "plot_data",
        {
            "chart_type": kind or ("line" if groups[0].is_time else "bar"),
            "sql": _aggregate(question, measure),
            "x_column": groups[0].name,
            "y_column": measure.name,
            "title": f"{_name(measure.name).capitalize()} by {_name(groups[0].name)}",
        },
    )


_DESCRIBING = list_stems("summarize summarise describe")


def _select_rows(question: Question) -> str:
    question.take(question.rows | {"csv", "fil"})
    time = question.table.time
    order = f"\nORDER BY {quote_name(time.name)}" if time else ""
    where = _join_conditions([*question.period, *question.list_values()])
    return f"SELECT *\nFROM {question.table.sql}{where}{order}"


def _compare(question: Question) -> Call | None:
    metric = question.take_number()
    if metric and metric.is_metric:
        return None
    question.take(question.rows)
    match [*question.values.items()]:
        case [(name, [first, second])] if not question.period:
            groups = {"group_column": name, "group_a": first, "group_b": second}
            metrics = {"metrics": [metric.name]} if metric else {}
            return Call("compare_data", {**groups, **metrics, "table": question.table.name})
        case _:
            return None


class _Measure(NamedTuple):
    """The number that is asked for, and which groups come first: of the most, or of the least."""

    name: str
    sql: str
    conditions: Sequence[str]
    groups: Sequence[Group]
    order: str = ""


def _measure(question: Question, groups: Sequence[Group]) -> _Measure | None:
    """Return the measure of a question, or `None` if it names nothing to count or to add up."""
    counted = question.take_distinct()
    metric = None if counted else question.take_number()
    flag = question.take_flag()
    places = {name: question.take(stems) for name, stems in _FUNCTIONS.items()}
    functions = [name for name, found in places.items() if found]
    words = [at for found in places.values() for at in found]
    rows = question.take(question.rows)
    is_count = bool(question.take(COUNTING))
    highest, lowest = question.take(HIGHEST), question.take(LOWEST)
    order = "DESC" if highest else "ASC" if lowest else ""
    named = [f"{group.sql} IS NOT NULL" for group in groups if group.is_ranked]
    conditions = [*question.table.conditions, *question.period, *named]
    is_ranking = any(group.is_ranked for group in groups)
    if order and is_ranking and not (metric or flag or counted or rows):
        metric = guess_amount(question.table)  # "the best regions"
    elif functions and question.values and not (metric or flag or counted or rows or is_count):
        metric = question.find_only_number()  # "the total of Rent in Oslo"
    is_flagged = flag is not None
    if flag is not None and (metric is not None or is_count):
        conditions.append(quote_name(flag.name))
        flag = None
    is_share = bool(question.take(_SHARES)) and flag is None
    if metric is not None:
        if metric and any(at - 1 in question.take({"per"}) for at in rows):  # "revenue per order"
            functions = ["AVG"]
        is_price = metric.name.lower().endswith("price")
        if order and not (is_ranking and (functions or not is_price)):
            functions.append("MAX" if order == "DESC" else "MIN")
        function, *more = functions or ["AVG" if is_ratio(metric) else "SUM"]
        is_of_units = any(group.is_time and group.is_each for group in groups)
        if function == "AVG" and is_of_units and not (rows or is_ratio(metric)):
            question.return_places(words)  # of the orders of a month, or of the months?
            return None
        if more or (is_share and function != "SUM") or (function == "SUM" and is_price):
            question.return_places(words)
            return None
        value, name = f"{function}({quote_name(metric.name)})", _NAMES[function] + metric.name
        is_same = not functions or re.fullmatch(rf"{function}\([^()]*\)", metric.metric)
        if metric.is_metric and (is_flagged or is_share or not is_same):
            question.return_places(words)
            return None
        if metric.is_metric or (metric.metric == value and not is_flagged):
            value, name = metric.metric, metric.name
            conditions += metric.conditions
    elif flag is not None:
        value = f"AVG(CASE WHEN {quote_name(flag.name)} THEN 1.0 ELSE 0.0 END)"
        name = f"{flag.name}_share"
    elif counted is not None:
        value, name = f"COUNT(DISTINCT {quote_name(counted.name)})", f"{counted.name}_count"
    elif is_count or (rows and (groups or is_share or functions)):
        value, name = "COUNT(*)", "count"
        # of fewer rows, groups without any would be missing
        is_whole = not question.values and conditions == [*question.table.conditions]
        is_mean = functions == ["AVG"] and is_whole and not is_share
        if is_mean and len(groups) == 1 and groups[0].is_each:
            value, name = _average_count(groups[0])
            conditions.append(f"{groups[0].sql} IS NOT NULL")
            groups = functions = []
    else:
        return None
    allowed = ["SUM"] if flag is None else ["AVG"]
    if metric is None and functions not in ([], allowed):  # "the median number of orders by region"
        question.return_places(words)
        return None
    if order and (len(groups) > 1 if is_ranking else metric is None):
        question.return_places([*highest, *lowest])
        return None  # "the top 3 products by region" needs a window
    order = order if is_ranking else ""  # "the highest total by region" has each region
    values = question.list_values()
    if is_share and groups:
        value = f"{value} / SUM({value}) OVER ()"
    elif is_share and values:
        value, values = f"{value} FILTER (WHERE {' AND '.join(values)}) / {value}", []
    elif is_share:
        return None
    name = f"{name}_share" if is_share else name
    return _Measure(name, value, [*conditions, *values], groups, order)


def _average_count(group: Group) -> tuple[str, str]:
    """Return the SQL and the name of the mean number of rows; units without rows count."""
    number = f"COUNT(DISTINCT {group.sql})"
    if group.is_time:
        number = f"(date_diff('{group.name}', MIN({group.sql}), MAX({group.sql})) + 1)"
    return f"COUNT(*) / {number}", f"average_count_per_{group.name}"


def _aggregate(question: Question, measure: _Measure) -> str:
    groups = measure.groups
    names = [quote_name(group.name) for group in groups]
    columns = [
        name if group.sql == name else f"{group.sql} AS {name}"
        for group, name in zip(groups, names, strict=True)
    ]
    value = quote_name(measure.name)
    sql = (
        f"SELECT {', '.join([*columns, f'{measure.sql} AS {value}'])}\n"
        f"FROM {question.table.sql}{_join_conditions(measure.conditions)}"
    )
    if not groups:
        return sql
    if groups[0].is_time and not measure.order:
        return f"{sql}\nGROUP BY ALL\nORDER BY {', '.join(names)}"
    limit = (question.take_limit() if measure.order else None) or _TOP
    return f"{sql}\nGROUP BY ALL\nORDER BY {value} {measure.order or 'DESC'}\nLIMIT {limit}"


def _join_conditions(conditions: Sequence[str]) -> str:
    return f"\nWHERE {' AND '.join(conditions)}" if conditions else ""


def _name(name: str) -> str:
    return name.replace("_", " ")


def _show(value: object, *others: object) -> str:
    """Return the first value of a column, with the digits of the column."""
    if isinstance(value, float):
        if all(isinstance(it, float) and it.is_integer() for it in (value, *others)):
            return f"{value:,.0f}"
        return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"
    return str(value).removesuffix("T00:00:00")
