"""What a vector index answers."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from copilot_runtime.base.errors import Misuse
from copilot_runtime.extensions.knowledge.access import Access
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.index import Filter
from copilot_runtime.extensions.knowledge.vectors import VectorIndex, VectorItem, quantized
from copilot_runtime.storage import MemoryStorage
from tests.extensions.knowledge.vectors.words import LetterEmbedder, message
from tests.in_one_test import in_one_test

pytestmark = pytest.mark.anyio

FOUR = (
    VectorItem(message("a", 10), [1, 0, 0]),
    VectorItem(message("b", 20), [0.6, 0.8, 0]),
    VectorItem(message("c", 30, type="common.Doc"), [0, 1, 0]),
    VectorItem(message("d", 5), [-1, 0, 0]),
)


def multiply(queries: NDArray[np.int8], rows: NDArray[np.int8]) -> NDArray[np.float64]:
    """What `simsimd` does, slowly."""
    return (queries.astype(np.int32) @ rows.astype(np.int32).T).astype(np.float64)


@pytest.fixture(params=["eight bits", "float32"])
def scan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    found = multiply if request.param == "eight bits" else None
    monkeypatch.setattr(quantized, "load_multiplier", lambda: found)
    return request.param


async def make_index(*items: VectorItem) -> VectorIndex:
    index = VectorIndex(MemoryStorage(), LetterEmbedder())
    await index.add(*items)
    return index


async def ask(
    *queries: Sequence[float], diversity: float | None = None, **fields: Any
) -> list[tuple[str, float | None]]:
    """Return names and scores of what is found among the four."""
    index = await make_index(*FOUR)
    found = await index.query(queries, Filter(**fields), diversity=diversity)
    return [(identifier.name, identifier.score) for identifier in found]


def make_matrix(rows: int, size: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, size), np.float32)


def make_items(matrix: NDArray[np.float32], type: str = "common.Message") -> list[VectorItem]:
    return [
        VectorItem(message(f"n{row}", 1, type=type), vector) for row, vector in enumerate(matrix)
    ]


async def test_what_points_the_same_way_comes_first():
    assert await ask([1, 0, 0]) == [("a", 1), ("b", 0.6), ("c", 0)]


async def test_a_threshold_is_the_lowest_score():
    assert await ask([1, 0, 0], threshold=0.6) == [("a", 1), ("b", 0.6)]
    assert await ask([1, 0, 0], threshold=0.61) == [("a", 1)]
    assert [name for name, _ in await ask([1, 0, 0], threshold=-1)] == ["a", "b", "c", "d"]


async def test_a_limit_and_tokens_cut_off_the_end():
    assert await ask([1, 0, 0], limit=1) == [("a", 1)]
    assert await ask([1, 0, 0], max_tokens=30) == [("a", 1), ("b", 0.6)]
    assert await ask([1, 0, 0], max_tokens=29) == [("a", 1)]


async def test_a_thing_of_many_files_is_one_result_and_leaves_room_for_others():
    files = [
        VectorItem(Identifier("common.Message", "a", f"common.Document.d{row}"), [1, row / 100, 0])
        for row in range(30)
    ]
    index = await make_index(*files, *FOUR)
    for diversity in (None, 0.1):
        filter = Filter(distinct=True, limit=2)
        found = await index.query([[1, 0.1, 0]], filter, diversity=diversity)

        assert [*map(str, found)] == ["common.Document.d10/common.Message.a", "common.Message.b"]


async def test_each_result_has_its_best_score_of_several_queries():
    assert await ask([1, 0, 0], [0, 1, 0]) == [("a", 1), ("c", 1), ("b", 0.8), ("d", 0)]


async def test_a_type_and_a_prefix_are_looked_for_alone():
    assert await ask([1, 0, 0], type="common.Doc") == [("c", 0)]
    assert await ask([1, 0, 0], prefix="common.Message.b") == [("b", 0.6)]
    assert await ask([1, 0, 0], prefix="cld:common.Message.b/") == [("b", 0.6)]
    with pytest.raises(Misuse, match="names no resource"):
        await ask([1, 0, 0], prefix="common.Message")


async def test_the_length_of_a_query_counts_for_nothing():
    assert await ask([2, 0, 0]) == [("a", 1), ("b", 0.6), ("c", 0)]
    assert await ask([1e30, 0, 0]) == await ask([1e-30, 0, 0]) == await ask([1, 0, 0])


async def test_a_query_without_direction_is_like_nothing():
    assert await ask([0, 0, 0]) == []
    assert await ask([0, 0, 0], [1, 0, 0]) == await ask([1, 0, 0])
    assert await ask() == []


async def test_an_item_without_direction_is_there_and_is_never_found():
    index = await make_index(VectorItem(message("zero"), [0, 0]), VectorItem(message("x"), [1, 0]))
    assert await index.has("common.Message.zero")
    assert [found.name for found in await index.query([[1, 0]], Filter(threshold=-1))] == ["x"]


@in_one_test(
    ("query", "complaint"),
    [
        ([[1, 0]], "2 dimensions, and those of the index have 3"),
        ([1.0, 0.0, 0.0], "list of lists"),
        ([[1, 0], [1, 0, 0]], "all of one length"),
        ([["a", "b", "c"]], "lists of numbers"),
        ([[float("nan"), 0, 0]], "NaN"),
        ([[float("inf"), 0, 0]], "infinite"),
        ([[1e300, 0, 0]], "infinite"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
async def test_a_query_that_is_no_vector_of_the_index_is_refused(query: Any, complaint: str):
    index = await make_index(*FOUR)
    with pytest.raises(Misuse, match=complaint):
        await index.query(query)


async def test_an_item_of_another_length_is_refused_and_nothing_is_written():
    index = await make_index(*FOUR)
    with pytest.raises(Misuse, match="4 dimensions"):
        await index.add(VectorItem(message("e"), [1, 0, 0, 0]))
    assert not await index.has("common.Message.e")


async def test_an_empty_index_answers_with_nothing():
    index = await make_index()
    assert await index.query([[1, 0]]) == []
    assert await index.search(["a"]) == []
    assert await index.get(["common.Message.a"]) == []
    assert await index.count() == 0


async def test_equal_scores_are_in_the_order_of_their_insertion():
    twins = [VectorItem(message(name), [0.3, 0.4]) for name in "dbca"]
    index = await make_index(*twins)
    await index.add(VectorItem(message("c"), [3, 4]))
    assert [found.name for found in await index.query([[1, 1]])] == [*"dbca"]


async def test_an_item_added_again_is_replaced():
    index = await make_index(VectorItem(message("x", 1), [1, 0]))
    await index.add(VectorItem(message("x", 2), [0, 1]))
    found = await index.query([[0, 1]])
    assert [(one.name, one.score, one.tokens) for one in found] == [("x", 1, 2)]
    assert await index.count() == 1


async def test_an_item_that_was_removed_is_not_there():
    index = await make_index(*FOUR)
    await index.remove(["common.Message.a", "common.Message.unknown"])
    assert [found.name for found in await index.query([[1, 0, 0]])] == ["b", "c"]
    assert await index.get(["common.Message.a", "common.Message.d"]) == [message("d")]


async def test_identifiers_come_back_as_they_were_added():
    identifier = Identifier(
        "common.Message", "m.1/x%", "common.Conversation.c1", tokens=7, subjects=("urn:a", "urn:b")
    )
    index = await make_index(VectorItem(identifier, [1, 0]))
    (found,) = await index.query([[1, 0]])
    assert found == identifier
    assert (found.tokens, found.subjects, found.score) == (7, ("urn:a", "urn:b"), 1)
    assert await index.get([identifier]) == [identifier]
    assert await index.get(None) == []


class Odd(Access):
    """Allows what has an odd number, and counts how often it is asked."""

    def __init__(self) -> None:
        self.questions = 0

    @property
    def key(self) -> Hashable:
        return "odd"

    def allows(self, uri: str) -> bool:
        self.questions += 1
        return int(uri.rpartition("n")[2]) % 2 == 1


async def test_access_is_judged_before_results_are_counted_and_once_for_each_resource(scan: str):
    matrix = make_matrix(3000, 24)
    index = await make_index(*make_items(matrix))
    access = Odd()
    for _ in range(2):
        found = await index.query([matrix[4]], Filter(access=access, limit=100))
        assert len(found) == 100
        assert all(int(one.name[1:]) % 2 for one in found)
    assert access.questions == 3000
    await index.add(VectorItem(message("n3001"), matrix[4]))
    found = await index.query([matrix[4]], Filter(access=access, limit=1))
    assert found == [message("n3001")]


async def test_access_is_asked_only_for_what_type_and_prefix_let_through():
    access = Odd()
    index = await make_index(*make_items(make_matrix(20, 3)))
    await index.query([[1, 0, 0]], Filter(access=access, prefix="common.Message.n3"))
    await index.query([[1, 0, 0]], Filter(access=access, type="common.Doc"))
    assert access.questions == 1


async def test_answers_of_many_people_are_not_remembered_for_ever():
    class Everybody(Access):
        def __init__(self, name: int) -> None:
            self.name = name

        @property
        def key(self) -> Hashable:
            return self.name

        def allows(self, uri: str) -> bool:
            return True

    index = await make_index(*make_items(make_matrix(2, 3)))
    for name in range(100):
        found = await index.query([[1, 0, 0]], Filter(access=Everybody(name), threshold=-1))
        assert len(found) == 2


@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(1, 2500),
    size=st.integers(1, 40),
    queries=st.integers(1, 3),
    limit=st.integers(0, 30),
    threshold=st.one_of(st.none(), st.floats(-1, 1)),
    spread=st.sampled_from([0.0, 0.01, 1.0]),
)
async def test_results_are_those_of_a_full_comparison(
    seed: int,
    rows: int,
    size: int,
    queries: int,
    limit: int,
    threshold: float | None,
    spread: float,
):
    """With a small spread, all scores are near each other; with none, they are equal."""
    random = np.random.default_rng(seed)
    matrix = 1 + spread * random.standard_normal((rows, size))
    asked = 1 + spread * random.standard_normal((queries, size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantized, "load_multiplier", lambda: multiply)
        index = await make_index(*make_items(matrix.astype(np.float32)))
        found = await index.query([*asked], Filter(limit=limit, threshold=threshold))
    exact = score_fully(matrix, asked)
    floor = (threshold or 0) - 5e-7
    count = int((exact >= floor).sum())
    assert abs(len(found) - (min(limit, count) if limit else count)) <= int(
        np.isclose(exact, floor, atol=1e-6).sum()
    )
    best = np.sort(exact)[::-1][: len(found)]
    assert np.allclose([one.score for one in found if one.score is not None], best, atol=2e-6)


def score_fully(matrix: NDArray[np.float64], queries: NDArray[np.float64]) -> NDArray[np.float64]:
    matrix = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return (matrix @ queries.T).max(axis=1)


async def test_the_ten_best_of_many_are_exact(scan: str):
    matrix = make_matrix(20_000, 96)
    index = await make_index(*make_items(matrix))
    length = np.linalg.norm(matrix.astype(np.float64), axis=1)
    for query in make_matrix(30, 96, seed=1):
        scores = matrix.astype(np.float64) @ query / length
        expected = [f"n{row}" for row in np.argsort(-scores, kind="stable")[:10]]
        assert [one.name for one in await index.query([query], Filter(limit=10))] == expected


async def test_a_few_rows_of_many_are_found_by_their_type(scan: str):
    matrix = make_matrix(4000, 24)
    index = await make_index(*make_items(matrix[:3990]), *make_items(matrix[3990:], "common.Doc"))
    found = await index.query([matrix[0]], Filter(type="common.Doc", limit=3, threshold=-1))
    scores = [float(one.score or 0) for one in found]
    assert [one.type for one in found] == ["common.Doc"] * 3
    assert scores == sorted(scores, reverse=True)


async def test_results_are_as_many_as_tokens_allow_however_many_that_are(scan: str):
    index = await make_index(*make_items(np.abs(make_matrix(6000, 8))))
    for tokens in (100, 3000, 5000, 10_000):
        found = await index.query([[1] * 8], Filter(max_tokens=tokens))
        assert len(found) == min(tokens, 6000)


async def test_tokens_can_be_limited_only_where_they_are_counted():
    index = await make_index(VectorItem(message("x"), [1, 0]))
    with pytest.raises(Misuse, match="missing tokens"):
        await index.query([[1, 0]], Filter(max_tokens=5))


async def test_with_diversity_results_are_not_all_the_same():
    items = [
        VectorItem(message("one"), [1, 0, 0]),
        VectorItem(message("same"), [0.999, 0.04, 0]),
        VectorItem(message("other"), [0.7, 0, 0.7]),
    ]
    index = await make_index(*items)

    async def names(diversity: float | None, limit: int = 2) -> list[str]:
        found = await index.query([[1, 0, 0.3]], Filter(limit=limit), diversity=diversity)
        return [one.name for one in found]

    assert await names(None) == await names(0) == ["one", "same"]
    assert await names(0.5) == await names(1) == ["one", "other"]
    assert sorted(await names(0.5, limit=0)) == ["one", "other", "same"]
    assert await index.query([[-1, 0, 0]], diversity=0.5) == []


@in_one_test("diversity", [-0.1, 1.1, float("nan")])
async def test_a_diversity_that_is_none_is_refused(diversity: float):
    index = await make_index(*FOUR)
    with pytest.raises(Misuse, match="between 0 and 1"):
        await index.query([[1, 0, 0]], diversity=diversity)


async def test_texts_are_embedded_as_questions():
    embedder = LetterEmbedder()
    index = VectorIndex(MemoryStorage(), embedder)
    await index.add(
        *(
            VectorItem(message(word), row)
            for word, row in zip(
                ["abba", "cab", "xyz"], embedder.count(["abba", "cab", "xyz"]), strict=True
            )
        )
    )
    found = await index.search(["baab", "  "], Filter(limit=1))
    assert [(one.name, one.score) for one in found] == [("abba", 1)]
    assert embedder.questions == [["baab"]]
    assert embedder.calls == []
    assert [one.name for one in await index.search("zyx", Filter(limit=1))] == ["xyz"]
    assert await index.search([" ", ""]) == []


async def test_closing_closes_the_embedder():
    embedder = LetterEmbedder()
    await VectorIndex(MemoryStorage(), embedder).aclose()
    assert embedder.is_closed


async def test_simsimd_is_used_where_it_is_installed():
    pytest.importorskip("simsimd")
    quantized.load_multiplier.cache_clear()
    found = quantized.load_multiplier()
    assert found is not None
    rows = np.array([[1, -2, 127], [0, 0, 0], [-127, 127, 3]], np.int8)
    assert found(rows[:2], rows).tolist() == multiply(rows[:2], rows).tolist()


async def test_without_simsimd_float32_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "simsimd", None)
    quantized.load_multiplier.cache_clear()
    assert quantized.load_multiplier() is None
    quantized.load_multiplier.cache_clear()
