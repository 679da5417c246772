"""How a vector index follows the resources."""

import asyncio
import time
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from copilot_runtime.base.errors import (
    AuthenticationFailed,
    ConfigurationFailed,
    CopilotError,
    LimitExceeded,
    Misuse,
    NetworkError,
    RateLimited,
)
from copilot_runtime.extensions.knowledge.identifiers import Identifier, hash_values
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem, index
from copilot_runtime.storage import MemoryStorage, StorageFailed
from tests.extensions.knowledge.vectors.words import LetterEmbedder, message, resource
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio


class Scene:
    """Resources, and an index of them."""

    def __init__(self, embedder: LetterEmbedder | None = None) -> None:
        self.storage = MemoryStorage()
        self.resources = ResourceIndex(self.storage)
        self.embedder = embedder or LetterEmbedder()
        self.index = VectorIndex(self.storage, self.embedder)

    async def put(self, *resources: Resource) -> None:
        await self.resources.put_many(resources)

    async def update(self) -> tuple[int, int, int]:
        """Return how many were added, changed and removed."""
        report = await self.index.update(self.resources)
        assert report.failed == {}
        return report.added, report.changed, report.removed

    async def search(self, text: str) -> list[str]:
        return [one.name for one in await self.index.search([text], Filter(threshold=0.5))]

    async def vectors(self) -> dict[str, bytes]:
        return await self.storage.get_many(await self.storage.find_by_prefix("vectors/"))


async def test_new_resources_are_found():
    scene = Scene()
    await scene.put(resource("one", "abba"), resource("two", "xyz"))
    assert await scene.update() == (2, 0, 0)
    assert await scene.search("baab") == ["one"]
    (found,) = await scene.index.get(["common.Message.one"])
    assert found.tokens == 1


async def test_a_second_update_changes_no_byte_and_embeds_nothing():
    scene = Scene()
    await scene.put(resource("one", "abba"), resource("blank", " "), resource("two", "xyz"))
    await scene.update()
    before, scene.embedder.calls = await scene.vectors(), []
    assert await scene.update() == (0, 0, 0)
    assert await scene.vectors() == before
    again = VectorIndex(scene.storage, scene.embedder)
    await again.update(scene.resources)
    assert await scene.vectors() == before
    assert scene.embedder.calls == []


async def test_a_changed_resource_is_embedded_again_and_no_other():
    scene = Scene()
    await scene.put(resource("one", "abba"), resource("two", "xyz"))
    await scene.update()
    await scene.put(resource("one", "klm"))
    scene.embedder.calls = []
    assert await scene.update() == (0, 1, 0)
    assert scene.embedder.texts == ["klm"]
    assert await scene.search("abba") == []
    assert await scene.search("klm") == ["one"]


async def test_a_deleted_resource_is_forgotten():
    scene = Scene()
    await scene.put(resource("one", "abba"), resource("two", "xyz"))
    await scene.update()
    await scene.resources.delete("common.Message.one")
    assert await scene.update() == (0, 0, 1)
    assert await scene.search("abba") == []
    assert await VectorIndex(scene.storage, scene.embedder).count() == 1


async def test_vectors_that_were_added_by_hand_stay():
    scene = Scene()
    await scene.index.add(VectorItem(message("mine"), LetterEmbedder.count(["abc"])[0]))
    assert await scene.update() == (0, 0, 0)
    assert await scene.search("abc") == ["mine"]


async def test_chats_agents_and_tools_are_not_embedded_but_files_in_a_chat_are():
    scene = Scene()
    conversation = "common.User.ann/common.Conversation.t1"
    await scene.put(
        Resource(Identifier("common.Conversation", "c"), "abc"),
        Resource(Identifier("common.Message", "m", conversation), "abc"),
        Resource(Identifier("common.Agent", "a"), "abc"),
        Resource(Identifier("tool.ToolFunction", "t"), "abc"),
        Resource(Identifier("file.Upload", "u", conversation), "abc"),
        Resource(Identifier("common.Chunk", "x", f"{conversation}/file.Upload.u"), "abc"),
        Resource(Identifier("common.Document", "d"), "abc"),
    )
    assert await scene.update() == (3, 0, 0)
    assert sorted(await scene.search("abc")) == ["d", "u", "x"]


async def test_triples_are_embedded_as_a_person_would_read_them():
    scene = Scene()
    turtle = '<urn:x:ada> <https://schema.org/name> "Ada" .'
    await scene.put(Resource(message("ada"), turtle, "turtle"))
    await scene.update()
    assert scene.embedder.texts == ["Ada"]


async def test_vectors_of_an_earlier_release_stay_for_a_day(monkeypatch: pytest.MonkeyPatch):
    scene = Scene()
    await scene.put(resource("one", "abba"))
    earlier = f"vectors/{hash_values(scene.embedder.model)}/00000001.jsonl"
    await scene.storage.put(earlier, b'{"id":"common.Message.one","vector":[1]}\n')
    assert await scene.update() == (1, 0, 0)
    assert earlier in await scene.vectors()
    pass_hours(monkeypatch, 25)
    assert await scene.update() == (0, 0, 0)
    assert {key.rpartition("/")[0] for key in await scene.vectors()} == {
        f"vectors/{hash_values(scene.embedder.model, '3')}"
    }


async def test_a_text_is_embedded_below_its_title_and_headings():
    scene = Scene()
    fields = {"title": "Rules", "place": {"heading": "Rules \u203a Dogs"}}
    await scene.put(Resource(message("one"), "outside", fields=fields))
    await scene.update()
    assert scene.embedder.texts == ["Rules \u203a Dogs\noutside"]


async def test_a_text_is_cut_to_what_the_model_reads():
    scene = Scene()
    scene.embedder.max_tokens = 10
    await scene.put(resource("long", "abc " * 1000))
    await scene.update()
    assert [len(text) for text in scene.embedder.texts] == [40]


def pass_hours(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    later = time.time() + hours * 3600
    monkeypatch.setattr(index.time, "time", lambda: later)


async def test_a_new_model_embeds_everything_and_the_old_one_answers_until_nobody_asks_it(
    monkeypatch: pytest.MonkeyPatch,
):
    scene = Scene()
    await scene.put(resource("one", "abba"), resource("two", "xyz"))
    await scene.update()
    failing = LetterEmbedder("better", NetworkError("Down."))
    new = VectorIndex(scene.storage, failing)
    assert len((await new.update(scene.resources)).failed) == 2
    assert await scene.search("abba") == ["one"]
    assert await VectorIndex(scene.storage, scene.embedder).count() == 2
    failing.fail = None
    assert (await new.update(scene.resources)).added == 2
    assert [one.name for one in await new.search(["baab"], Filter(limit=1))] == ["one"]
    pass_hours(monkeypatch, 20)
    assert await scene.search("abba") == ["one"]
    pass_hours(monkeypatch, 20)
    await new.update(scene.resources)
    assert await VectorIndex(scene.storage, scene.embedder).count() == 2
    pass_hours(monkeypatch, 25)
    await new.update(scene.resources)
    assert await VectorIndex(scene.storage, scene.embedder).count() == 0


async def test_a_new_version_of_an_embedder_embeds_everything():
    scene = Scene()
    await scene.put(resource("one", "abba"))
    await scene.update()
    scene.embedder.version = "2"
    new = VectorIndex(scene.storage, scene.embedder)
    assert (await new.update(scene.resources)).added == 1


async def test_servers_with_two_models_embed_what_is_new_and_nothing_else():
    scene = Scene()
    await scene.put(*(resource(f"n{number}", "abc") for number in range(20)))
    new = VectorIndex(scene.storage, LetterEmbedder("better"))
    assert await scene.update() == (20, 0, 0)
    assert (await new.update(scene.resources)).added == 20
    for number in range(3):
        await scene.put(resource(f"upload{number}", "xyz"))
        assert await scene.update() == (1, 0, 0)
        assert (await new.update(scene.resources)).added == 1


async def test_who_may_only_read_can_search():
    class ReadOnly(MemoryStorage):
        is_read_only = False

        async def put(self, key: str, data: bytes, *, expected: str | None = None) -> str:
            if self.is_read_only:
                raise StorageFailed("It is read-only.")
            return await super().put(key, data, expected=expected)

    scene = Scene()
    scene.storage = ReadOnly()
    index = VectorIndex(scene.storage, scene.embedder)
    await index.add(VectorItem(message("mine"), LetterEmbedder.count(["abc"])[0]))
    scene.storage.is_read_only = True
    assert [one.name for one in await index.search(["abc"])] == ["mine"]


async def test_progress_is_told_and_batches_are_small_enough():
    scene = Scene()
    await scene.put(*(resource(f"n{number}", "word " * 5) for number in range(600)))
    progress: list[tuple[int, int]] = []
    await scene.index.update(scene.resources, lambda done, total: progress.append((done, total)))
    done = [0, *(done for done, _ in progress)]
    # batches are embedded beside each other, and any of them may be ready first
    assert sorted(after - before for before, after in pairwise(done)) == [88, 256, 256]
    assert progress[-1] == (600, 600)
    assert sorted(len(call) for call in scene.embedder.calls) == [88, 256, 256]


async def test_long_texts_are_in_smaller_batches():
    scene = Scene()
    await scene.put(*(resource(f"n{number}", "abcd " * 8000) for number in range(8)))
    await scene.update()
    assert [len(call) for call in scene.embedder.calls] == [4, 4]


async def test_four_batches_are_embedded_at_a_time():
    are_open = asyncio.Event()

    class Slow(LetterEmbedder):
        open = most = 0

        async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            self.open += 1
            self.most = max(self.most, self.open)
            if self.open == 4:
                are_open.set()
            await are_open.wait()
            self.open -= 1
            return await super().embed(texts)

    embedder = Slow()
    scene = Scene(embedder)
    await scene.put(*(resource(f"n{number}", "abc") for number in range(256 * 6)))
    await scene.update()
    assert embedder.most == 4


async def test_what_it_cost_is_in_the_report():
    class Priced(LetterEmbedder):
        async def price(self, tokens: int) -> Decimal | None:
            return Decimal(tokens) / 100

    scene = Scene(Priced())
    await scene.put(resource("one", "abba"))
    report = await scene.index.update(scene.resources)
    assert (report.tokens, report.dollars) == (4, Decimal("0.04"))
    assert report.seconds > 0
    report = await scene.index.update(scene.resources)
    assert (report.tokens, report.dollars) == (0, None)


async def test_what_searches_embed_meanwhile_is_not_in_the_report():
    class Asked(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            await self.embed_queries(["how"])
            return await super().embed(texts)

    scene = Scene(Asked())
    await scene.put(resource("one", "abba"))
    assert (await scene.index.update(scene.resources)).tokens == 4


class Picky(LetterEmbedder):
    """Refuses all texts with a q, and those that are too long."""

    def __init__(self, error: type[CopilotError] = ConfigurationFailed) -> None:
        super().__init__()
        self.error = error

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = await super().embed(texts)
        if any("q" in text for text in texts):
            raise self.error("No q, please.")
        if any(len(text) > 5000 for text in texts):
            raise LimitExceeded("Too long.")
        return vectors


async def test_what_the_provider_refuses_does_not_take_its_batch_along():
    scene = Scene(Picky())
    await scene.put(*(resource(f"n{row}", "q" if row == 77 else "abc") for row in range(200)))
    report = await scene.index.update(scene.resources)
    assert report.failed == {"common.Message.n77": "No q, please."}
    assert report.added == 199
    await scene.put(resource("n77", "abc"))
    assert await scene.update() == (1, 0, 0)


async def test_a_text_that_is_too_long_is_embedded_by_its_beginning():
    scene = Scene(Picky())
    await scene.put(resource("long", "abc" * 5000), resource("short", "xyz"))
    assert await scene.update() == (2, 0, 0)
    assert await scene.search("cab") == ["long"]


async def test_a_text_of_which_no_part_is_short_enough_has_failed():
    scene = Scene(LetterEmbedder(fail=LimitExceeded("Too long.")))
    await scene.put(resource("long", "abc" * 5000))
    report = await scene.index.update(scene.resources)
    assert report.failed == {"common.Message.long": "Too long."}


@in_one_test("error", [NetworkError("Down."), RateLimited("Slow down.")])
async def test_a_provider_that_is_away_is_asked_again_at_the_next_update(error: CopilotError):
    scene = Scene(LetterEmbedder(fail=error))
    await scene.put(resource("one", "abba"), resource("two", "xyz"))
    report = await scene.index.update(scene.resources)
    assert report.failed == dict.fromkeys(
        ["common.Message.one", "common.Message.two"], error.message
    )
    assert len(scene.embedder.calls) == 1
    scene.embedder.fail = None
    assert await scene.update() == (2, 0, 0)


@in_one_test(
    "error",
    [AuthenticationFailed("Wrong key."), ConfigurationFailed("No such model.", status_code=404)],
)
async def test_a_wrong_key_or_model_ends_the_update(error: CopilotError):
    scene = Scene(LetterEmbedder(fail=error))
    await scene.put(*(resource(f"n{number}", "abc") for number in range(256 * 8)))
    with pytest.raises(type(error), match=error.message):
        await scene.index.update(scene.resources)
    assert len(scene.embedder.calls) <= 4


@in_one_test("shape", [(1, 26), (3,), (3, 0), (4, 26)])
async def test_an_embedder_that_returns_something_else_is_told_so(shape: tuple[int, ...]):
    class Wrong(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.ones(shape, np.float32)

    scene = Scene(Wrong())
    await scene.put(*(resource(name, name) for name in "abc"))
    with pytest.raises(Misuse, match="for 3 texts"):
        await scene.index.update(scene.resources)


async def test_a_resource_that_cannot_be_read_does_not_take_the_others_along():
    scene = Scene()
    await scene.put(*(resource(name, name) for name in "abcde"))
    await scene.storage.put("resources/common.Message.c.json", b"no JSON")
    assert await scene.update() == (4, 0, 0)


async def test_a_resource_that_vanishes_meanwhile_is_left_out():
    scene = Scene()
    await scene.put(resource("one", "abc"), resource("two", "abc"))

    class Forgetful(ResourceIndex):
        async def get(self, ids: Any, **options: Any) -> list[Resource]:
            return (await super().get(ids, **options))[:1]

    report = await scene.index.update(Forgetful(scene.storage))
    assert (report.added, report.failed) == (1, {})


async def test_blank_resources_alone_are_no_vectors():
    scene = Scene()
    await scene.put(resource("blank", "  "))
    assert await scene.update() == (0, 0, 0)
    assert await scene.vectors() == {}


async def test_an_update_that_was_cancelled_is_completed_by_the_next():
    stuck = asyncio.Event()

    class Stuck(LetterEmbedder):
        async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            if len(self.calls) == 3:
                stuck.set()
                await asyncio.Event().wait()
            return await super().embed(texts)

    scene = Scene(Stuck())
    await scene.put(*(resource(f"n{number}", "abc") for number in range(256 * 7)))
    task = asyncio.create_task(scene.index.update(scene.resources))
    await stuck.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    survivor = VectorIndex(scene.storage, LetterEmbedder())
    report = await survivor.update(scene.resources)
    assert await survivor.count() == 256 * 7
    assert report.changed == 0


async def test_an_update_of_some_resources_touches_no_others():
    scene = Scene()
    await scene.put(resource("one", "abba"), resource("two", "xyz"), resource("three", "opq"))
    uris = [str(message(name)) for name in ("one", "three", "never")]
    first = await scene.index.update(scene.resources, only=uris)
    assert (first.added, first.changed, first.removed) == (2, 0, 0)
    assert await scene.search("xyz") == []

    await scene.put(resource("one", "xyz"))
    await scene.resources.delete(message("three"))
    second = await scene.index.update(scene.resources, only=uris)
    assert (second.added, second.changed, second.removed) == (0, 1, 1)
    assert await scene.search("xyz") == ["one"]
    assert await scene.update() == (1, 0, 0)


async def test_an_update_of_some_resources_knows_those_in_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("copilot_runtime.extensions.knowledge.vectors.state._MOST_LINES", 1)
    scene = Scene()
    await scene.put(*[resource(f"m{n}", "abba") for n in range(5)])
    await scene.update()
    again = await scene.index.update(scene.resources, only=[str(message("m3"))])
    assert (again.added, again.changed) == (0, 0)
