"""Context windows and prices of models, from the package `genai-prices`.

The data is part of the package and is read on first use (half a second, 30 MB); `load_prices` does
that in a thread. It contains neither output limits nor capabilities. Nothing is downloaded; for
newer prices, call `genai_prices.UpdatePrices` before the start.
"""

import asyncio
import logging
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from copilot_runtime.api.events import Usage
from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.telemetry.span import Span

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

logger = logging.getLogger(__name__)

_LONGEST_NAME = 200

_TUNED = "ft:"
"""The prefix of OpenAI's fine-tuned models, which have prices of their own."""

_PATH = re.compile(
    r"^(arn:[^/]*/"  # Bedrock
    r"|(.*/)?(models|deployments|engines|routers)/)"  # Gemini, Vertex, Fireworks, Azure
)
_DATE = re.compile(r"[-@](20\d{2}-?[01]\d-?[0-3]\d|\d{4}|\d{3}|latest)$")


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts about one model at one provider; `None` means unknown.

    `context_tokens` is the whole window, for input and output together.
    """

    context_tokens: int | None = None
    deprecated: bool = False
    priced: "tuple[Provider, ModelInfo] | None" = None
    _rates: "dict[int, _Rates]" = field(
        default_factory=dict[int, "_Rates"], init=False, repr=False, compare=False
    )
    """The rates by the identity of the model's prices, which may depend on the time of the day."""

    def price(self, usage: Usage, *, at: datetime | None = None) -> Decimal | None:
        """Return the cost of a model call in US dollars, or `None` without a price.

        The prices are those at the time `at`, by default the current ones.
        """
        if self.priced is None:
            return None
        prices = self.priced[1].get_prices(at or datetime.now(UTC))
        sent, answered = usage.input_tokens or 0, usage.output_tokens or 0
        read, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
        try:
            rates = self._rates.get(id(prices))
            if rates is None:
                rates = self._rates[id(prices)] = _find_rates(prices)
            if read + written > sent or sent > rates.max_input or min(answered, read, written) < 0:
                return _calculate(prices, sent, answered, read, written)
        except ValueError:  # the provider's counts contradict each other
            return None
        return (
            rates.request
            + rates.input * (sent - read - written)
            + rates.output * answered
            + rates.cache_read * read
            + rates.cache_write * written
        )


class _Rates(NamedTuple):
    """The dollars for a request and for each token, for requests up to `max_input` tokens.

    `genai-prices` needs 50 times as long to find them anew for each request.
    """

    request: Decimal
    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal
    max_input: float


def _find_rates(prices: "ModelPrice") -> _Rates:
    from genai_prices.types import TieredPrices

    tiered = [price for price in vars(prices).values() if isinstance(price, TieredPrices)]
    starts = [tier.start for price in tiered for tier in price.tiers]
    request = _calculate(prices)
    return _Rates(
        request,
        input=_calculate(prices, 1) - request,
        output=_calculate(prices, 0, 1) - request,
        cache_read=_calculate(prices, 1, read=1) - request,
        cache_write=_calculate(prices, 1, written=1) - request,
        max_input=min(starts, default=inf),
    )


def _calculate(
    prices: "ModelPrice", sent: int = 0, answered: int = 0, read: int = 0, written: int = 0
) -> Decimal:
    """Return the cost of these counts. Raises `ValueError` if they contradict each other."""
    from genai_prices import Usage as Counted

    counted = Counted(
        input_tokens=sent,
        output_tokens=answered,
        cache_read_tokens=read or None,
        cache_write_tokens=written or None,
    )
    return prices.calc_price(counted)["total_price"]


UNKNOWN = ModelFacts()


async def load_prices() -> None:
    """Read the data in a thread, so that the first look-up does not block the event loop."""
    await asyncio.to_thread(load_prices_now)


async def load_installed_prices() -> None:
    """Read the data in a thread, unless it has been read or `genai-prices` is not installed."""
    if not are_prices_loaded() and find_spec("genai_prices") is not None:
        await load_prices()


def load_prices_now() -> None:
    """Read the data in this thread."""
    _providers()


def are_prices_loaded() -> bool:
    """Return whether the data has been read, so that a look-up does not block."""
    return _providers.cache_info().currsize > 0


async def find_price(usage: Usage) -> Decimal | None:
    """Return the cost of a response in US dollars, or `None` for a model without a price."""
    if not are_prices_loaded():
        await load_prices()
    return find_model_facts(usage.provider, usage.model).price(usage)


def price_usage(usage: Usage, provider: str = "") -> float | None:
    """Return the cost of a response in US dollars; `None` without a price, or before loading.

    `provider` is the provider's name as in `ADAPTERS`; by default, that of the usage.
    """
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    if usage.dollars is not None:
        return usage.dollars
    if not are_prices_loaded():
        begin_loading()
        return None
    price = find_model_facts(provider or usage.provider, usage.model).price(usage)
    return None if price is None else float(price)


@cache
def begin_loading() -> None:
    """Begin to read the data in a thread, or log once that there is none."""
    if missing := describe_missing_prices():
        logger.info("Traces have no costs. %s", missing)
    else:
        threading.Thread(target=load_prices_now, name="prices", daemon=True).start()


def describe_missing_prices() -> str:
    """Return how to install the prices, or an empty string if they are installed."""
    if find_spec("genai_prices") is not None:
        return ""
    return MissingPackage("The cost of requests to models", "genai-prices", "prices").message


async def finish_loading(span: Span) -> None:
    """Wait until the data for the cost of a request is read: the first answer has one, too."""
    if span.is_recording and span.kind != "internal":  # a model of this process has no price
        await load_installed_prices()


@lru_cache(maxsize=256)  # a client may name a model in each request
def find_model_facts(provider: str, model: str) -> ModelFacts:
    """Return the facts about `model`, looked up by its name at `provider` or elsewhere.

    `provider` is a name in `ADAPTERS`. Prices are those of the provider only, or those of the
    vendor if `provider` is empty. If the provider lists no window, it is the median of other
    providers. The facts about an unknown name (a deployment) are `UNKNOWN`.
    """
    names = _spellings(model)
    found = _find_offer(provider, names)
    window = (found and found[1].context_window) or _find_common_window(names)
    if found is None:
        return ModelFacts(window) if window else UNKNOWN
    return ModelFacts(window, bool(found[1].deprecated), found)


def _spellings(model: str) -> list[str]:
    """Return the names to look for, the most exact first."""
    whole = model.strip().lower()[:_LONGEST_NAME]
    name = _PATH.sub("", whole)
    vendorless = name.rpartition("/")[2]
    names = [whole, name, vendorless]
    if not name.startswith(_TUNED):
        names += [
            name.partition(":")[0],
            vendorless.replace(":", "-"),
            vendorless.partition(":")[0],
        ]
        names.append(_DATE.sub("", names[-1]))
    return [name for name in dict.fromkeys(names) if name]


def _find_offer(provider: str, names: Iterable[str]) -> "tuple[Provider, ModelInfo] | None":
    providers = _providers()
    for name in names:
        for candidate in _find_providers(provider, name):
            if model := candidate.find_model(name, all_providers=providers):
                return candidate, model
    return None


def _find_providers(provider: str, model: str) -> "Iterable[Provider]":
    """Return the provider of this name, or the vendors of `model` if the name is empty."""
    if provider:
        from genai_prices.data_snapshot import find_provider_by_id

        found = find_provider_by_id(_providers(), provider)
        return [found] if found else []
    return (p for p in _providers() if p.model_match is not None and p.model_match.is_match(model))


def _find_common_window(names: list[str]) -> int | None:
    if names and names[-1].startswith(_TUNED):  # ft:gpt-4o:company::id has the window of gpt-4o
        names = _spellings(names[-1].split(":")[1])
    for name in names:
        windows = [
            model.context_window
            for provider in _providers()
            for model in provider.models
            if model.context_window and _is_called(model, name)
        ]
        if windows:
            return sorted(windows)[(len(windows) - 1) // 2]  # the lower of two in the middle
    return None


def _is_called(model: "ModelInfo", name: str) -> bool:
    return model.id.rpartition("/")[2] == name or model.is_match(name)


@cache
def _providers() -> "list[Provider]":
    from genai_prices.data_snapshot import get_snapshot

    return get_snapshot().providers
