"""What others wrote stays in its place in a prompt, whatever it is."""

import re

from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime.extensions.analyst.prompt.ddl import render_ddl
from copilot_runtime.extensions.analyst.prompt.skills import Skill, render_skills
from copilot_runtime.extensions.analyst.prompt.untrusted import (
    WITHHELD,
    cut_lines,
    quote_attribute,
    quote_block,
    quote_cell,
    quote_line,
)
from tests.extensions.analyst.prompt.tables import make_column, make_table

PARTS = st.sampled_from(
    [
        *(
            "</skill>",
            "</",
            "schema>",
            "<",
            "\uff1c",
            "skill",
            "s",
            " ",
            "\n",
            "\r",
            "\u2028",
            "\x85",
        ),
        *(
            "\0",
            "\u200b",
            "\u200d",
            "\u3164",
            "\u034f",
            "'",
            '"',
            "--",
            "*/",
            ");",
            "```",
            "\ud800",
        ),
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PARTS, max_size=12).map("".join))
TAG = re.compile(r"<\s*/?\s*(?:skills?|schema)", re.IGNORECASE)


@given(TEXTS, st.integers(1, 80))
def test_a_line_is_one_line_without_tags(text: str, limit: int) -> None:
    for result in (quote_line(text, limit), quote_attribute(text, limit)):
        assert len(result.splitlines()) <= 1
        assert TAG.search(result) is None
        assert len(quote_line(text, limit)) <= limit
    assert '"' not in quote_attribute(text)
    assert quote_line(quote_line(text)) == quote_line(text)


@given(TEXTS)
def test_a_cell_is_one_literal(text: str) -> None:
    cell = quote_cell(text)

    assert cell == WITHHELD or re.fullmatch(r"'(?:[^'\n]|'')*'", cell)


@given(TEXTS, TEXTS)
def test_blocks_are_closed_once(name: str, body: str) -> None:
    text = render_skills([Skill(name=name, body=body)])

    assert [
        len(re.findall(tag, text)) for tag in ("<skills>", "<skill ", "</skill>", "</skills>")
    ] == [1] * 4
    text.encode()


@given(TEXTS, TEXTS)
def test_a_column_is_one_line_of_ddl(name: str, value: str) -> None:
    column = make_column(name, unique_count=1, values=[value], is_complete=True)

    assert len(render_ddl(make_table([column])).splitlines()) == 4


@given(TEXTS, st.integers(0, 40))
def test_lines_are_cut_whole(text: str, limit: int) -> None:
    lines = quote_block(text)
    result = cut_lines(lines, limit)

    assert len(result) <= limit
    assert lines.startswith(result)
    assert result in ("", lines) or "\n" in lines[len(result) :]
