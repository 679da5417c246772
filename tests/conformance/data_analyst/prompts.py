"""What the model reads: questions, history, skills, examples, schema, and layers of the prompt."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from copilot_runtime.extensions.analyst.engine.datasets import quote_text
from copilot_runtime.extensions.analyst.guards import OutputGuard, guard_output
from copilot_runtime.extensions.analyst.prompt.context_folder import (
    SqlExample,
    check_examples,
    render_examples,
    select_examples,
)
from copilot_runtime.extensions.analyst.prompt.layers import STATIC, build_layers
from copilot_runtime.extensions.analyst.prompt.prepare import (
    HISTORY_LIMIT,
    Classification,
    HistoryEntry,
    PreparedRequest,
    classify,
    prepare_request,
)
from copilot_runtime.extensions.analyst.prompt.skills import (
    MOST_CHARS,
    Skill,
    find_skill_files,
    load_skills,
    merge_skills,
    render_skills,
    select_skills,
)
from copilot_runtime.extensions.analyst.question import Question, RequestBlocked, guard_question
from copilot_runtime.extensions.analyst.sql.guard import guard_sql
from copilot_runtime.extensions.analyst.sql.rules import Scope
from copilot_runtime.extensions.analyst.tools.call import TOOLS
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts, Prose, Text
from tests.conformance.data_analyst.world import World, build_rules

_CHARS_PER_TOKEN = 4
_LAYERS = {"base", "tools", "duckdb_notes", "capabilities", "safety", "schema", "skills"}


def answer_skills(given: Given, world: World) -> Facts:
    """Read skills, choose some, or write them for the model: as what is given says."""
    if "file" in given:
        return _read_skill(given["file"])
    if "builtin" in given or "custom" in given:
        layers = ([_make_skill(one) for one in given.get(name, [])] for name in _FOLDERS)
        return {"loaded": {name: one.body for name, one in merge_skills(*layers).items()}}
    if "selected" in given:
        text = render_skills([_make_skill(one) for one in given["selected"]])
        return {"injection": text, "text": text, "injection_length": len(text)}
    if "selected_bodies_chars" in given:
        sizes = given["selected_bodies_chars"]
        text = render_skills([Skill(name=f"s{at}", body="x" * n) for at, n in enumerate(sizes)])
        injected = text.count("<skill name=")
        fits = len(text) <= MOST_CHARS
        return {
            "injected": injected,
            "total_cap_chars": MOST_CHARS if fits else len(text),
            "injection_length": len(text),
        }
    skills = [_make_skill(one) for one in given["skills"]]
    limits = [given[name] for name in ("limit", "max_skills") if name in given]
    chosen = select_skills(given["message"], given.get("context") or [], skills, *limits[:1])
    return {"selected": [one.name for one in chosen], "count": len(chosen)}


_FOLDERS = ("builtin", "custom")


def _make_skill(fields: Mapping[str, Any]) -> Skill:
    return Skill(
        name=fields["name"],
        body=fields.get("body", "Do it."),
        description=fields.get("description", ""),
        priority=fields.get("priority", 0),
        triggers=tuple(fields.get("triggers") or ()),
    )


def _read_skill(text: str) -> Facts:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one").mkdir()
        (folder / "one" / "SKILL.md").write_bytes(text.encode())
        (folder / "none").mkdir()
        before = {path.name for path in folder.iterdir()}
        skills = load_skills(find_skill_files(folder), builtin=folder / "none")
        effects = {path.name for path in folder.iterdir()} != before
    facts: dict[str, Any] = {
        "loaded": bool(skills),
        "raises": False,
        "side_effects": effects,
        "skipped": not skills,
    }
    for skill in skills.values():
        names = ("name", "body", "description", "version", "priority")
        facts |= {name: getattr(skill, name) for name in names}
        facts["triggers"] = list(skill.triggers)
        facts["always_on"] = not skill.triggers
    return facts


async def answer_examples(given: Given, world: World) -> Facts:
    """Check examples against the data, and choose those for a question."""
    engine = await world.open_engine()
    rules = build_rules(engine)

    async def check(sql: str) -> None:
        await engine.explain(guard_sql(sql, rules, Scope()))

    examples = [
        SqlExample(
            description=one.get("description") or one.get("question", ""),
            sql=one["sql"],
            triggers=tuple(one.get("triggers") or ()),
            agent=one.get("agent"),
        )
        for one in given["examples"]
    ]
    checked = await check_examples(examples, check)
    limits = {"limit": given["limit"]} if "limit" in given else {}
    chosen = select_examples(
        given["message"],
        given.get("context") or [],
        checked,
        agent_name=given.get("agent_name"),
        **limits,
    )
    text = render_examples(chosen)
    return {
        "selected": [one.description for one in chosen],
        "stale": [one.description for one in checked if one.is_stale],
        "injection": text,
        "text": text,
        "count": len(chosen),
    }


async def answer_schema(given: Given, world: World) -> Facts:
    """Return the schema of a table: of the file, of so many columns, or with such values."""
    statements: list[str] = []
    table = given.get("table", "eval_data")
    if "columns" in given:
        table = "wide"
        columns = given["columns"]
        names = [f"c{at}" for at in range(columns)] if isinstance(columns, int) else columns
        statements.append(f"CREATE TABLE wide({', '.join(f'{name} INTEGER' for name in names)})")
    for name in ("column_values", "cell_value", "cell", "sample_value", "value"):
        if name in given:
            table = "cells"
            found = given[name]
            values = found if isinstance(found, list) else [found]
            rows = ", ".join(f"({quote_text(str(value))})" for value in values)
            statements += ["CREATE TABLE cells(note VARCHAR)", f"INSERT INTO cells VALUES {rows}"]
    agent = given.get("agent_name")
    async with world.build_analyst(*statements) as analyst:
        scope = Scope(agent_name=agent)
        question = Question(message="", dataset_label=table, agent_name=agent)
        session = await analyst.open_session(scope, question=question)
        session.dataset = table
        text = await analyst.describe_schema(session, question, PreparedRequest(message=""))
    return _describe_schema(text)


def _describe_schema(text: str) -> Facts:
    ddl = text.partition("CREATE TABLE")[2].partition("\n);")[0].partition("\n)")[0]
    lines = [line.strip() for line in ddl.splitlines()[1:]]
    declared = [line for line in lines if line and not line.startswith("--")]
    comments = {line.split()[0].strip('",'): Text(line.partition("--")[2]) for line in declared}
    notes = [line for line in lines if line.startswith("--")]
    return {
        "text": text,
        "text_length": len(text),
        "first_lines": Text("\n".join(text.splitlines()[:6])),
        "first_lines_contain": Text("\n".join(text.splitlines()[:6])),
        "column_comment": comments,
        "ddl_columns": len(declared),
        "max_columns": Prose(len(declared) <= 50, len(declared)),
        "note": Text("\n".join(notes)),
        "one_line": all("\n" not in line for line in declared) and not _has_loose_lines(ddl),
        "sample_queries": len(re.findall(r"^SELECT ", _find_section(text), re.MULTILINE)),
    }


def _has_loose_lines(ddl: str) -> bool:
    """Return whether a line of a table's definition is neither a column nor a comment."""
    lines = [line.strip() for line in ddl.splitlines()[1:] if line.strip()]
    return any(not re.match(r'--|"?\w[^"]*"? [A-Z]', line) for line in lines)


def _find_section(text: str, title: str = "## Sample queries") -> str:
    return text.partition(title)[2].partition("\n## ")[0]


def answer_prompt(given: Given, world: World) -> Facts:
    """Return the layers of the prompt for some tools."""
    tools = given["tools"]
    names: Sequence[str] = [*TOOLS] if tools == "all" else tools
    layers = build_layers(names, schema="<schema>\n</schema>", skills="<skills>\n</skills>")
    text = "\n\n".join(layer.text for layer in layers)
    static = "\n\n".join(layer.text for layer in layers if layer.name in STATIC)
    order = [layer.name for layer in layers if layer.name in _LAYERS]
    return {
        "text": text,
        "prompt": text,
        "layer_order": order,
        "contains_sql_dialect_notes": "duckdb_notes" in order,
        "static_tokens": len(static) / _CHARS_PER_TOKEN,
        "static_chars": len(static),
    }


def answer_input(given: Given, world: World) -> Facts:
    """Guard a question; its stream and its status are those of a request over HTTP."""
    message = given["message"]
    facts: dict[str, Any] = {"blocked": False, "response_kind": None}
    try:
        guarded = guard_question(message)
    except RequestBlocked as blocked:
        facts |= {
            "blocked": True,
            "response_kind": blocked.kind,
            "response": blocked.response,
        }
    else:
        facts |= {
            "message": guarded.message,
            "message_length": len(guarded.message),
            "notice": guarded.notice,
            "truncated": bool(guarded.notice),
        }
    if "history" in given:
        prepared = prepare_request("?", given["history"], is_safe=is_safe)
        facts["history_contents"] = "\n".join(
            entry.content for entry in prepared.conversation_history
        )
    return facts | {name: _ask_lazily(message, world, name) for name in ("sse", "http_status")}


def _ask_lazily(message: str, world: World, name: str) -> Callable[[], Awaitable[Any]]:
    """Return what asks over HTTP, if a case wants to know what comes."""

    async def find() -> Any:
        from tests.conformance.data_analyst.streams import ask
        from tests.conformance.data_analyst.world import open_server

        return (await ask(await open_server(world), message))[name]

    return find


def answer_output(given: Given, world: World) -> Facts:
    """Guard an answer, whole or in the pieces in which it comes."""
    if "chunks" in given:
        text = "".join(given["chunks"])
        guard = OutputGuard()
        result = "".join([*map(guard.feed, given["chunks"]), guard.finish()])
    else:
        text = given["text"]
        result = guard_output(text)
    return {"text": result, "output": result, "unchanged": result == text}


def answer_classification(given: Given, world: World) -> Facts:
    """Say what kind of message it is, and whether that blocks anything."""
    judgement = classify(given["message"], has_context=bool(given.get("history")))
    return {
        "classification": judgement.classification,
        "value": judgement.classification,
        "confidence": judgement.confidence,
        "blocked": False,
        "values": list(get_args(Classification)),
    }


def answer_history(given: Given, world: World) -> Facts:
    """Return what of a conversation goes to the model."""
    prepared = prepare_request(
        given["message"],
        given["history"],
        history_limit=given.get("history_limit", HISTORY_LIMIT),
        history_unit=given.get("history_unit", "entries"),
        is_safe=is_safe,
    )
    messages = [*prepared.conversation_history, HistoryEntry("user", prepared.message)]
    contents = [entry.content for entry in messages]
    return {
        "sent_contents": contents,
        "sent": [dict(entry._asdict()) for entry in messages],
        "sent_roles": [entry.role for entry in messages],
        "sent_count": len(contents),
        "text": "\n".join(contents),
    }


def is_safe(message: str) -> bool:
    """Return whether the input guard lets an earlier message pass."""
    try:
        guard_question(message)
    except RequestBlocked:
        return False
    return True
