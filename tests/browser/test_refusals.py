"""Who may not ask, or not now: unchanged pages of both generations say it as a sentence."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from copilot_runtime import CopilotRuntime, Events, RunInput
from copilot_runtime.adapters.scripted import say
from copilot_runtime.api.budget import Cost
from copilot_runtime.api.identity import Identity
from copilot_runtime.extensions.access.api_keys.sqlite import SqliteKeys
from copilot_runtime.extensions.access.limits.limiter import Limiter
from tests.browser.build import built_page, new_profile, one_origin
from tests.browser.chat import Chat
from tests.browser.desk import Desk
from tests.extensions.access.credentials import KEY, issue_key, settings_of
from tests.wire_agui.server import Parrot, serving

pytestmark = pytest.mark.anyio

LIMITED = Identity(user="eve")
SENTENCES = {
    "nobody": "Sign in to use this server.",
    "unscoped": "You may not do this: it needs the scope 'runs:start'.",
    "unknown": "Sign-in is unavailable: the signing keys cannot be read.",
    "limited": "You have used up 1 token in 1 hour. Please try again in",
}


async def echo(run: RunInput) -> Events:
    for event in say("Hello.", id=f"m-{run.run_id}"):
        yield event


@asynccontextmanager
async def serve(page: str, folder: Path) -> AsyncGenerator[tuple[str, dict[str, str]], None]:
    """Serve a page; return its address, and a token for each refusal, and for none."""
    jwt = {"jwks": "http://127.0.0.1:1/keys", "audience": ["copilot"]}
    settings = settings_of(folder, jwt=jwt, limits={"tokens_per_user": "1/hour"})
    keys = SqliteKeys(folder / "access.db")
    runtime = CopilotRuntime(Parrot(), settings=settings, agents={"trip": echo})
    async with serving(one_origin(built_page(page), runtime), proxy_headers=False) as port:
        await runtime.get(Limiter).open_budget(LIMITED, LIMITED.owner).settle(Cost(11))
        tokens = {
            "": await issue_key(keys, "ann"),
            "nobody": "",
            "unscoped": await issue_key(keys, "ann", scopes=["threads:read", "data:read"]),
            "unknown": KEY.sign(),
            "limited": await issue_key(keys, "eve"),
        }
        yield f"http://127.0.0.1:{port}", tokens
    await keys.aclose()


@pytest.mark.parametrize(("name", "kind"), [("react-v1", Chat), ("react-v2", Desk)])
async def test_every_refusal_is_a_sentence_on_the_page(
    name: str, kind: type[Chat | Desk], browser: Browser, tmp_path: Path
) -> None:
    async with serve(name, tmp_path) as (address, tokens):
        context = await new_profile(browser, 1280, 760)
        page = kind(await context.new_page())

        async def sign_in(token: str) -> None:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            await page.page.set_extra_http_headers(headers)

        await sign_in(tokens[""])
        await page.open(address)
        for who, sentence in SENTENCES.items():
            await sign_in(tokens[who])
            await page.ask(f"Hello, {who}?")
            alerts = page.page.get_by_role("alert").filter(has_text=sentence)
            await expect(alerts.first).to_be_visible()
            await page.is_ready()
        await expect(page.page.get_by_text("[object Object]")).to_have_count(0)
        await page.keep(f"refusals_{name}")
        await context.close()
