import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copilot_runtime import CopilotRuntime, Settings
from copilot_runtime.adapters import pricing
from copilot_runtime.adapters.demo import DemoAdapter
from copilot_runtime.adapters.demo.matching import fill_arguments
from copilot_runtime.adapters.demo.plans import write_tasks
from copilot_runtime.api import Action, ChatRequest, Parameters, Passage
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionStart,
    Event,
    ReasoningContent,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
    TextPart,
)
from copilot_runtime.base.errors import Misuse, NetworkError
from copilot_runtime.cli.clock import get_time
from copilot_runtime.extensions.generative_ui.a2ui.operations import validate_components
from copilot_runtime.extensions.planner.settings import PlannerSettings
from copilot_runtime.testing import Client
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


def action(name: str, description: str = "", **properties: Mapping[str, Any]) -> Action:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Action(name=name, description=description, parameters=schema)


GET_TIME = action("get_time", "Tell the time in a city.", city={"type": "string"})
SET_THEME = action("setTheme", "Change the look.", mode={"enum": ["light", "dark"]})
ADD_NOTE = action("add_note", "Put a note on the page.", text={"type": "string"})
ROLL = action("roll_dice", "Roll.", sides={"type": "integer", "minimum": 2})
ALL = (GET_TIME, SET_THEME, ADD_NOTE, ROLL)

DRAWING = (
    *ALL,
    Action(name="render_a2ui", parameters={}, is_drawing=True),
    action("generateSandboxedUi", "Write a page: css, html, script."),
)

SUGGESTIONS = action(
    "extract",
    "Suggest what the user could say next.",
    suggestions={
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"title": {"type": "string"}, "message": {"type": "string"}},
            "required": ["title", "message"],
        },
    },
)


def said(text: str, role: Any = "user") -> TextMessage:
    return TextMessage(id="m", role=role, content=text)


async def answer(
    *messages: Message, actions: Sequence[Action] = ALL, parameters: Parameters | None = None
) -> list[Event]:
    request = ChatRequest(messages=messages, actions=actions, parameters=parameters or Parameters())
    return [event async for event in DemoAdapter(pace=0).stream(request)]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, TextMessageContent))


def calls_of(events: Sequence[Event]) -> list[tuple[str, Any]]:
    args: dict[str, str] = {}
    for event in events:
        if isinstance(event, ActionExecutionArgs):
            args[event.call_id] = args.get(event.call_id, "") + event.delta
    return [
        (event.name, json.loads(args[event.call_id]))
        for event in events
        if isinstance(event, ActionExecutionStart)
    ]


async def test_it_says_that_it_is_no_language_model_and_how_to_get_one():
    text = text_of(await answer(said("hello")))

    assert "not a language model" in text
    assert "OPENAI_API_KEY" in text
    assert "Get time in Paris" in text
    assert text.count("\n- ") == 3


async def test_a_text_comes_word_by_word_between_its_start_and_its_end():
    events = await answer(said("hello"))

    assert isinstance(events[0], TextMessageStart)
    assert isinstance(events[-2], TextMessageEnd)
    assert isinstance(events[-1], Usage)
    assert len(events) > 40
    assert all(len(event.content.split()) == 1 for event in events[1:-2])  # type: ignore[union-attr]


@in_one_test(
    ("sentence", "calls"),
    [
        ("What time is it in New York?", [("get_time", {"city": "New York"})]),
        ('Time in "rome"', [("get_time", {"city": "rome"})]),
        ("dark theme please", [("setTheme", {"mode": "dark"})]),
        ("Add a note: buy milk and eggs", [("add_note", {"text": "buy milk and eggs"})]),
        ('Note "this and that"', [("add_note", {"text": "this and that"})]),
        ("Roll a dice with 20 sides", [("roll_dice", {"sides": 20})]),
        ("Roll a dice with 1 side", [("roll_dice", {"sides": 2})]),
        ('Roll "7"', [("roll_dice", {"sides": 7})]),
    ],
)
async def test_a_sentence_calls_the_action_it_speaks_of(
    sentence: str, calls: list[tuple[str, Any]]
):
    assert calls_of(await answer(said(sentence))) == calls


@in_one_test(
    ("sentence", "words"),
    [
        ("time", "`get_time` needs `city`: try “Get time in Paris”."),
        ('Roll "seven"', "`roll_dice` needs `sides`: try “Roll dice 2”."),
        ("Change the theme", "`setTheme` needs `mode`: try “Set theme dark”."),
        ("Can I add a note?", '`add_note` needs `text`: try “Add note "water the plants"”.'),
    ],
)
async def test_an_argument_that_the_sentence_does_not_have_is_asked_for(sentence: str, words: str):
    events = await answer(said(sentence))
    assert calls_of(events) == []
    assert text_of(events).startswith(words)


BOOK_ROOM = action("book_room", "Books a room of the club.", room={"type": "string"})
WHO_AM_I = action("who_am_i", "Says who is signed in.")


@in_one_test(
    ("sentence", "tools"),
    [
        ('Book the room "Blue"', ["book_room"]),
        ("Who am I?", ["who_am_i"]),
        ("Who keeps the key of the room?", []),
        ("What does the room cost in an hour?", []),
        ("Find out which error the machine of the club shows", []),
    ],
)
async def test_a_question_about_a_thing_calls_no_action_on_it(sentence: str, tools: list[str]):
    passage = Passage(id="p", title="Club", text="Ann keeps the key of the room. It costs 9 euros.")
    for passages in ((), (passage,)):
        request = ChatRequest(
            messages=[said(sentence)], actions=[BOOK_ROOM, WHO_AM_I], passages=passages
        )
        events = [event async for event in DemoAdapter(pace=0).stream(request)]
        assert [name for name, _ in calls_of(events)] == tools


async def test_actions_on_the_same_thing_are_told_apart_by_their_verbs():
    title = {"title": {"type": "string"}}
    column = {"column": {"enum": ["to do", "done"]}}
    board = [
        action("addTask", "Add a task.", **title),
        action("moveTask", "Move a task.", **title, **column),
        action("removeTask", "Remove a task.", **title),
    ]

    for sentence, call in [
        ('Add task "tea"', ("addTask", {"title": "tea"})),
        ('Move the task "tea" to done', ("moveTask", {"title": "tea", "column": "done"})),
        ('Remove task "tea"', ("removeTask", {"title": "tea"})),
    ]:
        assert calls_of(await answer(said(sentence), actions=board)) == [call]


async def test_two_wishes_in_one_sentence_are_two_calls():
    events = await answer(said('What time is it in Oslo and add a note "hi, and bye"'))

    assert calls_of(events) == [
        ("get_time", {"city": "Oslo"}),
        ("add_note", {"text": "hi, and bye"}),
    ]


async def test_an_action_is_found_by_its_description_too():
    weather = action("forecast", "Says how much rain to expect.", days={"type": "integer"})

    events = await answer(said("how much rain to expect in 3 days"), actions=[weather])

    assert calls_of(events) == [("forecast", {"days": 3})]


async def test_nothing_is_called_when_the_client_forbids_it():
    events = await answer(said("time"), parameters=Parameters(tool_choice="none"))

    assert calls_of(events) == []


async def test_something_is_called_when_the_client_requires_it():
    events = await answer(said("so what"), parameters=Parameters(tool_choice="required"))

    assert calls_of(events) == [("get_time", {"city": "Berlin"})]


@in_one_test(
    ("text", "tool", "surface"),
    [
        ("Draw a form for a booking", "render_a2ui", "booking"),
        ("show me a list", "render_a2ui", "timetable"),
        ("Draw a page with a stopwatch", "generateSandboxedUi", None),
    ],
)
async def test_it_draws_where_there_is_a_tool_to_draw_with(
    text: str, tool: str, surface: str | None
):
    events = await answer(said(text), actions=DRAWING)

    ((name, arguments),) = calls_of(events)
    assert (name, arguments.get("surfaceId")) == (tool, surface)
    assert surface is None or validate_components(arguments["components"]) == []


async def test_tools_to_draw_with_are_not_called_for_other_sentences():
    assert calls_of(await answer(said("Draw a form for a booking"))) == []
    assert calls_of(await answer(said("html and css of a page"), actions=DRAWING)) == []
    forbidden = Parameters(tool_choice="none")
    assert calls_of(await answer(said("draw a form"), actions=DRAWING, parameters=forbidden)) == []


@in_one_test(
    ("tool", "result", "words"),
    [
        ("render_a2ui", '{"status":"rendered"}', "There it is."),
        ("generateSandboxedUi", "UI generated", "There is the page."),
        ("log_a2ui_event", 'User performed action "book".', 'User performed action "book".'),
    ],
)
async def test_it_says_what_it_has_drawn(tool: str, result: str, words: str):
    events = await answer(
        said("draw"),
        ActionExecutionMessage(id="c", name=tool, arguments="{}"),
        ResultMessage(id="r", call_id="c", name=tool, result=result),
    )

    assert words in text_of(events)


async def test_results_are_reported_in_the_order_of_their_calls_and_not_asked_for_again():
    events = await answer(
        said("time in Rome"),
        ActionExecutionMessage(id="c1", name="get_time", arguments='{"city": "Rome"}'),
        ActionExecutionMessage(id="c2", name="explode", arguments="{}"),
        ResultMessage(
            id="r2",
            call_id="c2",
            name="explode",
            result='{"error": {"code": "HANDLER_ERROR", "message": "kaboom"}, "result": ""}',
        ),
        ResultMessage(id="r1", call_id="c1", name="get_time", result="12:00 in Rome"),
    )

    assert calls_of(events) == []
    assert text_of(events) == (
        "The action `get_time` answered: 12:00 in Rome\n\nThe action `explode` failed: kaboom"
    )


async def test_chat_suggestions_of_react_core_are_sentences_that_it_answers():
    events = await answer(
        said("The user has given you the following task to complete: …"),
        actions=[SUGGESTIONS],
        parameters=Parameters(tool_choice="function", tool_choice_name="extract"),
    )

    ((_, arguments),) = calls_of(events)
    assert [one["title"] for one in arguments["suggestions"]] == [
        "Think about the sea",
        "Tell me a long story",
        "Show me an error",
    ]


async def test_insisting_on_an_action_that_is_not_offered_is_an_error_that_names_it():
    wish = Parameters(tool_choice="function", tool_choice_name="fly")

    with pytest.raises(Misuse, match="'fly'"):
        await answer(said("go"), parameters=wish)


async def test_thinking_comes_before_the_answer():
    events = await answer(said("think about it"))
    kinds = [type(event) for event in events]

    assert kinds.index(ReasoningContent) < kinds.index(TextMessageContent)


async def test_an_error_breaks_off_a_sentence():
    heard: list[Event] = []
    with pytest.raises(NetworkError, match="because you asked"):
        async for event in DemoAdapter(pace=0).stream(ChatRequest(messages=[said("error")])):
            heard.append(event)

    assert text_of(heard)
    assert not any(isinstance(event, TextMessageEnd) for event in heard)


async def test_an_image_is_acknowledged():
    image = ImageMessage(id="i", role="user", format="png", bytes="iVBORw0KGgo=")

    assert "an image (png, 9 bytes)" in text_of(await answer(said("look"), image))


async def test_attachments_are_named():
    parts = [
        TextPart(text="What is this?"),
        MediaPart(kind="image", source="data", value="iVBORw0KGgo=", mime_type="image/png"),
        MediaPart(kind="document", source="url", value="https://x.example/a.pdf"),
    ]
    message = TextMessage(id="m", role="user", content="What is this?", parts=parts)

    assert text_of(await answer(message)).startswith(
        "You sent an image (image/png, 9 bytes) and a document "
        "(application/pdf, https://x.example/a.pdf). I am the demo model"
    )


@in_one_test("text", ["send me the state", "hello", 'state {"a":', 'note {"a": 1}'])
async def test_nobody_is_told_to_send_a_state(text: str):
    state = [action("AGUISendStateSnapshot", "Replace the state"), action("AGUISendStateDelta")]
    events = await answer(said(text), actions=state)
    assert calls_of(events) == []
    assert "agui" not in text_of(events).lower()


async def test_an_empty_conversation_gets_the_introduction():
    assert "Hello!" in text_of(await answer())


KEYS = st.sampled_from(
    [
        *("type", "properties", "items", "enum", "const", "anyOf", "allOf", "$ref", "required"),
        *("default", "minimum", "maximum", "description", "city"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=12,
)
ODD = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null", "#/x"])


@given(st.dictionaries(KEYS, JSON | ODD, max_size=5), st.text(max_size=30))
def test_no_schema_is_too_odd_to_fill(schema: dict[str, Any], text: str):
    json.dumps(fill_arguments(schema, text))


def test_a_schema_that_contains_itself_is_filled_to_a_limit():
    schema = {
        "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}},
        "$ref": "#/$defs/Node",
    }

    assert json.dumps(fill_arguments(schema, "go")).count("next") < 10


def test_optional_properties_are_left_out_unless_the_sentence_names_them():
    schema = {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "urgent": {"type": "boolean"},
        },
        "required": ["to"],
    }

    assert fill_arguments(schema, "write to 'Don Quixote'") == {"to": "Don Quixote"}
    assert fill_arguments(schema, "write 3 urgent letters") == {
        "to": "3 urgent letters",
        "count": 3,
        "urgent": True,
    }


SHELF = [
    Passage(
        id="r.A.1",
        title="Opening hours",
        url="/k/1",
        text="Opening hours\nThe library opens at nine. It closes at five. Dogs wait outside.",
    ),
    Passage(id="r.B.1", title="Staff", text="Ada leads the library."),
]


async def quote(question: str, *passages: Passage) -> str:
    request = ChatRequest(messages=[said(question)], actions=[], passages=passages)
    return text_of([event async for event in DemoAdapter(pace=0).stream(request)])


async def test_what_was_retrieved_is_quoted_with_its_source():
    text = await quote("When does the library open?", *SHELF)

    assert text.startswith("The library opens at nine. ([Opening hours](/k/1))")
    assert "I am the demo model" in text


async def test_the_sentence_that_shares_most_words_comes_first():
    assert (await quote("Who leads the library?", *SHELF)).startswith(
        "Ada leads the library. (Staff)"
    )


async def test_passages_that_share_no_word_with_the_question_are_not_quoted():
    assert "I have no rule for that" in await quote("Why is the sky blue?", *SHELF)


@in_one_test("text", ["Hello", "Hi!", "Thanks a lot", "What can you do?", "Who are you?"])
async def test_small_talk_is_answered_before_anything_that_was_retrieved(text: str):
    passage = Passage(id="m", title="Hello", text="Hello! Thanks. What you can do: write to us.")
    heard = await quote(text, passage)

    assert "not a language model" in heard
    assert "write to us" not in heard


async def test_a_passage_that_lacks_half_of_the_question_is_named_and_not_quoted():
    text = await quote("How long does the library take for bread?", *SHELF)
    assert text.startswith(
        "These passages may answer that:\n\n- [Opening hours](/k/1): The library opens at nine. It "
        "closes at five. Dogs wait outside.\n- Staff: Ada leads the library.\n\n(I am the demo"
    )


@in_one_test(
    ("question", "beginning"),
    [
        ("Does the library of the Titanic open?", "No page that was found has “Titanic”. These"),
        ("When does the library 'Red Door' open?", "No page that was found has “Red Door”. These"),
        ("Who leads the library, Адмирал?", "No page that was found has “Адмирал”. These"),
        ("Who leads the library with 山田?", "No page that was found has “山田”. These"),
        ("who leads the library, titanic?", "No page that was found has “titanic”. Ada leads"),
        ("When does Ada open the library?", "The library opens at nine."),
        ("WHEN DOES THE LIBRARY OPEN?", "The library opens at nine."),
        ("Hello! When would the library open?", "The library opens at nine."),
    ],
)
async def test_a_name_that_no_passage_has_is_said_first(question: str, beginning: str):
    assert (await quote(question, *SHELF)).startswith(beginning)


async def test_the_note_about_an_attached_file_is_no_part_of_the_question():
    text = await quote("When does it open?\n[file hours.md: see the passages of it.]", *SHELF)
    assert text.startswith("The library opens at nine.")


async def test_what_it_suggests_works_one_after_the_other():
    runtime = CopilotRuntime(DemoAdapter(pace=0), actions=[get_time])
    suggestions = DemoAdapter().suggest([get_time])
    async with Client(runtime) as client:
        replies = [await client.say(each) for each in (*suggestions, "Tell me a long story", "Hi")]

    assert [reply.text.split()[0] for reply in replies] == ["The", "You", "Hello!"]
    assert max(len(reply.text) for reply in replies) > 1_000


@in_one_test(
    ("request", "tasks"),
    [
        (
            "Compare the two ships and write a summary",
            {"Compare the two ships": 0, "write a summary": 1},
        ),
        (
            "Plan a trip: Who is the captain? Is there coffee and tea on board? Then summarize.",
            {"Who is the captain?": 0, "Is there coffee and tea on board?": 0, "summarize": 2},
        ),
        ("1. Look up the fare\n2. Tell me when it leaves", {"Look up the fare": 0, "Tell me": 0}),
        ("Compare three hotels in Rome, and book the best", {"Compare": 0, "book the best": 1}),
        ("When does the ferry at 10:30 leave?", {"When does the ferry at 10:30 leave?": 0}),
        ("Who wrote e.g. this?", {"Who wrote e.g. this?": 0}),
        ("Who is Mr. Ure? Where is St. Ives?", {"Who is Mr. Ure?": 0, "Where is St. Ives?": 0}),
        (f"Find a{' ' * 40_000}b, then tell me", {"Find a": 0, "tell me": 0}),
    ],
)
def test_a_request_as_people_write_it_is_split_into_tasks(
    request: str, tasks: dict[str, int]
) -> None:
    written = write_tasks(request)

    assert len(written) == len(tasks)
    for task, (beginning, needs) in zip(written, tasks.items(), strict=True):
        assert task["purpose"].startswith(beginning)
        assert len(task["depends_on"]) == needs


@in_one_test(
    ("question", "is_data"),
    [
        ("How many seats has the reading room?", False),
        ("How many quays has St Brannoc?", False),
        ("How many seats are in the reading room?", False),
        ("How much does a ticket cost?", False),
        ("How many passengers can the ferry carry?", False),
        ("What is the number of the office?", False),
        ("How many orders are there?", True),
        ("Count the rows by store", True),
        ("How many orders in March?", True),
        ("How many orders does each store have?", True),
        ("Which product has the most orders?", True),
        ("What is the total revenue of the store Leeds?", True),
    ],
)
def test_a_number_that_one_thing_has_is_no_question_about_data(
    question: str, is_data: bool
) -> None:
    assert [bool(task["applicability"]) for task in write_tasks(question)] == [is_data]


async def test_a_plan_of_the_demo_has_a_task_for_each_question_and_fails_one_without_a_rule():
    planner = PlannerSettings(name="planner", store="memory", needs_approval=True)
    runtime = CopilotRuntime(
        DemoAdapter(pace=0),
        actions=[get_time],
        settings=Settings(threads="memory", planner=planner),
    )
    async with Client(runtime, agent="planner") as client:
        waiting = await client.say("What time is it in Oslo? Why is the sky blue?")
        done = await client.resume({"approved": True})

    assert [it.message for it in waiting.interrupts] == [
        "May the plan begin? What time is it in Oslo? Why is the sky blue?"
    ]
    assert "in Oslo" in done.text
    assert done.text.startswith(
        "The plan could not be carried out to its end. "
        "The demo model has no rule for 'Why is the sky blue?'."
    )


async def test_a_plan_of_the_demo_has_its_own_costs_and_asks_for_no_list_of_prices(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(pricing, "are_prices_loaded", lambda: False)
    monkeypatch.setattr(pricing, "begin_loading", lambda: pricing.logger.info("no costs"))
    caplog.set_level("INFO", logger=pricing.logger.name)
    planner = PlannerSettings(name="planner", store="memory")
    settings = Settings(threads="memory", planner=planner)
    runtime = CopilotRuntime(DemoAdapter(pace=0), actions=[get_time], settings=settings)
    async with Client(runtime, agent="planner") as client:
        await client.say("What time is it in Oslo?")

    assert caplog.messages == []


async def test_what_the_page_suggests_is_done_whatever_was_retrieved():
    passage = Passage(id="r.C.1", title="Contract", text="It is a long story.")
    assert "Once there was a token" in await quote("Tell me a long story", passage)


async def test_a_long_description_of_an_action_does_not_make_every_sentence_a_call():
    action = Action(
        name="query_by_pattern", description="Query it.\n\nWHEN TO USE: For library questions."
    )
    request = ChatRequest(messages=[said("Is the library run by questions?")], actions=[action])
    events = [event async for event in DemoAdapter(pace=0).stream(request)]

    assert "I have no rule for that" in text_of(events)


async def test_a_question_that_is_a_title_is_answered_by_what_stands_below_it():
    text = "Darf mein Hund mit?, question\nJa, Hunde sind an der Leine erlaubt."
    passage = Passage(id="q", title="Darf mein Hund mit?", text=text)

    assert (await quote("Darf mein Hund mit?", passage)).startswith("Ja, Hunde sind")


async def test_the_headings_above_a_text_are_not_quoted():
    text = "Guide \u203a Help \u203a Is my dog welcome?\nDogs wait outside."
    passage = Passage(id="q", title="Guide, Is my dog welcome?", text=text)

    assert (await quote("Is my dog welcome?", passage)).startswith("Dogs wait outside. (")


async def test_a_sentence_that_begins_with_the_title_is_quoted():
    passage = Passage(id="o", title="The oven", text="The oven\nThe oven is cleaned on Friday.")

    assert (await quote("How often is the oven cleaned?", passage)).startswith(
        "The oven is cleaned on Friday. (The oven)"
    )


async def test_why_is_answered_by_the_cause_in_a_passage_about_it():
    text = "The engine of the Tern stopped at noon. People slept. The cause was dirt in the fuel."
    passage = Passage(id="e", title="Failure of the engine", text=text)
    found = await quote("Why did the engine of the Tern stop?", passage)
    assert found.startswith("The cause was dirt")


async def test_the_row_of_a_table_that_a_question_names_is_listed_with_its_page():
    text = "Saddles come from Bonn.\nPart | Supplier\nChains | Kettwerk"
    passage = Passage(id="l", title="List", text=text)
    assert "Chains | Kettwerk Saddles" in await quote("Who supplies the chains?", passage)
    assert (await quote("Which supplier has chains?", passage)).startswith("Chains | Kettwerk (")


async def test_a_sentence_without_a_number_does_not_say_how_many():
    ship = Passage(id="s", title="Tern", text="The Tern carries a crew. The crew has six members.")
    boat = Passage(id="b", title="Heron", text="The Heron has a crew and two cranes.")

    assert (await quote("How many crew does the Tern carry?", ship)).startswith("The crew has six")
    assert (await quote("How many masts does the Heron have?", boat)).startswith("These passages")
    assert (await quote("How many crew has the Heron?", ship, boat)).startswith("The Heron has a")


async def test_each_question_of_a_sentence_is_answered():
    refund = Passage(id="r", title="Refunds", text="Refunds are paid to everybody.")
    text = await quote("Who leads the library, and how do I get a refund?", *SHELF, refund)

    assert text.startswith("Ada leads the library. (Staff)\n\nRefunds are paid to everybody.")


async def test_accents_make_no_other_word():
    passage = Passage(id="c", title="Deck", text="There is a café on the deck.")

    assert (await quote("Where is the cafe?", passage)).startswith("There is a café")


@in_one_test(
    ("question", "answer"),
    [
        ("Why is the sky blue?", "Nothing was found in your documents for that."),
        ("Which region sells most?", "An agent with data, such as `analyst`, answers questions"),
    ],
)
async def test_where_nothing_was_found_it_says_so(question: str, answer: str):
    request = ChatRequest(messages=[said(question)], has_knowledge=True)
    text = text_of([event async for event in DemoAdapter(pace=0).stream(request)])

    assert answer in text
    assert "Think about the sea" not in text


async def test_what_is_said_below_the_title_that_was_asked_for_comes_first():
    words = Passage(id="w", title="Words", text="Words, set\nhas term: bollard, muster station")
    station = Passage(id="s", title="Muster station", text="The place where passengers gather.")

    assert (await quote("What is a muster station?", words, station)).startswith("The place")


@in_one_test(
    ("line", "quoted"),
    [
        ("text: Dogs travel on a lead, and not on seats.", "Dogs travel on a lead,"),
        ("job title: Captain of the dogs", "Dogs, job title: Captain of the dogs"),
    ],
)
async def test_a_sentence_is_quoted_without_the_name_of_its_property(line: str, quoted: str):
    passage = Passage(id="d", title="Dogs", text=f"Dogs, rule\n{line}")
    assert (await quote("Which captain travels with dogs?", passage)).startswith(quoted)


def test_times_ids_and_single_quotes_are_filled():
    schema = {
        "type": "object",
        "properties": {
            "at": {"type": "string", "format": "time"},
            "id": {"type": "string", "format": "uuid"},
            "title": {"type": "string"},
        },
        "required": ["at", "id", "title"],
    }

    assert fill_arguments(schema, "call it 'Don Quixote' at 17:45") == {
        "at": "17:45",
        "id": "00000000-0000-4000-8000-000000000000",
        "title": "Don Quixote",
    }


def test_a_color_is_filled():
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}

    assert fill_arguments(schema, "Make the theme blue") == {"color": "blue"}
    assert fill_arguments(schema, 'Make it "lightgreen"') == {"color": "lightgreen"}
