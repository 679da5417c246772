"""What a runtime knows, in Chromium: answers with sources that open, and the page *Knowledge*."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Request, expect
from starlette.requests import HTTPConnection

from copilot_runtime import CopilotRuntime, DemoAdapter, Settings
from copilot_runtime.base.errors import AuthenticationFailed
from tests.browser.console import answer, opened, say, served, sign_in
from tests.extensions.knowledge.library import library, write_pages

pytestmark = pytest.mark.anyio


def a_library(folder: Path, authenticate: object = None) -> CopilotRuntime:
    pages = write_pages(folder)
    (pages / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    return CopilotRuntime(
        DemoAdapter(pace=0),
        knowledge=library(pages),
        authenticate=authenticate,  # pyright: ignore[reportArgumentType]  # one of the functions below
        settings=Settings(threads="memory"),
    )


def need_key(connection: HTTPConnection) -> str:
    if connection.headers.get("authorization") != "Bearer key":
        raise AuthenticationFailed("Who are you?")
    return "ann"


def list_failures(request: Request) -> list[str]:
    """Return the URL, but not of what was under way as a page was left."""
    return [] if request.failure == "net::ERR_ABORTED" else [request.url]


async def test_an_answer_has_sources_that_open(browser: Browser, tmp_path: Path) -> None:
    async with served(a_library(tmp_path)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}knowledge")
        await expect(page.locator("#status")).to_contain_text("ready, 4 resources")
        await page.get_by_role("link", name="Chat").click()
        await say(page, "For how many weeks are books lent?")

        await expect(answer(page)).to_contain_text("Books are lent for four weeks.")
        await expect(page.get_by_role("list", name="Sources")).to_contain_text("House rules")
        async with context.expect_page() as new_page:
            await answer(page).get_by_role("link", name="House rules").click()
        source = await new_page.value
        await expect(source.get_by_role("heading", level=1)).to_contain_text("House rules")
        await expect(source.locator("table")).to_contain_text("rules.md")


async def test_the_page_knowledge_shows_what_there_is_and_what_failed(
    browser: Browser, tmp_path: Path
) -> None:
    problems: list[str] = []
    async with served(a_library(tmp_path)) as url, opened(browser) as context:
        page = await context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("requestfailed", lambda request: problems.extend(list_failures(request)))
        await page.goto(url)
        await page.get_by_role("link", name="Knowledge").click()

        await expect(page.locator("#status")).to_contain_text("ready, 4 resources")
        await expect(page.locator("#sources .failed")).to_contain_text("broken.pdf")
        await expect(page.locator("#ontology")).to_be_visible()
        width = "image => image.clientWidth"
        fitting = await page.locator("#ontology").evaluate(width)
        await page.get_by_role("button", name="Zoom in").click()
        assert await page.locator("#ontology").evaluate(width) > fitting > 100
        await page.get_by_role("button", name="Zoom out").click()
        assert await page.locator("#ontology").evaluate(width) == fitting
        await expect(page.locator("#list li")).to_have_count(4)

        await page.get_by_role("searchbox").fill("head librarian Ada")
        await page.keyboard.press("Enter")
        await page.locator("#results").get_by_role("button", name="Ada Byron").click()
        await expect(page.locator("#resource-text")).to_contain_text("head librarian")
        await expect(page.locator("#provenance")).to_contain_text("library.html")
    assert problems == []


async def test_who_has_to_sign_in_can_do_so_on_the_page(browser: Browser, tmp_path: Path) -> None:
    async with served(a_library(tmp_path, need_key)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}knowledge")

        await expect(page.locator("#problem")).to_contain_text("Who are you?")
        await expect(page.locator("body")).not_to_contain_text("library.html")
        await sign_in(page, "Bearer key")
        await expect(page.locator("#sources")).to_contain_text("library.html")


async def test_texts_without_classes_have_a_sentence_in_place_of_a_picture(
    browser: Browser, tmp_path: Path
) -> None:
    runtime = a_library(tmp_path)
    (tmp_path / "pages" / "library.html").unlink()
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}knowledge")

        await expect(page.locator("#no-ontology")).to_be_visible()
        await expect(page.locator("#no-ontology")).to_contain_text("there are no classes")
        await expect(page.locator("#ontology")).to_be_hidden()


async def test_another_login_takes_away_what_the_first_one_saw(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(a_library(tmp_path, need_key)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}knowledge")
        await sign_in(page, "Bearer key")
        await expect(page.locator("#status")).to_contain_text("ready, 4 resources")
        await page.get_by_role("searchbox").fill("head librarian Ada")
        await page.keyboard.press("Enter")
        await expect(page.locator("#results")).to_contain_text("Ada Byron")

        await sign_in(page, "Bearer of no key")

        await expect(page.locator("#problem")).to_contain_text("Who are you?")
        await expect(page.locator("#results-box")).to_be_hidden()
        await expect(page.locator("body")).not_to_contain_text("Ada Byron")
        await expect(page.locator("body")).not_to_contain_text("library.html")


async def test_of_many_files_those_come_first_that_were_not_read_well(
    browser: Browser, tmp_path: Path
) -> None:
    runtime = a_library(tmp_path)
    for number in range(60):
        (tmp_path / "pages" / f"note-{number:02}.txt").write_text(f"Note {number}.")
    async with served(runtime) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(f"{url}knowledge")

        await expect(page.locator("#sources tr")).to_have_count(10)
        await expect(page.locator("#sources tr").first).to_contain_text("broken.pdf")
        await page.get_by_role("button", name="Show all").click()
        await expect(page.locator("#sources")).to_contain_text("note-59.txt")


async def test_files_are_attached_and_read_on_the_page_itself(
    browser: Browser, tmp_path: Path
) -> None:
    async with served(a_library(tmp_path)) as url, opened(browser) as context:
        page = await context.new_page()
        await page.goto(url)
        files = [
            ("offer.md", "# Offer\n\nA barrel costs 61 euros."),
            ("hours.txt", "Open at nine."),
        ]
        await page.locator("#file").set_input_files(
            [
                {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
                for name, text in files
            ]
        )
        await expect(page.locator("#attached")).to_contain_text("offer.md")
        await page.locator("#attached").get_by_role("button", name="Remove").nth(1).click()
        await expect(page.locator("#attached")).not_to_contain_text("hours.txt")
        await say(page, "What does a barrel cost?")

        await expect(answer(page)).to_contain_text("A barrel costs 61 euros.")
        await expect(page.locator(".user")).to_contain_text("offer.md")
