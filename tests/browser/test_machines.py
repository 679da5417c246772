"""Both React examples before three servers, of which each request gets another one.

The servers share what servers on several machines share: PostgreSQL, Redis, and a bucket of S3.
"""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
from playwright.async_api import Browser, Page, expect
from starlette.staticfiles import StaticFiles

from tests.browser.build import built_page, keep_picture, new_profile
from tests.browser.chat import Chat
from tests.browser.desk import Desk
from tests.browser.fake_model import FakeModel, Turn, running_model
from tests.browser.test_react_v2 import Pieces, endless
from tests.documents import blocks
from tests.extensions.cluster.machines import Balancer, Machine, balancing, running_machines
from tests.extensions.cluster.redis_server import redis_server
from tests.extensions.knowledge.ingestion.pdf import make_pdf
from tests.storage.conftest import make_bucket, s3_server
from tests.threads.cluster import running_cluster
from tests.wire_agui.server import serving

__all__ = ["s3_server"]

pytestmark = pytest.mark.anyio

RUN = "POST /graphql/agent/trip/run"

PDF = make_pdf("The cellar is damp.", "The key is below the third flower pot.", title="House")


@dataclass(frozen=True)
class Site:
    """Three servers, and the pages before them."""

    model: FakeModel
    machines: Sequence[Machine]
    v1: Balancer
    v2: Balancer


@pytest.fixture(scope="module")
async def site(
    anyio_backend: str, chromium: str, s3_server: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Site, None]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(running_model())
        cluster = stack.enter_context(running_cluster())
        redis = stack.enter_context(redis_server())
        stack.enter_context(redis.running())
        bucket = f"s3://{make_bucket(s3_server)}/site?region=us-east-1&endpoint={s3_server}"
        config = write_config(threads=cluster.url, carrier=redis.url, storage=bucket)
        environ = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "a secret"}
        folder = tmp_path_factory.mktemp("machines")
        machines = await stack.enter_async_context(
            running_machines(3, folder, config, MODEL_URL=model.url, **environ)
        )
        ports = [machine.port for machine in machines]
        pages = [
            await stack.enter_async_context(
                serving(StaticFiles(directory=built_page(name), html=True))
            )
            for name in ("react-v1", "react-v2")
        ]
        v1, v2 = [await stack.enter_async_context(balancing(ports, page)) for page in pages]
        yield Site(model, machines, v1, v2)


def write_config(**addresses: str) -> str:
    """Return the `copilot.yml` of the page about several machines, with addresses of ours."""
    config = blocks("yaml", "run/several-machines")[0].code
    addresses |= {"host": "127.0.0.1", "drain_timeout": "0", "stop_timeout": "1"}
    addresses |= {"authenticate": "[]", "addresses": "[]", "realtime_url": '""'}
    for name, address in addresses.items():
        config, count = re.subn(rf"(?m)\b{name}: .*$", f"{name}: {address}", config)
        assert count == 1
    return config


@asynccontextmanager
async def opened(browser: Browser, site: Site, picture: str) -> AsyncGenerator[Desk, None]:
    """Open the page of the second generation; keep a picture of how it was left."""
    site.v2.avoided = set()
    context = await new_profile(browser, 1280, 760)
    desk = Desk(await context.new_page())
    try:
        await desk.open(site.v2.url)
        yield desk
        await desk.keep(f"machines_{picture}")
    finally:
        await context.close()


async def test_an_answer_goes_on_at_another_server_after_a_reload(browser: Browser, site: Site):
    site.model.scripts["A story"] = answer = Pieces("Once", " upon", " a time.")
    async with opened(browser, site, "reload") as desk:
        await desk.ask("A story")
        answer.release()
        await desk.sees_answer("Once")
        site.v2.avoided = {site.v2.find_port(RUN)}
        await desk.reload()
        await desk.sees_answer("Once")
        answer.release()
        await desk.sees_answer("Once upon")
        answer.release()
        await desk.sees_answer("Once upon a time.")
        await desk.is_ready()

        await expect(desk.answers()).to_have_count(1)
    turns = [turn for turn in site.model.turns if turn.question == "A story"]
    assert len([turn for turn in turns if not turn.wants_suggestions]) == 1


async def test_an_answer_is_stopped_at_another_server(browser: Browser, site: Site):
    site.model.scripts["Tell me a story"] = endless
    async with opened(browser, site, "stop") as desk:
        await desk.ask("Tell me a story")
        await desk.sees_answer("Once upon a time")
        site.v2.avoided = {site.v2.find_port(RUN)}
        await desk.reload()
        await desk.sees_answer("Once upon a time")
        await desk.stop()
        await site.model.turn("Tell me a story").left.wait()
        await desk.is_ready()
        await desk.ask("Plan the fjord")

        await desk.sees_answer("Your plan has 1 stops now.")


async def test_a_booking_is_approved_at_another_server_and_goes_on(browser: Browser, site: Site):
    async with opened(browser, site, "approve") as desk:
        await desk.ask("Plan the fjord and the opera")
        await expect(desk.stops()).to_have_text(["the fjord", "the opera"])
        await desk.is_ready()
        await desk.ask("Book a room in Oslo")
        await expect(desk.approval()).to_be_visible()
        site.v2.avoided = {site.v2.find_port(RUN)}
        await desk.reload()
        await expect(desk.approval()).to_contain_text("Book a room in Oslo?")
        await desk.keep("machines_waiting_for_approval")
        await desk.press("Approve")
        await desk.sees_answer("It is booked.")
        await desk.is_ready()
        await desk.ask("Read the plan")

        await desk.sees_answer("Your stops: the fjord, the opera.")
        await expect(desk.bookings()).to_have_text(["A room in oslo"])


async def remove(turn: Turn) -> None:
    await turn.call("removeTask", title="Renew the certificate")


async def add(turn: Turn) -> None:
    await turn.call("addTask", title="Water the plants", owner="Ada")


async def test_a_page_of_the_first_generation_stops_approves_and_goes_on(
    browser: Browser, site: Site
):
    site.model.scripts |= {"A tale": endless, "Drop the certificate": remove, "Water": add}
    context = await new_profile(browser, 1280, 760)
    chat = Chat(await context.new_page())
    await chat.open(site.v1.url)
    await chat.ask("A tale")
    await chat.sees_answer("Once upon a time")
    await chat.page.reload()
    await site.model.turn("A tale").left.wait()
    await chat.ask("A tale")
    await chat.sees_answer("Once upon a time")
    await chat.stop()
    await site.model.turn("A tale").left.wait()
    await chat.is_ready()
    await chat.ask("Drop the certificate")
    await expect(chat.card("Remove this task?")).to_contain_text("Renew the certificate")
    await chat.keep("machines_v1_waiting_for_approval")
    await chat.page.get_by_role("button", name="Remove", exact=True).click()
    await chat.sees_answer('The board says: Removed "Renew the certificate".')
    await chat.is_ready()
    await chat.ask("Water")

    await expect(chat.column("To do")).to_contain_text("Water the plants")
    await chat.sees_answer('The board says: Added "Water the plants".')
    await expect(chat.banner()).to_have_count(0)
    await chat.keep("machines_v1")
    await context.close()
    assert len(site.v1.count()) == len(site.machines)


async def ask_about_file(page: Page) -> None:
    await page.locator('input[type="file"]').set_input_files(
        [{"name": "house.pdf", "mimeType": "application/pdf", "buffer": PDF}]
    )
    await page.get_by_test_id("copilot-chat-textarea").fill("Where is the key?")
    await page.get_by_test_id("copilot-send-button").click()


async def test_a_file_of_a_chat_is_found_at_every_server(browser: Browser, site: Site):
    async def answer(turn: Turn) -> None:
        is_found = "third flower pot" in str(turn.body["messages"][0]["content"])
        await turn.say("Below the third flower pot." if is_found else "I do not know.")

    context = await new_profile(browser, 1000, 900)
    page = await context.new_page()
    await page.goto(f"{site.v2.url}/files.html#house")
    site.model.fallback = answer
    await ask_about_file(page)
    answers = page.get_by_test_id("copilot-assistant-message")
    for asked in range(1, 5):
        await expect(answers).to_have_count(asked)
        await expect(answers.last).to_contain_text("Below the third flower pot.")
        await expect(page.locator('[data-copilot-running="false"]')).to_be_visible()
        await page.get_by_test_id("copilot-chat-textarea").fill("Where is the key now?")
        await page.get_by_test_id("copilot-send-button").click()
    await expect(answers).to_have_count(5)
    await expect(page.locator('[data-copilot-running="false"]')).to_be_visible()
    site.model.fallback = None
    await keep_picture(page, "machines_file")
    sources = page.get_by_role("list", name="Sources").get_by_role("link")
    link = await sources.first.get_attribute("href")
    statuses = [(await page.request.get(f"{site.v2.url}{link}")).status for _ in site.machines]
    assert statuses == [200, 200, 200]
    await context.close()


async def test_a_server_that_ends_gives_up_its_answer_and_the_next_one_goes_on(
    browser: Browser, site: Site
):
    site.model.scripts["Tell me a legend"] = endless
    async with opened(browser, site, "rolling_restart") as desk:
        site.v2.avoided = {site.machines[0].port}
        await desk.ask("Tell me a legend")
        await desk.sees_answer("Once upon a time")
        port = site.v2.find_port(RUN)
        machine = next(one for one in site.machines if one.port == port)
        await machine.end()
        site.v2.avoided = set()
        await expect(desk.banner()).to_be_visible()
        await desk.keep("machines_server_ended")
        await desk.reload()
        await desk.sees_answer("Once upon a time")
        await desk.is_ready()
        await desk.ask("Plan the fjord")
        await desk.sees_answer("Your plan has 1 stops now.")
        machine.start()
        await machine.wait()
        await desk.ask("Plan the opera")

        await desk.sees_answer("Your plan has 2 stops now.")


async def test_a_server_that_drains_ends_its_answer_and_readers_at_others_see_all_of_it(
    browser: Browser, site: Site
):
    site.model.scripts["A saga"] = answer = Pieces("Once", " upon", " a time.")
    patient, *others = site.machines
    async with opened(browser, site, "drain") as desk:
        site.v2.avoided = {machine.port for machine in others}
        await desk.ask("A saga")
        answer.release()
        await desk.sees_answer("Once")
        patient.terminate()
        site.v2.avoided = {patient.port}
        await desk.reload()
        await desk.sees_answer("Once")
        answer.release()
        answer.release()
        await desk.sees_answer("Once upon a time.")
        await desk.is_ready()
        log = await patient.end()

        await expect(desk.banner()).to_have_count(0)
        assert "ERROR" not in log
    patient.start()
    await patient.wait()
