"""An adapter that limits the tokens or dollars of each user."""

import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec

from copilot_runtime.adapters.chat_span import estimate_usage, has_counts, measure_event
from copilot_runtime.adapters.context_window import WrapperAdapter
from copilot_runtime.adapters.pricing import find_price
from copilot_runtime.api.adapter import Adapter, ChatRequest, SupportsStream
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.events import Events, Usage
from copilot_runtime.base.errors import ConfigurationFailed, MissingPackage, RateLimited

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Spent:
    """The usage of one user since `began`, in seconds since 1970."""

    began: float
    tokens: int = 0
    dollars: Decimal = Decimal(0)


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
        self._users: dict[str | None, _Spent] = {}
        self._swept = clock()
        self._unpriced: set[str] = set()

    async def stream(self, request: ChatRequest) -> Events:
        """Yield the adapter's events. Raises `RateLimited` if the budget is spent."""
        spent = self._spent(request.user)
        self._refuse(spent)
        characters, is_counted, is_left = 0, False, True
        try:
            async with aclosing(self.adapter.stream(request)) as events:
                async for event in events:
                    if isinstance(event, Usage) and has_counts(event):
                        is_counted = True
                        await self._count(event, spent)
                    else:
                        characters += measure_event(event)
                    yield event
            is_left = False
        except Exception:
            is_left = False
            raise
        finally:
            if not is_counted and (characters or is_left):
                await self._count(estimate_usage(self.adapter, request, characters), spent)

    def _spent(self, user: str | None) -> _Spent:
        now = self._clock()
        if now - self._swept >= self.period:
            self._swept = now
            self._users = {u: s for u, s in self._users.items() if now - s.began < self.period}
        spent = self._users.get(user)
        if spent is None or now - spent.began >= self.period:
            spent = self._users[user] = _Spent(now)
        return spent

    def _refuse(self, spent: _Spent) -> None:
        """Raise if the budget is spent."""
        if self.tokens is not None and spent.tokens >= self.tokens:
            budget = f"{self.tokens:,} tokens"
        elif self.dollars is not None and spent.dollars >= self.dollars:
            budget = f"{self.dollars} US dollars"
        else:
            return
        free = spent.began + self.period
        when = datetime.fromtimestamp(free, UTC).strftime("%Y-%m-%d %H:%M UTC")
        raise RateLimited(
            f"You have used up your {budget}. You can ask again from {when}.",
            retry_after=max(free - self._clock(), 0.0),
            kind="BudgetSpent",
        )

    async def _count(self, usage: Usage, spent: _Spent) -> None:
        spent.tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
        if self.dollars is None:
            return
        price = await find_price(usage)
        if price is not None:
            spent.dollars += price
        elif usage.model not in self._unpriced and len(self._unpriced) < 100:
            self._unpriced.add(usage.model)
            logger.warning("No price is known for %r: it is not budgeted.", usage.model)
