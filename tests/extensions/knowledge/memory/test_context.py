"""A context window is made smaller until it fits, and nothing is lost by it."""

import asyncio
from collections.abc import Callable

import pytest

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.extensions.knowledge.access import Access, AccessDenied
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.memory import (
    ContextWindow,
    ContextWindows,
    Memories,
    OptimizationResult,
)
from copilot_runtime.extensions.knowledge.memory.memories import identify_window
from copilot_runtime.extensions.knowledge.resources import Resource, VersionConflict
from copilot_runtime.storage import MemoryStorage
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

CHAT = "common.User.ann/common.Conversation.t1"


def message(name: str, content: str, role: str = "user", type: str = "common.Message") -> Resource:
    return Resource(Identifier(type, name, CHAT), content, role=role)


def words(count: int, word: str = "word") -> str:
    """Return a text of about so many tokens."""
    return " ".join([word] * (count * 2 // 3))


class Summarizer:
    """Notes what it is given, and returns what it is told to."""

    def __init__(self, summary: str = "They talked about ships.") -> None:
        self.summary = summary
        self.texts: list[str] = []

    async def __call__(self, text: str, tokens: int) -> str:
        self.texts.append(text)
        if self.summary == "fail":
            raise RuntimeError("no model")
        return self.summary


async def build(*resources: Resource, **options: object) -> ContextWindows:
    memories = Memories(MemoryStorage())
    await memories.resources.put_many(resources)
    await memories.append(CHAT, *(it.id for it in resources))
    return ContextWindows(memories, **options)  # type: ignore[arg-type]


def list_names(window: ContextWindow) -> list[str]:
    return [it.id.name for it in window.resources]


def list_types(window: ContextWindow) -> list[str]:
    return [it.id.type.partition(".")[2] for it in window.resources]


TALK = [message(f"m{number}", f"{number} {words(100)}") for number in range(8)]


async def test_a_window_has_the_resources_of_a_memory_in_their_order() -> None:
    windows = await build(*TALK)
    window = await windows.get(f"cld:{CHAT}")
    assert (window.id, list(window.resources)) == (CHAT, TALK)
    assert window.tokens == sum(it.id.tokens or 0 for it in TALK)


async def test_without_a_memory_it_has_what_is_below_the_conversation() -> None:
    memories = Memories(MemoryStorage())
    await memories.resources.put_many([Resource(Identifier("common.Other", "x"), "x"), *TALK])
    windows = ContextWindows(memories)
    assert list_names(await windows.get(CHAT)) == [it.id.name for it in TALK]

    assert (await windows.optimize(CHAT, 400)).successful
    assert list_types(await windows.get(CHAT))[0] == "Summary"


async def test_a_conversation_that_is_not_there_is_an_error() -> None:
    windows = await build()
    with pytest.raises(NotFound, match="no such conversation"):
        await windows.get(CHAT)
    with pytest.raises(NotFound):
        await windows.optimize(CHAT)
    with pytest.raises(Misuse, match="names no resource"):
        await windows.get("chat")


async def test_a_window_that_fits_is_left_alone() -> None:
    summarizer = Summarizer()
    windows = await build(*TALK, summarize=summarizer)
    result = await windows.optimize(CHAT, 10_000)
    assert (result.successful, result.optimized) == (True, False)
    assert summarizer.texts == []


async def test_the_oldest_are_summarised_until_the_rest_fits() -> None:
    summarizer = Summarizer()
    windows = await build(*TALK, summarize=summarizer)

    result = await windows.optimize(CHAT, 500)
    window = await windows.get(CHAT)

    assert (result.successful, result.optimized) == (True, True)
    assert window.tokens <= 500
    assert list_types(window)[0] == "Summary"
    assert window.resources[0].content == "They talked about ships."
    kept = list_names(window)[1:]
    assert kept == [f"m{number}" for number in range(8 - len(kept), 8)]
    assert len(kept) >= 3
    assert "user: 0 word" in summarizer.texts[0]
    assert all(f"user: {number} word" in summarizer.texts[0] for number in range(8 - len(kept)))


async def test_a_second_optimisation_changes_nothing() -> None:
    summarizer = Summarizer()
    windows = await build(*TALK, TALK[0], summarize=summarizer)
    await windows.optimize(CHAT, 500)
    window = await windows.get(CHAT)

    result = await windows.optimize(CHAT, 500)

    assert (result.successful, result.optimized) == (True, False)
    assert await windows.get(CHAT) == window
    assert len(summarizer.texts) == 1


async def test_what_comes_later_is_there_and_a_later_summary_has_the_older_one_in_it() -> None:
    summarizer = Summarizer()
    windows = await build(*TALK, summarize=summarizer)
    await windows.optimize(CHAT, 500)
    more = [message(f"n{number}", f"later {words(100)}{number}") for number in range(4)]
    await windows.memories.resources.put_many(more)
    await windows.memories.append(CHAT, *(it.id for it in more))
    assert list_names(await windows.get(CHAT))[-4:] == ["n0", "n1", "n2", "n3"]

    assert (await windows.optimize(CHAT, 500)).successful
    window = await windows.get(CHAT)

    assert list_types(window).count("Summary") == 1
    assert "They talked about ships." in summarizer.texts[1]
    below = await windows.memories.resources.find_by_prefix(CHAT)
    assert [it.type for it in below].count("context.Summary") == 1
    assert {it.name for it in below} >= {it.id.name for it in [*TALK, *more]}  # nothing is lost
    assert len(await windows.memories.read(CHAT)) == 12


@in_one_test("summary", ["fail", "", "  \n"])
async def test_where_the_model_fails_a_sentence_says_what_is_left_out(summary: str) -> None:
    windows = await build(*TALK, summarize=Summarizer(summary))
    result = await windows.optimize(CHAT, 500)
    first = (await windows.get(CHAT)).resources[0]

    assert (result.successful, result.optimized) == (True, True)
    assert first.content.startswith("5 older items (")
    assert "left out here, and still stored." in first.content
    assert "- user: 0 word word" in first.content
    assert not (await windows.optimize(CHAT, 500)).optimized


async def test_a_model_that_hangs_is_given_up() -> None:
    async def hang(text: str, tokens: int) -> str:
        return await asyncio.Future()

    windows = await build(*TALK, summarize=hang, timeout=0.01)
    assert (await windows.optimize(CHAT, 500)).successful


async def test_without_a_model_a_sentence_stands_for_the_oldest() -> None:
    windows = await build(*TALK)
    assert (await windows.optimize(CHAT, 500)).successful
    assert "left out here" in (await windows.get(CHAT)).resources[0].content


async def test_equal_documents_become_one_and_equal_messages_only_in_a_row() -> None:
    def document(name: str) -> Resource:
        return Resource(Identifier("common.Chunk", name), "The ship sails at nine.")

    windows = await build(
        document("d1"),
        message("m1", "Yes."),
        document("d2"),
        message("m2", "Yes."),
        message("m3", "Really?"),
        message("m4", "Yes."),
        message("m5", "Bye."),
    )
    result = await windows.optimize(CHAT, 1000)
    assert (result.successful, result.optimized) == (True, True)
    assert list_names(await windows.get(CHAT)) == ["d1", "m1", "m3", "m4", "m5"]
    assert not (await windows.optimize(CHAT, 1000)).optimized


async def test_large_items_are_trimmed_before_anything_is_summarised() -> None:
    summarizer = Summarizer()
    document = Resource(Identifier("common.Chunk", "d1"), words(3000))
    windows = await build(document, *TALK[:2], summarize=summarizer)

    assert (await windows.optimize(CHAT, 800)).successful
    window = await windows.get(CHAT)

    assert list_names(window) == ["d1", "m0", "m1"]
    assert window.resources[0].id.tokens == 200
    assert window.resources[0].content.endswith("…")
    assert window.tokens <= 800
    assert summarizer.texts == []
    assert not (await windows.optimize(CHAT, 800)).optimized


async def test_a_call_and_its_results_stay_together() -> None:
    windows = await build(
        message("m1", words(100), "assistant"),
        message("r1", words(100), type="tool.ToolCallMessage"),
        message("r2", words(100) + " x", type="tool.ToolCallMessage"),
        message("m2", words(100) + " y"),
        summarize=Summarizer(),
    )
    assert (await windows.optimize(CHAT, 250)).successful
    assert list_types(await windows.get(CHAT)) == ["Summary", "Message"]


async def test_the_newest_message_stays_though_it_is_trimmed() -> None:
    windows = await build(message("m1", words(5000)))
    assert await windows.optimize(CHAT, 100) == OptimizationResult(True, True)
    window = await windows.get(CHAT)
    assert (list_names(window), window.tokens) == (["m1"], 100)
    assert not (await windows.optimize(CHAT, 100)).optimized


async def test_tools_are_never_touched_and_may_be_too_much() -> None:
    tool = Resource(Identifier("tool.ToolFunction", "search"), fields={"description": words(2000)})
    windows = await build(tool, message("m1", "Hello"))
    assert await windows.optimize(CHAT, 100) == OptimizationResult(False, False)
    assert await windows.optimize(CHAT, 5000) == OptimizationResult(True, False)
    assert list_names(await windows.get(CHAT)) == ["search", "m1"]


async def test_what_is_not_enough_says_so_and_changes_nothing_again() -> None:
    tool = Resource(Identifier("tool.ToolFunction", "search"), fields={"description": words(900)})
    windows = await build(tool, *TALK, summarize=Summarizer())
    assert await windows.optimize(CHAT, 400) == OptimizationResult(False, True)
    assert await windows.optimize(CHAT, 400) == OptimizationResult(False, False)


@in_one_test("budget", [0, -1])
async def test_a_budget_is_above_zero(budget: int) -> None:
    with pytest.raises(Misuse, match="above 0"):
        await (await build(*TALK)).optimize(CHAT, budget)


@in_one_test("budget", [1, 5, 20, 31, 32, 33, 60, 100, 333, 800, 2000])
async def test_any_budget_ends_and_a_second_call_changes_nothing(budget: int) -> None:
    windows = await build(*TALK, TALK[3], message("last", words(40)), summarize=Summarizer())
    first = await windows.optimize(CHAT, budget)
    window = await windows.get(CHAT)
    second = await windows.optimize(CHAT, budget)

    assert first.successful == (window.tokens <= budget)
    assert (second.successful, second.optimized) == (first.successful, False)
    assert list_names(window)[-1] == "last"
    assert first.successful or budget < 32


async def test_of_a_window_that_was_read_before_only_what_was_in_it_is_touched() -> None:
    windows = await build(*TALK[:6], summarize=Summarizer())
    window = await windows.get(CHAT)
    late = message("late", words(100))
    await windows.memories.resources.put(late)
    await windows.memories.append(CHAT, late.id, TALK[7].id)

    await windows.optimize(window, 300)

    assert list_names(await windows.get(CHAT))[-1] == "late"


class Rule(Access):
    """Allows what a function allows."""

    def __init__(self, allows: Callable[[str], bool]) -> None:
        self._allows = allows

    @property
    def key(self) -> object:
        return id(self)

    @property
    def immediate(self) -> Access:
        return self

    def allows(self, uri: str) -> bool:
        return self._allows(uri)


async def test_a_summary_is_for_those_who_may_read_all_that_is_in_it() -> None:
    windows = await build(*TALK, summarize=Summarizer())
    await windows.optimize(CHAT, 500)
    without_m1 = Rule(lambda uri: not uri.endswith(".m1"))

    window = await windows.get(CHAT, access=without_m1)

    assert list_names(window) == ["m0", *(f"m{number}" for number in range(2, 8))]
    assert list_types(await windows.get(CHAT))[0] == "Summary"


async def test_what_may_not_be_read_is_not_summarised() -> None:
    summarizer = Summarizer()
    windows = await build(*TALK, summarize=summarizer)
    await windows.optimize(CHAT, 500, access=Rule(lambda uri: not uri.endswith(".m1")))

    assert "user: 1 word" not in summarizer.texts[0]
    assert "user: 2 word" in summarizer.texts[0]
    assert list_names(await windows.get(CHAT))[1] == "m1"


async def test_equal_documents_stay_for_those_who_may_read_one_of_them() -> None:
    documents = [Resource(Identifier("common.Chunk", name), "Nine.") for name in ("a", "b")]
    windows = await build(*documents, message("m1", "Hi"))
    await windows.optimize(CHAT)
    window = await windows.get(CHAT, access=Rule(lambda uri: uri != "common.Chunk.a"))
    assert list_names(window) == ["b", "m1"]


async def test_others_neither_read_nor_optimise_a_window() -> None:
    windows = await build(*TALK)
    nothing = Rule(lambda _: False)
    with pytest.raises(AccessDenied):
        await windows.get(CHAT, access=nothing)
    with pytest.raises(AccessDenied):
        await windows.optimize(CHAT, 500, write=nothing)
    assert list_names(await windows.get(CHAT)) == [it.id.name for it in TALK]


async def test_two_who_optimise_at_once_make_one_window() -> None:
    windows = await build(*TALK, summarize=Summarizer())
    results = await asyncio.gather(*(windows.optimize(CHAT, 500) for _ in range(4)))
    assert all(result.successful for result in results)
    assert list_types(await windows.get(CHAT)).count("Summary") == 1
    assert not (await windows.optimize(CHAT, 500)).optimized


async def test_who_never_gets_a_turn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = await build(*TALK)

    async def conflict(*_: object, **__: object) -> bool:
        raise VersionConflict("x", "1", "2")

    monkeypatch.setattr(
        "copilot_runtime.extensions.knowledge.memory.context.save_optimization", conflict
    )
    with pytest.raises(VersionConflict):
        await windows.optimize(CHAT, 500)


async def test_models_read_the_optimised_window() -> None:
    windows = await build(*TALK, summarize=Summarizer())
    await windows.optimize(CHAT, 500)
    window = await windows.memories.window(CHAT, 10_000)
    assert [it.type for it in window.conversation][:2] == ["context.Summary", "common.Message"]


async def test_what_is_stored_of_a_window_and_cannot_be_read_counts_for_nothing() -> None:
    windows = await build(*TALK)
    broken = {"replaced": {"a": 1}, "trimmed": {"b": "x"}, "summaries": []}
    await windows.memories.resources.put(Resource(identify_window(CHAT), fields=broken))
    assert list_names(await windows.get(CHAT)) == [it.id.name for it in TALK]
