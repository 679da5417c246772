"""The memories of all conversations: whose they are, and what a model is given of one."""

import asyncio

import pytest

from copilot_runtime.base.errors import Misuse, NotFound
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.extensions.knowledge.access import Access, AccessAction, AccessDenied
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.memory import Allocation, Memories
from copilot_runtime.extensions.knowledge.memory import memories as memories_module
from copilot_runtime.extensions.knowledge.policies import (
    OWNERS_ONLY,
    build_actor,
    conversation_identifier,
)
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage, StorageFailed

pytestmark = pytest.mark.anyio

ANNS = conversation_identifier("ann", "t1")
BOBS = conversation_identifier("bob", "t1")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "Where"}}}


def access(user: str, action: AccessAction = "read") -> Access:
    return OWNERS_ONLY.access(build_actor(user), action)


def message(name: str, conversation: Identifier = ANNS, tokens: int = 5) -> Identifier:
    return Identifier("common.Message", name, str(conversation), tokens=tokens)


@pytest.fixture
def memories() -> Memories:
    storage = MemoryStorage()
    return Memories(storage, ResourceIndex(storage), allocation=Allocation(0.2, 0.3, 0.5))


async def put_conversation(memories: Memories, *, agent_id: str = "common.Agent.guide") -> None:
    """Make an agent with one tool, and a conversation with a question and an answer."""
    await memories.resources.put_many(
        [
            Resource(ANNS, fields={"agent_id": agent_id}),
            Resource(
                Identifier("common.Agent", "guide", tokens=20),
                "You know all harbours.",
                fields={"tools": ["weather", "gone"]},
            ),
            Resource(
                Identifier("tool.ToolFunction", "weather"),
                fields={"description": "Tell the weather.", "parameters": SCHEMA},
            ),
            Resource(message("q"), "When?", role="user"),
            Resource(message("a"), "At noon.", role="assistant"),
        ]
    )
    await memories.append(ANNS, message("q"), message("a"))


async def test_a_memory_is_its_owners(memories: Memories) -> None:
    await memories.append(ANNS, message("m1"), access=access("ann", "write"))

    assert await memories.read(ANNS, access=access("ann")) == [message("m1")]
    for attempt in (
        memories.read(ANNS, access=access("bob")),
        memories.append(ANNS, message("m2"), access=access("bob", "write")),
        memories.window(ANNS, 100, access=access("bob")),
        memories.prompt(ANNS, 100, access=access("")),
        memories.forget(ANNS, access=access("bob", "delete")),
    ):
        with pytest.raises(AccessDenied, match="Access denied"):
            await attempt
    assert await memories.read(ANNS) == [message("m1")]


async def test_only_the_conversations_of_the_actor_are_listed(memories: Memories) -> None:
    await memories.append(ANNS, message("m1"))
    await memories.append(BOBS, message("m1", BOBS))

    assert await memories.conversations(access=access("ann", "list")) == [str(ANNS)]
    assert await memories.conversations() == [str(ANNS), str(BOBS)]


async def test_what_belongs_to_another_one_is_in_no_window(memories: Memories) -> None:
    foreign = message("secret", BOBS)
    await memories.append(ANNS, message("m1"), foreign)

    assert await memories.read(ANNS, access=access("ann")) == [message("m1")]
    window = await memories.window(ANNS, 1000, access=access("ann"))
    assert window.conversation == (message("m1"),)
    assert len(await memories.read(ANNS)) == 2


async def test_a_memory_is_forgotten_with_those_below_it(memories: Memories) -> None:
    below = Identifier("common.Conversation", "child", str(ANNS))
    await memories.append(ANNS, message("m1"))
    await memories.append(below, message("m2", below))
    await memories.append(BOBS, message("m3", BOBS))
    await memories.aclose()  # which writes them

    assert await memories.forget(ANNS, access=access("ann", "delete")) == [str(ANNS), str(below)]
    assert await memories.conversations() == [str(BOBS)]
    assert await memories.read(ANNS) == []
    assert await memories.forget(ANNS) == []


async def test_tools_cost_what_their_schemas_do(memories: Memories) -> None:  # K008
    await put_conversation(memories)
    weather = Identifier("tool.ToolFunction", "weather", tokens=0)
    await memories.append(ANNS, weather)
    (tool,) = (await memories.window(ANNS, 1000)).tools

    assert tool.tokens == 37
    assert (await memories.window(ANNS, 100)).tools == ()
    old = Memories(MemoryStorage(), memories.resources, rules="copilot-ld-2025-11")
    await old.append(ANNS, weather)
    assert [it.tokens for it in (await old.window(ANNS, 100)).tools] == [0]


async def test_a_tool_with_tokens_of_its_own_costs_those(memories: Memories) -> None:
    await put_conversation(memories)
    await memories.append(ANNS, Identifier("tool.ToolFunction", "weather", tokens=3))

    assert (await memories.window(ANNS, 1000)).tools[0].tokens == 3


async def test_a_prompt_has_instructions_tools_and_conversation(memories: Memories) -> None:
    await put_conversation(memories)
    prompt = await memories.prompt(str(ANNS), 1000, 100)

    assert [(it.role, it.content) for it in prompt.messages] == [
        ("system", "You know all harbours."),
        ("user", "When?"),
        ("assistant", "At noon."),
    ]
    assert prompt.tools == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "Tell the weather.",
                "parameters": SCHEMA,
            },
        }
    ]
    assert prompt.max_tokens == 100


async def test_a_tool_that_there_is_not_is_named_in_the_log(
    memories: Memories, caplog: pytest.LogCaptureFixture
) -> None:  # H157
    await put_conversation(memories)
    await memories.prompt(ANNS, 1000, 100)

    assert "common.Agent.guide names tools that there are not: gone." in caplog.text


async def test_a_prompt_fits_into_its_budget_beside_the_answer(memories: Memories) -> None:
    await put_conversation(memories)
    long = message("long", tokens=5000)
    await memories.resources.put(Resource(long, "word " * 2000, role="user"))
    await memories.append(ANNS, long)
    prompt = await memories.prompt(ANNS, 300, 100)

    assert prompt.window.tokens + 20 + 37 + 100 <= 300
    last = prompt.messages[-1]
    assert last.content.endswith("word…")
    assert last.id.tokens == prompt.window.conversation[-1].tokens
    assert prompt.window.trimmed == {str(long)}


async def test_tools_of_the_memory_come_after_those_of_the_agent(memories: Memories) -> None:
    await put_conversation(memories)
    names = ("weather", "tides")
    tools = [Identifier("tool.ToolFunction", name, tokens=5) for name in names]
    await memories.resources.put(Resource(tools[1], "Tell the tides."))
    await memories.append(ANNS, *tools)
    functions = [tool["function"] for tool in (await memories.prompt(ANNS, 1000, 100)).tools]

    assert [function["name"] for function in functions] == ["weather", "tides"]
    assert functions[1]["description"] == "Tell the tides."


async def test_a_prompt_of_no_conversation_or_agent_is_refused(memories: Memories) -> None:
    with pytest.raises(NotFound, match=r"Conversation not found: common\.Conversation\.x"):
        await memories.prompt("common.Conversation.x", 100)
    for agent_id in ("common.Agent.gone", ""):
        await put_conversation(memories, agent_id=agent_id)
        with pytest.raises(NotFound, match=f"Agent not found: {agent_id}"):
            await memories.prompt(ANNS, 100)


@pytest.mark.parametrize("max_tokens", [0, -1])
async def test_an_answer_needs_tokens(memories: Memories, max_tokens: int) -> None:
    with pytest.raises(Misuse, match="maxTokens is required and must be positive"):
        await memories.prompt(ANNS, 100, max_tokens)
    with pytest.raises(Misuse, match=r"config\.max_tokens is required and must be positive"):
        Memories(MemoryStorage(), max_tokens=max_tokens)


async def test_an_agent_without_tools_has_a_prompt(memories: Memories) -> None:
    await put_conversation(memories)
    await memories.resources.put(Resource(Identifier("common.Agent", "guide"), "You are brief."))
    prompt = await memories.prompt(ANNS, 1000, 100)

    assert prompt.tools == []
    assert prompt.messages[0].content == "You are brief."


async def test_the_memories_of_a_knowledge_are_in_its_storage() -> None:
    storage = MemoryStorage()
    knowledge = Knowledge(storage)
    await knowledge.memory.append(ANNS, message("m1"))
    await knowledge.aclose()

    assert await Memories(storage).read(ANNS) == [message("m1")]


async def test_memories_are_closed_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memories_module, "MAX_OPEN", 2)
    storage = MemoryStorage()
    memories = Memories(storage)
    conversations = [conversation_identifier("ann", f"t{at}") for at in range(5)]
    for conversation in conversations:
        await memories.append(conversation, message("m", conversation))
    await memories.conversations()
    await memories.append(ANNS, message("m"))
    for conversation in conversations:
        assert await memories.read(conversation) == [message("m", conversation)]
    await memories.aclose()

    assert len(await Memories(storage).conversations()) == 5


async def test_what_is_appended_after_a_memory_was_forgotten_begins_a_new_one() -> None:
    storage = MemoryStorage()
    memories, elsewhere = Memories(storage), Memories(storage)
    for forget in (memories.forget, elsewhere.forget):  # also by another process
        await memories.append(ANNS, message("m1"), message("m2"))
        assert await memories.read(ANNS) == [message("m1"), message("m2")]
        assert await forget(ANNS) == [str(ANNS)]
        await memories.append(ANNS, message("m1"))
        assert await memories.read(ANNS) == await elsewhere.read(ANNS) == [message("m1")]


async def test_what_was_never_written_is_forgotten_too() -> None:
    storage = MemoryStorage()
    memories = Memories(storage)
    below = Identifier("common.Conversation", "child", str(ANNS))
    await memories.append(ANNS, message("m1"))
    await memories.append(below, message("m2", below))

    assert await memories.conversations() == [str(ANNS), str(below)]
    assert await memories.forget(ANNS) == []
    await memories.aclose()

    assert await storage.find_by_prefix("memories/") == []


class Unwritable(MemoryStorage):
    """A storage in which one memory cannot be written."""

    async def append(self, key: str, data: bytes) -> None:
        if str(BOBS) in key:
            raise StorageFailed("no space")
        await super().append(key, data)


async def test_a_memory_that_cannot_be_written_does_not_break_the_list_of_all() -> None:
    memories = Memories(Unwritable())
    for conversation in (ANNS, BOBS):
        await memories.append(conversation, message("m1", conversation))

    assert await memories.conversations() == [str(ANNS), str(BOBS)]
    assert await memories.conversations(access=access("ann", "list")) == [str(ANNS)]
    with pytest.raises(StorageFailed):
        await memories.aclose()


async def test_memories_are_listed_while_others_are_opened() -> None:
    memories = Memories(MemoryStorage())
    conversations = [conversation_identifier("ann", f"t{at}") for at in range(20)]

    async def use(conversation: Identifier) -> list[str]:
        await memories.append(conversation, message("m", conversation))
        return await memories.conversations()

    lists = await asyncio.gather(*map(use, conversations))

    assert {*await memories.conversations()} == {*map(str, conversations)}
    assert all(str(it) in found for it, found in zip(conversations, lists, strict=True))


async def test_of_a_thread_that_is_forgotten_nothing_stays() -> None:
    storage = MemoryStorage()
    knowledge = Knowledge(storage)
    notes = [Resource(ANNS, "The zebra."), Resource(message("m1"), "A zebra.")]
    await knowledge.resources.put_many([*notes, Resource(BOBS, "Another one.")])
    await knowledge.uploads.add(b"The zebra opens at nine.", "zebra.txt", ANNS).task
    for conversation in (ANNS, BOBS):
        await knowledge.memory.append(conversation, message("m1", conversation))
    await knowledge.update()
    assert await knowledge.search("zebra", prefix=str(ANNS)) != []

    await knowledge.forget_thread("ann", "t1")
    await knowledge.forget_thread("ann", "t-that-never-was")

    assert await knowledge.search("zebra", prefix=str(ANNS)) == []
    assert [*map(str, await knowledge.find_resources())] == [str(BOBS)]
    assert await knowledge.memory.conversations() == [str(BOBS)]
    await knowledge.aclose()
    assert [key for key in await storage.find_etags("") if str(ANNS) in key] == []


async def test_a_thread_is_forgotten_also_where_an_index_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unwritable(MemoryStorage):
        broken = False

        async def append(self, key: str, data: bytes) -> None:
            if self.broken and key.startswith("vectors/"):
                raise StorageFailed("no space")
            await super().append(key, data)

    storage = Unwritable()
    knowledge = Knowledge(storage)
    await knowledge.uploads.add(b"The zebra opens at nine.", "zebra.txt", ANNS).task
    storage.broken = True

    await knowledge.forget_thread("ann", "t1")

    assert "an index still names them" in caplog.text
    assert await knowledge.search("zebra", prefix=str(ANNS)) == []
    await knowledge.aclose()
