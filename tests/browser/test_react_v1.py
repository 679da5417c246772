"""The React example in a real browser: what a person of CopilotKit 1.10 sees of us."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.browser.chat import Chat
from tests.browser.fake_model import FakeModel, Turn

pytestmark = pytest.mark.anyio


async def test_an_answer_grows_on_the_page_while_the_model_is_still_speaking(
    chat: Chat, model: FakeModel
):
    shown = asyncio.Semaphore(0)

    async def slowly(turn: Turn) -> None:
        await turn.say("Three tasks")
        await shown.acquire()
        await turn.say(" are left")
        await shown.acquire()
        await turn.say(" to do.")

    model.scripts["What is left?"] = slowly
    await chat.ask("What is left?")
    await chat.sees_answer("Three tasks")
    shown.release()
    await chat.sees_answer("Three tasks are left")
    await chat.keep("half_an_answer")
    shown.release()
    await chat.sees_answer("Three tasks are left to do.")
    await chat.is_ready()

    whole = ["Three tasks", "Three tasks are left", "Three tasks are left to do."]
    assert [text for text in await chat.answers_seen() if text.startswith("Three")] == whole


async def test_an_action_changes_the_page_and_leaves_its_card_in_the_chat(
    chat: Chat, model: FakeModel
):
    async def add(turn: Turn) -> None:
        await turn.call("addTask", title="Water the plants", owner="Ada")

    model.scripts["Ada should water the plants"] = add
    await chat.ask("Ada should water the plants")

    await expect(chat.column("To do")).to_contain_text("Water the plants")
    await expect(chat.card("New task")).to_contain_text('Added "Water the plants".')
    await chat.sees_answer('The board says: Added "Water the plants".')
    await chat.is_ready()


async def test_two_actions_in_one_turn_both_change_the_page(chat: Chat, model: FakeModel):
    async def move(turn: Turn) -> None:
        await turn.call("moveTask", title="Write the release notes", column="done")
        await turn.call("moveTask", title="Order a cake for Friday", column="doing")

    model.scripts["Tidy up"] = move
    await chat.ask("Tidy up")

    await expect(chat.column("Done")).to_contain_text("Write the release notes")
    await expect(chat.column("Doing")).to_contain_text("Order a cake for Friday")
    both = 'Moved "Write the release notes" to done. Moved "Order a cake for Friday" to doing.'
    await chat.sees_answer(f"The board says: {both}")


async def test_an_action_waits_for_a_persons_approval(chat: Chat, model: FakeModel):
    async def remove(turn: Turn) -> None:
        await turn.call("removeTask", title="Renew the certificate")

    model.scripts["Drop the certificate"] = remove
    await chat.ask("Drop the certificate")
    await expect(chat.card("Remove this task?")).to_contain_text("Renew the certificate")
    await expect(chat.column("Done")).to_contain_text("Renew the certificate")
    await chat.keep("waiting_for_approval")
    await chat.page.get_by_role("button", name="Remove", exact=True).click()

    await chat.sees_answer('The board says: Removed "Renew the certificate".')
    await expect(chat.column("Done")).not_to_contain_text("Renew the certificate")


async def test_the_model_sees_the_board(chat: Chat, model: FakeModel):
    await chat.ask("Hello?")
    await chat.sees_answer("Nobody told me what to say to 'Hello?'.")

    system = model.turn("Hello?").body["messages"][0]["content"]
    assert "Book the train to Oslo" in system


async def test_stop_ends_the_answer_and_the_call_of_the_model(chat: Chat, model: FakeModel):
    async def endless(turn: Turn) -> None:
        await turn.say("Once upon a time")
        await asyncio.Event().wait()

    model.scripts["Tell me a story"] = endless
    await chat.ask("Tell me a story")
    await chat.sees_answer("Once upon a time")
    await chat.stop()

    await model.turn("Tell me a story").left.wait()
    await chat.is_ready()
    await chat.sees_answer("Once upon a time")
    await expect(chat.banner()).to_have_count(0)


async def test_after_a_stop_the_next_question_is_answered(chat: Chat, model: FakeModel):
    async def endless(turn: Turn) -> None:
        await turn.say("Once upon a time")
        await asyncio.Event().wait()

    async def short(turn: Turn) -> None:
        await turn.say("Gladly.")

    model.scripts |= {"Tell me a story": endless, "A shorter one": short}
    await chat.ask("Tell me a story")
    await chat.sees_answer("Once upon a time")
    await chat.stop()
    await chat.is_ready()
    await chat.ask("A shorter one")

    await chat.sees_answer("Gladly.")


async def refuse_the_key(turn: Turn) -> None:
    await turn.refuse(401, "Incorrect API key provided: sk-wrong.")


async def test_a_refused_key_shows_a_banner_that_names_the_cause(chat: Chat, model: FakeModel):
    model.scripts["Hello?"] = refuse_the_key
    await chat.ask("Hello?")

    await expect(chat.banner()).to_contain_text("Incorrect API key provided")
    await chat.is_ready()


async def test_copilotkits_own_banner_names_the_cause_too(
    chat: Chat, model: FakeModel, runtime: str
):
    await chat.open(f"{runtime}/?console")
    model.scripts["Hello?"] = refuse_the_key
    await chat.ask("Hello?")

    banner = chat.page.get_by_title("Dismiss").locator("xpath=../..")
    await expect(banner).to_contain_text("Incorrect API key provided")


async def test_after_an_error_the_next_question_is_answered_and_the_banner_is_gone(
    chat: Chat, model: FakeModel
):
    async def well(turn: Turn) -> None:
        await turn.say("Here I am.")

    model.scripts |= {"Hello?": refuse_the_key, "And now?": well}
    await chat.ask("Hello?")
    await expect(chat.banner()).to_be_visible()
    await chat.ask("And now?")

    await chat.sees_answer("Here I am.")
    await expect(chat.banner()).to_have_count(0)


async def test_suggestions_come_from_the_model_and_can_be_asked(chat: Chat, model: FakeModel):
    async def plan(turn: Turn) -> None:
        await turn.say("A cake is ordered already.")

    model.scripts["Plan the party"] = plan
    await chat.page.get_by_role("button", name="Plan the party").click()

    await chat.sees_answer("A cake is ordered already.")


async def test_the_page_asks_nobody_but_its_own_server(chat: Chat, model: FakeModel, runtime: str):
    await chat.ask("Hello?")
    await chat.sees_answer("Nobody told me what to say to 'Hello?'.")

    paths = {url.removeprefix(runtime) for url in chat.requests}
    assert {path for path in paths if not path.startswith("/assets/")} == {"/", "/graphql"}
