"""The analyst in a real browser: charts, repairs, questions back, approvals, files, a stop."""

import asyncio
import csv
import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import pytest
from playwright.async_api import Browser, Locator, Page, expect
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime import CopilotRuntime, OpenAIAdapter, Settings
from copilot_runtime.extensions.analyst.engine.engine import Engine
from tests.browser.build import built_page, keep_picture, new_profile, one_origin
from tests.browser.fake_model import FakeModel, Turn, running_model
from tests.test_examples import EXAMPLES, load_example
from tests.wire_agui.server import serving

pytestmark = pytest.mark.anyio

ORDERS = EXAMPLES / "analyst" / "data" / "orders.parquet"

CHART = "Show revenue by month and store as a chart"
REPAIR = "Which products come back most often?"
COMPARE = "Which bot is better?"
EXPORT = "Export the orders of June 2026 as CSV"
HEAVY = "How many triples of orders are there?"
STORES = "How many orders does each store have?"

JUNE = "SELECT order_id, product, revenue FROM orders WHERE ordered_at >= DATE '2026-06-01'"

ANSWERS: dict[str, tuple[str, dict[str, Any], str]] = {
    CHART: (
        "plot_data",
        {
            "chart_type": "line",
            "sql": "SELECT date_trunc('month', ordered_at) AS month, store, SUM(revenue) AS revenue"
            "\nFROM orders\nWHERE NOT returned\nGROUP BY ALL\nORDER BY month",
            "x_column": "month",
            "y_column": "revenue",
            "series_column": "store",
            "title": "Revenue by month and store",
        },
        "Revenue grew from **£22,858** in January 2025 to **£36,517** in June 2026. Every summer "
        "is better than the winter before, and the web shop sells more than both shops together.",
    ),
    REPAIR: (
        "run_sql",
        {
            "sql": "SELECT product, COUNT(*) AS orders, "
            "AVG(CASE WHEN is_returned THEN 1.0 ELSE 0.0 END) AS return_rate\n"
            "FROM orders\nWHERE order_date >= DATE '2026-02-01'\n"
            "GROUP BY product\nORDER BY return_rate DESC"
        },
        "The **Trail lantern**: since February 2026, about every fifth came back.",
    ),
    EXPORT: ("download_data", {"sql": JUNE, "filename": "june"}, "Here are the orders of June."),
    HEAVY: (
        "run_sql",
        {"sql": "SELECT COUNT(*) FROM orders a, orders b, orders c WHERE a.cost < b.cost + c.cost"},
        "Many.",
    ),
    STORES: (
        "run_sql",
        {"sql": "SELECT store, COUNT(*) AS orders FROM orders GROUP BY store ORDER BY store"},
        "These are your stores.",
    ),
}

QUESTION = "Do you mean the more faithful or the faster one?"
OPTIONS = ["The more faithful one", "The faster one"]


class DataModel(FakeModel):
    """Calls one tool for each question, and says a sentence when it has the result."""

    async def answer(self, turn: Turn) -> None:
        if turn.question == COMPARE:
            await turn.say("\n".join([QUESTION, "", *(f"- {option}" for option in OPTIONS)]))
        elif turn.question in OPTIONS:
            await turn.say("The order bot is more faithful.")
        else:
            tool, arguments, said = ANSWERS[turn.question]
            if turn.results:
                await turn.say("Then not." if "declined" in turn.results[-1] else said)
            else:
                await turn.call(tool, **arguments)
        await turn.finish()


class Analyst:
    """One open page of the example."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.thoughts = page.get_by_role("region", name="Thoughts").last
        self.approval = page.get_by_role("group", name="Approval")
        self.data = page.get_by_role("region", name="Data", exact=True)
        self.foreign: list[str] = []
        page.on("request", self._note)

    def _note(self, request: Any) -> None:
        if "//127.0.0.1:" not in request.url and request.url.startswith("http"):
            self.foreign.append(request.url)

    async def ask(self, text: str) -> None:
        await self.page.get_by_test_id("copilot-chat-textarea").fill(text)
        await self.page.get_by_test_id("copilot-send-button").click()

    async def press(self, button: str) -> None:
        await self.page.get_by_role("button", name=button, exact=True).last.click()

    async def sees_answer(self, text: str) -> None:
        answer = self.page.get_by_test_id("copilot-assistant-message").last
        await expect(answer).to_contain_text(text)

    async def is_idle(self) -> None:
        """Wait until the answer is whole."""
        await expect(self.page.get_by_test_id("copilot-send-button")).to_be_visible()
        await expect(self.thoughts.get_by_role("button", name="Stop")).to_be_hidden()

    def figure(self, name: str) -> Locator:
        return self.page.get_by_role("figure", name=name)

    async def read_cells(self, column: int) -> list[str]:
        """Return the cells of a column of the last table."""
        table = self.page.get_by_role("table").last
        return await table.locator(f"tbody td:nth-child({column})").all_inner_texts()


def read_cookie(connection: HTTPConnection) -> str | None:
    return connection.cookies.get("user")


class Site:
    """The example behind a real socket, with a model that is told what to do."""

    def __init__(self, browser: Browser, engine: Engine) -> None:
        self.browser = browser
        self.engine = engine
        self.port = 0
        self.stopped_at = 0.0
        """When the last request to stop a run arrived."""

    def watch(self, app: ASGIApp) -> ASGIApp:
        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if "/stop/" in scope.get("path", ""):
                self.stopped_at = perf_counter()
            await app(scope, receive, send)

        return watched

    @asynccontextmanager
    async def open(
        self, width: int = 1280, height: int = 900, *, user: str = "ann", dark: bool = False
    ) -> AsyncGenerator[Analyst, None]:
        """Yield a page of somebody in a profile of their own."""
        context = await new_profile(self.browser, width, height)
        address = f"http://127.0.0.1:{self.port}"
        await context.add_cookies([{"name": "user", "value": user, "url": address}])
        try:
            page = await context.new_page()
            if dark:
                await page.emulate_media(color_scheme="dark")
            analyst = Analyst(page)
            await page.goto(f"{address}/analyst.html#thread-{user}")
            yield analyst
            assert analyst.foreign == []
        finally:
            await context.close()


async def open_site(browser: Browser, **changes: Any) -> AsyncGenerator[Site, None]:
    settings = load_example("analyst", "server").ANALYST | changes
    async with running_model(DataModel()) as model:
        runtime = CopilotRuntime(
            OpenAIAdapter(model="gpt-4o", base_url=f"{model.url}/v1", api_key="sk-wrong"),
            settings=Settings.model_validate({"threads": "memory", "analyst": settings}),
            authenticate=read_cookie,
        )
        site = Site(browser, find_engine(runtime))
        app = runtime.app(path="/graphql")
        async with serving(site.watch(one_origin(built_page("react-v2"), app))) as site.port:
            yield site


def find_engine(runtime: CopilotRuntime) -> Engine:
    agents: Any = runtime.runtime.agents
    return agents["analyst"].analyst.engine


@pytest.fixture
async def site(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Site, None]:
    monkeypatch.chdir(tmp_path)  # copies of the data go there
    async for site in open_site(browser):
        yield site


@pytest.fixture
async def filtered_site(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Site, None]:
    monkeypatch.chdir(tmp_path)
    async for site in open_site(browser, row_filters={"orders": "manager = $user"}):
        yield site


async def test_a_question_gets_a_chart_whose_numbers_can_be_checked(site: Site) -> None:
    async with site.open() as analyst:
        await expect(analyst.data).to_contain_text("6,247")
        await keep_picture(analyst.page, "analyst-welcome")
        await analyst.ask(CHART)
        chart = analyst.figure("Revenue by month and store")
        await expect(chart.locator("svg path.mark-line, svg .mark-line path")).to_have_count(3)
        await analyst.sees_answer("Revenue grew from £22,858")
        await analyst.is_idle()
        await chart.scroll_into_view_if_needed()
        await keep_picture(analyst.page, "analyst-chart")

        await analyst.press("Numbers")
        await expect(chart.get_by_role("row")).to_have_count(1 + 3 * 18)
        await analyst.press("Chart")
        badge = analyst.page.get_by_text("Verified", exact=True)  # it is SQL of a metric
        await badge.click()
        await expect(analyst.page.get_by_text("date_trunc(").last).to_be_visible()
        await expect(analyst.page.locator(".source")).to_contain_text("6,247 rows")
        await expect(analyst.page.locator(".source")).to_contain_text("Metric")
        await analyst.page.locator(".source").scroll_into_view_if_needed()
        await keep_picture(analyst.page, "analyst-sql")

        await analyst.page.reload()
        await analyst.sees_answer("Revenue grew from £22,858")
        await expect(chart.locator("svg")).to_be_visible()
        await expect(badge).to_be_visible()


async def test_a_wrong_column_repairs_itself_and_the_table_sorts(site: Site) -> None:
    async with site.open(dark=True) as analyst:
        await analyst.ask(REPAIR)
        await analyst.sees_answer("The Trail lantern")
        await analyst.is_idle()
        await analyst.thoughts.get_by_role("button").first.click()
        await expect(analyst.thoughts).to_contain_text("Auto-corrected SQL (1/2)")
        await expect(analyst.thoughts).to_contain_text("ordered_at")
        await keep_picture(analyst.page, "analyst-repair-dark")

        assert (await analyst.read_cells(1))[0] == "Trail lantern"
        heading = analyst.page.get_by_role("columnheader", name="product")
        await heading.get_by_role("button").press("Enter")
        await expect(heading).to_have_attribute("aria-sort", "ascending")
        products = await analyst.read_cells(1)
        assert products == sorted(products)
        assert products[0] == "Camp stove"


async def test_an_ambiguous_question_is_asked_back_with_buttons(site: Site) -> None:
    async with site.open(390, 844) as analyst:
        await analyst.ask(COMPARE)
        options = analyst.page.get_by_role("group", name=QUESTION)
        await expect(options.get_by_role("button")).to_have_text(OPTIONS)
        assert not await analyst.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        await keep_picture(analyst.page, "analyst-question-narrow")

        await analyst.press(OPTIONS[0])
        await analyst.sees_answer("The order bot is more faithful.")
        await expect(options.get_by_role("button", pressed=True)).to_have_text(OPTIONS[0])
        await expect(options.get_by_role("button").first).to_be_disabled()

        await analyst.press("Data")
        await expect(analyst.data).to_be_visible()
        await keep_picture(analyst.page, "analyst-data-narrow")


async def test_a_large_file_is_made_after_an_approval_and_has_the_right_rows(site: Site) -> None:
    async with site.open() as analyst:
        await analyst.ask(EXPORT)
        await expect(analyst.approval).to_contain_text("391 rows")
        await analyst.page.reload()  # the question is still there
        await expect(analyst.approval).to_contain_text("391 rows")
        await keep_picture(analyst.page, "analyst-approval")
        await analyst.press("Approve")

        card = analyst.page.get_by_role("group", name="Download june.csv")
        await expect(card).to_contain_text("391 rows · 3 columns")
        await analyst.sees_answer("Here are the orders of June.")
        await keep_picture(analyst.page, "analyst-download")
        async with analyst.page.expect_download() as started:
            await card.get_by_role("link", name="Download").click()
        file = await started.value
        assert file.suggested_filename == "june.csv"
        text = (await asyncio.to_thread(Path(await file.path()).read_bytes)).decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text)))
        sql = JUNE.replace("orders", f"'{ORDERS}'")
        expected = duckdb.connect().execute(sql).fetchall()
        assert rows[0] == ["order_id", "product", "revenue"]
        assert sorted(map(tuple, rows[1:])) == sorted(tuple(map(str, row)) for row in expected)


async def test_what_a_person_declines_is_not_made(site: Site) -> None:
    async with site.open() as analyst:
        await analyst.ask(EXPORT)
        await analyst.press("Decline")
        await analyst.sees_answer("Then not.")
        await expect(analyst.page.get_by_role("link", name="Download")).to_have_count(0)


async def test_a_stop_interrupts_the_query_that_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, ended = asyncio.Event(), asyncio.Event()
    times: list[float] = []
    run = site.engine.run

    async def watched(*arguments: Any, **options: Any) -> Any:
        started.set()
        try:
            return await run(*arguments, **options)
        finally:
            times.append(perf_counter())
            ended.set()

    monkeypatch.setattr(site.engine, "run", watched)
    async with site.open() as analyst:
        await expect(analyst.data).to_be_visible()
        await analyst.ask(HEAVY)
        await expect(analyst.thoughts).to_contain_text("Running SQL")
        await asyncio.wait_for(started.wait(), 60)
        await keep_picture(analyst.page, "analyst-running")
        ended.clear()
        await analyst.press("Stop")
        await asyncio.wait_for(ended.wait(), 60)
        await site.engine.wait_idle()
        # 0.14 s on two quiet cores; the query itself may take 30
        assert times[-1] - site.stopped_at < 10
        await expect(analyst.thoughts).to_contain_text("Stopped")

        await analyst.ask(STORES)
        await analyst.sees_answer("These are your stores.")


async def test_two_people_see_their_own_rows(filtered_site: Site) -> None:
    async with filtered_site.open(user="ann") as ann, filtered_site.open(user="ben") as ben:
        for page in (ann, ben):
            await page.ask(STORES)
        for page in (ann, ben):
            await page.sees_answer("These are your stores.")
            await page.is_idle()
        assert await ann.read_cells(1) == ["Online"]
        assert await ben.read_cells(1) == ["Harbour", "Market Square"]
        count = duckdb.connect().execute(f"SELECT count(*) FROM '{ORDERS}' WHERE manager = 'ann'")
        (online,) = count.fetchall()[0]
        assert await ann.read_cells(2) == [f"{online:,}"]
        await expect(ann.data).to_contain_text(f"{online:,}")
        await expect(ben.data).to_contain_text(f"{6_247 - online:,}")
        await keep_picture(ben.page, "analyst-own-rows")
