"""A chat with files in a real browser: CopilotKit 1.74, a PDF, a table, and two people."""

import asyncio
import re
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import uvicorn
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, OpenAIAdapter, Settings
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.storage import LocalStorage
from tests.browser.build import built_page, keep_picture, new_profile, one_origin
from tests.browser.fake_model import FakeModel, Script, Turn
from tests.extensions.knowledge.ingestion.pdf import make_pdf
from tests.extensions.knowledge.uploads.chat import CSV, EXE, find_files

pytestmark = pytest.mark.anyio

QUESTION = "Where is the key, and what does a quince cost?"
PDF = make_pdf("The cellar is damp.", "The key is below the third flower pot.", title="House")


_WATCH_FILES = """
  window.filesSeen = [];
  new MutationObserver(() => {
    const list = document.querySelector('[aria-label="Files"]');
    if (list) window.filesSeen.push(list.innerText);
  }).observe(document, { subtree: true, childList: true, characterData: true });
"""


class Anything(dict[str, Script]):
    """One answer to whatever is asked: in questions with files are lines that name them."""

    def __init__(self, answer: Script) -> None:
        super().__init__()
        self._answer = answer

    def __contains__(self, question: object) -> bool:
        return True

    def __getitem__(self, question: str) -> Script:
        return self._answer


def read_cookie(connection: HTTPConnection) -> str | None:
    return connection.cookies.get("user")


class Site:
    """A server with knowledge, and where it is."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    async def list_stored(self) -> list[str]:
        """Return the files of the storage that have to do with an upload."""
        return await asyncio.to_thread(find_files, self.folder, b"flower pot")


@pytest.fixture
async def site(
    anyio_backend: str, chromium: str, model: FakeModel, tmp_path: Path
) -> AsyncGenerator[Site, None]:
    page = built_page("react-v2")
    runtime = CopilotRuntime(
        OpenAIAdapter(model="gpt-4o", base_url=f"{model.url}/v1", api_key="sk-wrong"),
        knowledge=Knowledge(LocalStorage(tmp_path / "knowledge")),
        settings=Settings(threads="memory"),
        authenticate=read_cookie,
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(one_origin(page, runtime), log_level="warning")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield Site(f"http://127.0.0.1:{listener.getsockname()[1]}", tmp_path / "knowledge")
        server.should_exit = True
        await serving


async def sign_in(browser: Browser, site: Site, user: str) -> tuple[BrowserContext, Page]:
    """Return the page of a person in a profile of their own."""
    context = await new_profile(browser, 1000, 900)
    await context.add_cookies([{"name": "user", "value": user, "url": site.url}])
    page = await context.new_page()
    await page.goto(f"{site.url}/files.html#shared-id")
    await expect(page.get_by_test_id("copilot-chat-textarea")).to_be_visible()
    return context, page


async def ask(page: Page, text: str, *files: tuple[str, str, bytes]) -> None:
    if files:
        await page.locator('input[type="file"]').set_input_files(
            [{"name": name, "mimeType": kind, "buffer": data} for name, kind, data in files]
        )
    await page.get_by_test_id("copilot-chat-textarea").fill(text)
    await page.get_by_test_id("copilot-send-button").click()


def files_of(page: Page) -> Locator:
    return page.get_by_role("list", name="Files").get_by_role("listitem")


def sources_of(page: Page) -> Locator:
    return page.get_by_role("list", name="Sources").get_by_role("link")


async def test_a_pdf_and_a_table_are_read_and_cited_and_go_with_their_thread(
    browser: Browser, site: Site, model: FakeModel
) -> None:
    async def answer(turn: Turn) -> None:
        if "flower pot" not in str(turn.body):
            await turn.say("I do not know.")
            return
        system = turn.body["messages"][0]["content"]
        assert "third flower pot" in system
        assert "quince; price: 41 crowns" in system
        assert "JVBERi" not in str(turn.body)  # the PDF itself, as base64
        cited = dict(re.findall(r'title="(.+?)" cite="(.+?)"', system))
        pot, price = cited["house.pdf, page 2"], cited["prices.csv"]
        await turn.say(f"Below the third flower pot {pot}; 41 crowns {price}.")

    model.scripts = Anything(answer)
    context, page = await sign_in(browser, site, "ann")
    try:
        await page.evaluate(_WATCH_FILES)
        await ask(
            page,
            QUESTION,
            ("house.pdf", "application/pdf", PDF),
            ("prices.csv", "text/csv", CSV),
        )
        await expect(files_of(page)).to_have_text(
            ["house.pdf can be asked about", "prices.csv can be asked about"]
        )
        await expect(page.get_by_text("Below the third flower pot")).to_be_visible()
        assert any("is being read" in text for text in await page.evaluate("window.filesSeen"))
        await keep_picture(page, "files_answered")

        async with context.expect_page() as opening:
            await page.get_by_role("link", name="2", exact=True).click()
        source = await opening.value
        await expect(source.locator("body")).to_contain_text("third flower pot")
        await keep_picture(source, "files_source")
        link = source.url
        await source.close()
        titles = await sources_of(page).all_inner_texts()
        assert "house.pdf, page 2" in titles
        assert "prices.csv" in titles

        other, theirs = await sign_in(browser, site, "eve")
        await ask(theirs, QUESTION)
        await expect(theirs.get_by_text("I do not know.")).to_be_visible()
        assert (await theirs.request.get(link)).status == 404
        search = f"{site.url}/graphql/knowledge/search?q=third+flower+pot"
        assert (await (await theirs.request.get(search)).json())["results"] == []
        assert (await (await page.request.get(search)).json())["results"] != []
        await keep_picture(theirs, "files_of_another")
        await other.close()

        assert await site.list_stored() != []
        deleted = await page.request.delete(f"{site.url}/graphql/threads/shared-id")
        assert deleted.ok
        assert await site.list_stored() == []
        assert (await page.request.get(link)).status == 404
    finally:
        await keep_picture(page, "files_last")
        await context.close()


async def test_a_program_in_disguise_is_refused_with_a_sentence(
    browser: Browser, site: Site, model: FakeModel
) -> None:
    async def answer(turn: Turn) -> None:
        await turn.say("I cannot open that.")

    model.scripts = Anything(answer)
    context, page = await sign_in(browser, site, "ann")
    try:
        await ask(page, "What is in it?", ("invoice.pdf", "application/pdf", EXE))

        await expect(files_of(page)).to_contain_text(["invoice.pdf was refused"])
        await expect(page.get_by_text("I cannot open that.")).to_be_visible()
    finally:
        await keep_picture(page, "files_refused")
        await context.close()
