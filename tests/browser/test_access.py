"""The page *Access* in Chromium: nobody, a user, and an operator."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.console import sign_in
from tests.extensions.access.credentials import FAR, Entrance, entering, issue_key, settings_of

pytestmark = pytest.mark.anyio


async def open_page(browser: Browser, server: Entrance, width: int = 1100) -> Page:
    page = await browser.new_page(viewport={"width": width, "height": 800})
    await page.goto(f"http://127.0.0.1:{server.port}/access")
    return page


async def test_the_page_shows_what_whoever_looks_may_see(browser: Browser, tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, limits={"tokens_per_user": "200000/day", "runs_at_once_per_user": 3}
    )
    async with entering(tmp_path, settings=settings) as server:
        operator = await issue_key(server.keys, "root", roles=["operator"])
        reader = await issue_key(server.keys, "<b>ann", "acme", roles=["reader"])
        page = await open_page(browser, server)
        await expect(page.locator("#problem")).to_contain_text("Sign in to use this server.")

        await sign_in(page, operator)
        await expect(page.locator("#keys tr")).to_have_count(2)
        await expect(page.locator("#keys")).to_contain_text("<b>ann (acme)")
        await expect(page.locator("#roles tr")).to_have_count(4)
        await expect(page.locator("#limits")).to_contain_text("200,000/day")
        assert operator[21:] not in await page.locator("main").inner_html()

        await sign_in(page, reader)
        await expect(page.locator("#me")).to_contain_text("tenant:acme/<b>ann")
        rows = page.locator("#my-limit-rows tr")
        await expect(rows).to_have_text([re.compile("tokens"), "runs of the user at one time03"])
        await expect(page.locator("#hint")).to_be_visible()
        await expect(page.locator("#keys-box")).to_be_hidden()
        await expect(page.locator("#keys tr")).to_have_count(0)
        await page.close()


async def test_an_operator_makes_and_revokes_a_key_on_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    async with entering(tmp_path) as server:
        operator = await issue_key(server.keys, "root", roles=["operator"])
        page = await open_page(browser, server)
        await sign_in(page, operator)
        await page.get_by_label("Name").fill("ci")
        await page.get_by_role("button", name="Create a key").click()
        await expect(page.locator("#made-key")).to_have_text(re.compile(r"cpk_\w{16}_.{43}"))

        made = page.locator("#keys tr", has_text="ci")
        await made.get_by_role("button", name="Revoke").click()
        await made.get_by_role("button", name="Really revoke?").click()
        await expect(made).to_have_count(0)
        await page.get_by_label("Show those").check()
        await expect(made).to_contain_text("revoked")
        await page.close()


async def test_the_page_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    async with entering(tmp_path) as server:
        text = await issue_key(server.keys, "root", roles=["operator"])
        page = await open_page(browser, server, 390)
        await sign_in(page, text)
        await expect(page.locator("#keys tr")).to_have_count(1)
        width = await page.evaluate("document.documentElement.scrollWidth")
        await page.close()

    assert width <= 390


async def test_every_column_of_the_keys_is_there_on_a_tablet(
    browser: Browser, tmp_path: Path
) -> None:
    async with entering(tmp_path) as server:
        text = await issue_key(server.keys, "root", roles=["operator"])
        fields: Any = {"expires_at": FAR, "scopes": ["threads:read", "threads:write"]}
        for user in ("ann.of.the.library@example.com", "bob"):
            await issue_key(server.keys, user, "acme", roles=["reader"], **fields)
        page = await open_page(browser, server, 765)
        await sign_in(page, text)
        await expect(page.locator("#keys tr")).to_have_count(3)
        table = page.locator(".scroll", has=page.locator("#key-table"))
        hidden = await table.evaluate("it => it.scrollWidth - it.clientWidth")
        await page.close()

    assert hidden == 0
