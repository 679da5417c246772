"""Keeps requests to models within budgets, and an adapter with a budget for each user.

Providers send their counts with the last event of a response. For a request that ends earlier, its
tokens are estimated: about one for each `CHARACTERS_PER_TOKEN` characters that were sent or
streamed.
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from typing import NamedTuple

from copilot_runtime.adapters.attachments import IMAGE_TOKENS, estimate_tokens
from copilot_runtime.adapters.context_window import (
    WindowedAdapter,
    WrapperAdapter,
    count_characters,
    find_profile,
)
from copilot_runtime.adapters.history import CHARACTERS_PER_TOKEN
from copilot_runtime.adapters.media.results import split_result
from copilot_runtime.adapters.pricing import load_installed_prices, price_usage
from copilot_runtime.adapters.streaming import encode_body
from copilot_runtime.adapters.tools import select_tools
from copilot_runtime.api.adapter import Adapter, ChatRequest, SupportsStream
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.budget import Budget, Cost, Limit
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Events,
    ReasoningContent,
    TextMessageContent,
    Usage,
)
from copilot_runtime.api.messages import (
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import find_budget
from copilot_runtime.base.concurrency import has_running_loop
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import (
    ConfigurationFailed,
    CopilotError,
    MissingPackage,
    RateLimited,
)
from copilot_runtime.telemetry import semconv
from copilot_runtime.telemetry.span import Span

logger = logging.getLogger(__name__)

_UNPRICED = Cost()
_OUTPUT_TOKENS = 1024
"""The output tokens to expect from a request without `max_tokens`."""


def stream_within(budget: Budget | None, adapter: Adapter, request: ChatRequest) -> Events:
    """Yield the events of a model's response, whose cost is counted in a budget.

    Raises the error of a limit that is reached, and those of the adapter.
    """
    if budget is None:
        return adapter.stream(request)
    return _stream_within(budget, adapter, request)


async def settle_usage(budget: Budget, events: Events) -> Events:
    """Yield an agent's events; count the usage of models that it calls without our adapters.

    Such an agent is limited where it goes on with the result of a call: raises the error of a
    limit that is reached.
    """
    budget.watch()
    is_foreign = False
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Usage) and not budget.forget(event):
                is_foreign = True
                await budget.settle(await _price(budget, [event]))
            yield event
            if is_foreign and isinstance(event, ActionExecutionResult):
                await budget.check()


@asynccontextmanager
async def count_request(expected: Usage) -> AsyncGenerator[list[Usage], None]:
    """Count the tokens and dollars of a request to a model other than a chat.

    They count in the budget of the current run or caller, where a limit of requests is not about
    them. Yields the list for its usage, which also counts if the block is left by an error. Raises
    the error of a limit that is reached.
    """
    usages: list[Usage] = []
    if (budget := find_budget()) is None:
        yield usages
        return
    price = await _price(budget, [expected])
    reserved = await budget.reserve(price._replace(requests=0))
    try:
        yield usages
    finally:
        price = await _price(budget, usages)
        await budget.settle(price._replace(requests=0), reserved)


class _Period(NamedTuple):
    """The budget of one user since `began`, in seconds since 1970."""

    began: float
    budget: Budget


class BudgetedAdapter(WrapperAdapter):
    """Limits each user to a number of `tokens` or `dollars` in each `period`.

    A period starts with a user's first request; the answer that exceeds the limit is completed.
    Unauthenticated users share one budget. Usage is counted in the memory of this process: each
    server has its own count and loses it at a restart. Tokens are those that the provider counts,
    or an estimate for answers that ended without counts. Prices are those of `genai-prices`; a
    model without a price costs nothing, which is logged. When a budget is spent, requests raise
    `RateLimited`, after which a `FallbackAdapter` may try a cheaper model.

    Args:
        adapter: The adapter that answers.
        tokens: Maximum number of input and output tokens per user and period; None: no limit.
        dollars: Maximum cost per user and period, in US dollars; None: no limit.
        period: The length of a period.
        clock: Returns the time in seconds since 1970.

    Raises:
        ConfigurationFailed: Neither `tokens` nor `dollars` is set.
        MissingPackage: A limit of dollars needs `genai-prices`.
    """

    def __init__(
        self,
        adapter: SupportsStream,
        *,
        tokens: int | None = None,
        dollars: float | Decimal | None = None,
        period: timedelta = timedelta(days=1),
        clock: Callable[[], float] = time.time,
    ) -> None:
        if tokens is None and dollars is None:
            raise ConfigurationFailed("A budget needs `tokens` or `dollars`.")
        if dollars is not None and find_spec("genai_prices") is None:
            raise MissingPackage("A budget in dollars", "genai-prices", "prices")
        super().__init__(complete(Adapter, adapter))
        self.model: str | None = getattr(adapter, "model", None)
        self.tokens = tokens
        self.dollars = None if dollars is None else Decimal(str(dollars))
        self.period = period.total_seconds()
        self._clock = clock
        self._users: dict[str | None, _Period] = {}
        self._swept = clock()
        self._unpriced: set[str] = set()

    def stream(self, request: ChatRequest) -> Events:
        """Yield the adapter's events. Raises `RateLimited` if the budget is spent."""
        return stream_within(self._find_budget(request.user), self.adapter, request)

    def _find_budget(self, user: str | None) -> Budget:
        now = self._clock()
        if now - self._swept >= self.period:
            self._swept = now
            self._users = {u: p for u, p in self._users.items() if now - p.began < self.period}
        period = self._users.get(user)
        if period is None or now - period.began >= self.period:
            period = self._users[user] = _Period(now, self._build_budget(now))
        return period.budget

    def _build_budget(self, began: float) -> Budget:
        def refuse(amount: str) -> RateLimited:
            free = began + self.period
            when = datetime.fromtimestamp(free, UTC).strftime("%Y-%m-%d %H:%M UTC")
            return RateLimited(
                f"You have used up your {amount}. You can ask again from {when}.",
                retry_after=max(free - self._clock(), 0.0),
                kind="BudgetSpent",
            )

        limits: list[Limit] = []
        if self.tokens is not None:
            limits.append(Limit("tokens", self.tokens, lambda _: refuse(f"{self.tokens:,} tokens")))
        if self.dollars is not None:
            most, text = float(self.dollars), f"{self.dollars} US dollars"
            limits.append(Limit("dollars", most, lambda _: refuse(text)))
        return Budget(limits, record=self._warn_of_price)

    async def _warn_of_price(self, cost: Cost) -> None:
        if self.dollars is None or not cost.unpriced or cost.unpriced in self._unpriced:
            return
        if len(self._unpriced) < 100:
            self._unpriced.add(cost.unpriced)
            logger.warning("No price is known for %r: it is not budgeted.", cost.unpriced)


async def _stream_within(budget: Budget, adapter: Adapter, request: ChatRequest) -> Events:
    counts = budget.counts_usage
    expected = _estimate_usage(adapter, request) if counts else Usage(model="")
    is_outermost = request.budget is None
    if is_outermost:
        request = copy_with(request, budget=budget)
    reserved = await budget.reserve(await _price(budget, [expected]) if counts else _UNPRICED)
    usages: list[Usage] = []
    characters, is_left = 0, True
    try:
        async with aclosing(adapter.stream(request)) as events:
            async for event in events:
                if isinstance(event, Usage):
                    budget.remember(event)
                    if _has_counts(event):
                        usages.append(event)
                elif counts:
                    characters += _measure_event(event)
                yield event
        is_left = False
    except Exception:
        is_left = False
        raise
    finally:
        # without output, a request that failed has used nothing, and one that was left its input
        if counts and not usages and (characters or is_left):
            output = -(-characters // CHARACTERS_PER_TOKEN)
            usages.append(replace(expected, output_tokens=output))
            if is_outermost:  # a trace has the same counts as the budget
                _add_estimate(request.span, usages[-1])
        if has_running_loop():  # else an abandoned run is garbage-collected
            await budget.settle(await _price(budget, usages) if counts else _UNPRICED, reserved)


async def _price(budget: Budget, usages: Sequence[Usage]) -> Cost:
    """Return the cost of a request; its dollars if they are limited or recorded."""
    tokens, dollars, unpriced = 0, 0.0, ""
    counts_dollars = budget.counts("dollars")
    if counts_dollars:
        await load_installed_prices()
    for usage in usages:
        tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
        if (counts_dollars or budget.records) and _has_counts(usage):
            price = price_usage(usage)
            dollars += price or 0.0
            unpriced = usage.model if price is None else unpriced
    return Cost(tokens, dollars, unpriced=unpriced)


def _estimate_usage(adapter: Adapter, request: ChatRequest) -> Usage:
    """Return the usage to expect from a request."""
    if isinstance(adapter, WindowedAdapter):
        with suppress(CopilotError):
            request = adapter.window.fit(request)
    endpoint = adapter.endpoint(request)
    sent = sum(map(_measure_message, request.messages))
    if request.actions:
        sent += len(encode_body(select_tools(request.actions)))
    most = find_profile(endpoint.model).context_tokens  # longer input was truncated or refused
    return Usage(
        model=endpoint.model,
        provider=endpoint.provider,
        input_tokens=min(sent // CHARACTERS_PER_TOKEN, most),
        output_tokens=request.parameters.max_tokens or _OUTPUT_TOKENS,
        dollars=0.0 if endpoint.in_process else None,  # no list of prices has such a model
    )


def _add_estimate(span: Span, usage: Usage) -> None:
    span.set_attributes(
        {
            semconv.USAGE_INPUT_TOKENS: usage.input_tokens,
            semconv.USAGE_OUTPUT_TOKENS: usage.output_tokens,
            semconv.USAGE_ESTIMATED: True,
            semconv.COST_DOLLARS: price_usage(usage),
        }
    )


def _has_counts(usage: Usage) -> bool:
    """Return whether a usage has token counts: some providers send the stop reason only."""
    return usage.input_tokens is not None or usage.output_tokens is not None


def _measure_event(event: Event) -> int:
    """Return the number of characters in an event that the model has generated."""
    match event:
        case TextMessageContent(content=text) | ReasoningContent(content=text):
            return len(text)
        case ActionExecutionArgs(delta=text) | ActionExecutionStart(name=text):
            return len(text)
        case _:
            return 0


def _measure_message(message: Message) -> int:
    """Return the number of characters of a message, with an equivalent for its media."""
    if isinstance(message, ResultMessage):
        message = split_result(message)
    tokens = 0
    if isinstance(message, ImageMessage):
        tokens = IMAGE_TOKENS
    elif isinstance(message, TextMessage | ResultMessage) and message.parts:
        media = (part for part in message.parts if isinstance(part, MediaPart))
        tokens = sum(map(estimate_tokens, media))
    return count_characters(message) + tokens * CHARACTERS_PER_TOKEN
