"""A terminal shows bold text and links that it can open; a pipe gets Markdown. Code is left."""

import sys

import pytest

from copilot_runtime.api.events import TextMessageContent, TextMessageEnd
from copilot_runtime.cli.screen import Screen
from tests.in_one_test import in_one_test

CODE = "Use `[a](/b) **c**` or ``[`](/d)``:\n```js\nf[0](/x/) // **no**\n```\n"
TEXT = f"{CODE}The **best** is *x* in [A](/graphql/a). 2**3 and 4**5\n* a **b\n[c](http://d) **"
LINKS = TEXT.replace("(/graphql", "(http://127.0.0.1:8000/graphql")


@in_one_test("size", [1, 3, 1000])
@in_one_test(
    ("is_terminal", "text"),
    [(True, LINKS.replace("**best**", "\x1b[1mbest\x1b[22m")), (False, LINKS)],
)
def test_bold_text_and_links_are_found_in_chunks_of_any_size_but_not_in_code(
    is_terminal: bool,
    text: str,
    size: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    screen = Screen("http://127.0.0.1:8000/graphql")
    for start in range(0, len(TEXT), size):
        screen.show(TextMessageContent(message_id="m", content=TEXT[start : start + size]))
    screen.show(TextMessageEnd(message_id="m"))

    assert capsys.readouterr().out == f"{text}\n"
