"""Find out what a remote endpoint offers, as seldom as is right.

An endpoint may offer something else to somebody else: whatever it is told is part of the question,
and only the same question has the same answer.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from copilot_runtime.agents.remote.catalog import Offer, read_offer
from copilot_runtime.agents.remote.link import INFO, Link, is_good
from copilot_runtime.errors import (
    RUN_FAILED,
    ApiNotFound,
    AuthenticationFailed,
    CopilotError,
    NetworkError,
)
from copilot_runtime.interfaces import Caller
from copilot_runtime.jsontext import dumps

logger = logging.getLogger(__name__)

_MOST_QUESTIONS = 256
_HELP = ApiNotFound.help_url


@dataclass(slots=True)
class _Known:
    """The last good answer to one question, or why there is none.

    `who` is the question without the page it was asked from.
    """

    who: object
    offer: Offer = field(default_factory=Offer)
    answered: bool = False
    until: float = 0.0
    asking: "asyncio.Task[None] | None" = None


class Discovery:
    """Remembers for `ttl` seconds, and asks one that failed again after `pause`.

    Who asks waits `patience` seconds at most. What was known of an endpoint that is down is still
    said, together with the failure.
    """

    def __init__(self, link: Link, *, ttl: float, pause: float, patience: float) -> None:
        self._link = link
        self._ttl = ttl
        self._pause = pause
        self._patience = patience
        self._known: OrderedDict[object, _Known] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly

    async def offer(self, caller: Caller) -> Offer:
        """Return what there is for this caller. Raises nothing but `CancelledError`."""
        try:
            headers = await self._link.headers(caller)
        except Exception as error:  # of the application's hook
            return Offer(failure=self._failed(error))
        page = {"frontendUrl": caller.url} if caller.url else {}
        body = {"properties": {**caller.properties}, **page}
        who = (*sorted(headers.items()), dumps(body["properties"]))
        known = self._remembered(who, caller.url)
        if monotonic() >= known.until:
            await asyncio.wait([self._asking(known, headers, body)])
        return known.offer

    async def aclose(self) -> None:
        """Ask no more."""
        loop = asyncio.get_running_loop()
        tasks = [task for task in self._tasks if task.get_loop() is loop]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _remembered(self, who: object, page: str | None) -> _Known:
        question = (who, page)
        known = self._known.setdefault(question, _Known(who))
        self._known.move_to_end(question)
        if len(self._known) > _MOST_QUESTIONS:
            self._known.popitem(last=False)
        return known

    def _asking(
        self, known: _Known, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> "asyncio.Task[None]":
        """Return the one task that asks, whoever waits for it."""
        task = known.asking
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            work = self._renew(known, headers, body)
            task = known.asking = asyncio.create_task(work, name=f"discover:{self._link.shown}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return task

    async def _renew(
        self, known: _Known, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> None:
        try:
            async with asyncio.timeout(self._patience):
                known.offer = await self._ask(headers, body)
                known.answered = True
        except AuthenticationFailed as error:  # an answer, too: what was known no longer counts
            known.answered, known.offer = False, Offer(failure=self._failed(error))
            known.until = monotonic() + self._pause
        except Exception as error:  # whatever it is, it must not cost a chat
            known.offer = replace(self._last(known), failure=self._failed(error))
            known.until = monotonic() + self._pause
        else:
            known.until = monotonic() + self._ttl

    def _last(self, known: _Known) -> Offer:
        """Return what was answered last, on this page or else to the same caller on another."""
        if known.answered:
            return known.offer
        others = reversed(self._known.values())
        same = (other.offer for other in others if other.answered and other.who == known.who)
        return next(same, Offer())

    async def _ask(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> Offer:
        status, answer = await self._link.json(INFO, body, headers)
        url = f"{self._link.shown}/{INFO.first}"
        if status in (404, 405):
            raise ApiNotFound(
                f"Failed to find CopilotKit API endpoint at url {url} when fetching CopilotKit "
                f"info.\n\nSee more: [{_HELP}]({_HELP})",
                hint="Is it the URL of `add_fastapi_endpoint`, and is that server up to date?",
            )
        if not is_good(status):
            hint = f"{url} answered {status}. {answer['error'] or 'It gave no reason.'}"
            if status in (401, 403):
                raise AuthenticationFailed("A remote endpoint refuses this request.", hint=hint)
            raise CopilotError("Unknown error occurred", hint=hint)
        try:
            return read_offer(answer)
        except ValueError as error:
            raise NetworkError(
                "A remote endpoint answered with something else than what it offers.",
                hint=f"{url} is no remote endpoint of CopilotKit. {error}",
            ) from error

    def _failed(self, error: Exception) -> CopilotError:
        """Tell the log, and return what others may know."""
        if isinstance(error, TimeoutError):
            error = NetworkError(
                "A remote endpoint did not say in time what it offers.",
                status_code=504,
                hint=f"It took longer than {self._patience:g} s.",
            )
        if isinstance(error, CopilotError):
            hint = f" ({error.hint})" if error.hint else ""
            logger.warning("Remote endpoint %s: %s%s", self._link.shown, error.message, hint)
            return error
        logger.error("Remote endpoint %s could not be asked", self._link.shown, exc_info=error)
        return CopilotError(RUN_FAILED.message)
