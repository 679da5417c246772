"""Plays a scenario once."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal

from copilot_runtime.adapters.empty import EmptyAdapter
from copilot_runtime.api.adapter import Adapter, ChatRequest
from copilot_runtime.api.events import Events
from copilot_runtime.api.messages import new_id
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.extensions.scenarios.definition import (
    Expectation,
    JudgeCheck,
    Scenario,
    ScriptedAnswer,
    ScriptedCall,
    Turn,
)
from copilot_runtime.extensions.scenarios.expectations import Failure, find_failures
from copilot_runtime.extensions.scenarios.judge import Vote, judge
from copilot_runtime.extensions.scenarios.models import (
    AttemptModels,
    ModelChoice,
    ScriptPlayer,
    choose_model,
)
from copilot_runtime.extensions.scenarios.record import (
    TurnRecord,
    add_spans,
    build_record,
    join_records,
    sum_spending,
)
from copilot_runtime.extensions.scenarios.target import Target, stop_run
from copilot_runtime.extensions.scenarios.values import format_value
from copilot_runtime.testing.client import Client, Reply
from copilot_runtime.testing.protocols import ReplyFailed

Outcome = Literal["passed", "failed", "error", "skipped"]


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The result of playing a scenario once."""

    number: int
    outcome: Outcome = "passed"
    error: str = ""
    """The error that ended the attempt early; empty if there was none."""
    failures: list[Failure] = field(default_factory=list[Failure])
    turns: list[TurnRecord] = field(default_factory=list[TurnRecord])
    votes: list[Vote] = field(default_factory=list[Vote])
    thread_id: str = ""
    is_scripted: bool = False
    is_unfinished: bool = False
    """True while a turn is in progress, and after one was aborted."""
    seconds: float = 0.0


class Player:
    """Plays scenarios against a target.

    Args:
        target: The target of the conversations, already open.
        is_offline: Whether only scripted models may be requested.
        is_live: Whether scripts are ignored.
        judge_model: The judge's model, unless a scenario names one.
    """

    def __init__(
        self,
        target: Target,
        *,
        is_offline: bool = False,
        is_live: bool = False,
        judge_model: str | None = None,
    ) -> None:
        self._target = target
        self._is_offline = is_offline
        self._is_live = is_live or not target.is_local
        self._judge_model = judge_model
        self._choices: dict[str, ModelChoice] = {}

    async def aclose(self) -> None:
        """Close the connections to models that scenarios or options named."""
        for choice in self._choices.values():
            if choice.adapter is not None:
                await choice.adapter.aclose()

    async def play(self, scenario: Scenario, model: str | None, number: int) -> Attempt:
        """Play a scenario and return the attempt. Raises nothing but `CancelledError`."""
        attempt = Attempt(number=number, thread_id=new_id())
        start = monotonic()
        limit = asyncio.timeout(scenario.timeout)
        try:
            async with limit:
                await self._play(scenario, model, attempt)
        except TimeoutError:
            late = f"It took longer than {scenario.timeout:g} s."
            attempt.error = late if limit.expired() else "Something in it took too long."
        except CopilotError as error:
            attempt.error = f"{error.message} {error.hint}" if error.hint else error.message
        except Exception as error:  # the application's code may raise anything
            attempt.error = f"{type(error).__name__}: {error}"
        attempt.seconds = monotonic() - start
        if attempt.error:
            attempt.outcome = "error"
        elif attempt.failures:
            attempt.outcome = "failed"
        return attempt

    def _choose(self, name: str) -> ModelChoice:
        if name not in self._choices:
            self._choices[name] = choose_model(name)
        return self._choices[name]

    async def _play(self, scenario: Scenario, model: str | None, attempt: Attempt) -> None:
        attempt.is_scripted = scenario.is_scripted and not self._is_live
        script = ScriptPlayer() if attempt.is_scripted else None
        if script or model:
            self._target.check_models()
        if self._is_offline and script is None:
            raise Misuse("The scenario has no script, and --offline allows no other model.")
        choice = None if model is None else self._choose(model)
        models = AttemptModels(script, choice, is_offline=self._is_offline)
        if script is not None:
            script.extend(scenario.script)
        with self._target.attach(attempt.thread_id, models, scenario.stubs):
            client = self._target.connect(scenario, attempt.thread_id)
            try:
                await self._converse(client, scenario, models, attempt)
            finally:
                if attempt.is_unfinished:
                    await asyncio.shield(asyncio.create_task(stop_run(client)))
        if attempt.error:
            return
        if script is not None and (leftovers := script.list_leftovers()):
            texts = "; ".join(map(repr, leftovers))
            attempt.failures.append(
                Failure("script", "every answer is used", f"no request used {texts}")
            )
        whole = join_records(attempt.turns)
        await self._check(scenario.expect, whole, attempt, scenario, None)

    async def _converse(
        self, client: Client, scenario: Scenario, models: AttemptModels, attempt: Attempt
    ) -> None:
        agent = scenario.agent or "default"
        for number, turn in enumerate(scenario.conversation, 1):
            if models.script is not None:
                models.script.extend(turn.script)
            before = replace(models.spending)
            attempt.is_unfinished = True
            try:
                replies, failure, left = await _take_turn(client, turn)
            except BaseException:
                spending = models.spending - before
                attempt.turns.append(TurnRecord(say=turn.say, spending=spending))
                raise
            attempt.is_unfinished = False
            record = build_record(
                replies,
                failure,
                say=turn.say,
                agent=agent,
                answers=turn.answers[: len(turn.answers) - len(left)],
                spending=models.spending - before,
            )
            agent = record.answered_by
            attempt.turns.append(record)
            await self._add_details(client, scenario, attempt.turns)
            if models.script is not None and models.script.complaint:
                attempt.error = models.script.complaint
                return
            expects_failure = turn.expect.fails or scenario.expect.fails
            if record.failure is not None and not expects_failure:
                attempt.error = (
                    f"Turn {number} failed: {record.failure.message} [{record.failure.code}]"
                )
                return
            if left:
                attempt.failures.append(
                    Failure(
                        "answers",
                        f"{len(turn.answers)} questions",
                        f"{len(turn.answers) - len(left)}, none for {format_value(left)}",
                        number,
                    )
                )
            await self._check(turn.expect, record, attempt, scenario, number)

    async def _add_details(
        self, client: Client, scenario: Scenario, turns: Sequence[TurnRecord]
    ) -> None:
        """Add the spans of the trace and the subjects of resources to the last turn."""
        record = turns[-1]
        is_remote = not self._target.is_local  # its usage is only known from its traces
        expectations = [scenario.expect, *(turn.expect for turn in scenario.conversation)]
        if is_remote or any(it.trace or it.recalls for it in expectations):
            try:
                spans = await self._target.read_spans(client)
            except Misuse:
                if any(it.trace or (it.limits and is_remote) for it in expectations):
                    raise
                spans = ()  # the sources in the reply may be enough
            former = {span["span_id"] for turn in turns for span in turn.spans}
            add_spans(record, [span for span in spans if span["span_id"] not in former])
            if is_remote:
                record.spending = sum_spending(record.spans)
        for resource in record.resources:
            resource.subjects = await self._target.find_subjects(resource.id)

    async def _check(
        self,
        expect: Expectation,
        record: TurnRecord,
        attempt: Attempt,
        scenario: Scenario,
        number: int | None,
    ) -> None:
        attempt.failures += [replace(it, turn=number) for it in find_failures(expect, record)]
        if expect.judge is None:
            return
        records = attempt.turns if number is None else [record]
        votes, failures = await self._judge(expect.judge, records, scenario, attempt)
        attempt.votes += votes
        attempt.failures += [replace(it, turn=number) for it in failures]

    async def _judge(
        self,
        check: JudgeCheck,
        records: Sequence[TurnRecord],
        scenario: Scenario,
        attempt: Attempt,
    ) -> tuple[Sequence[Vote], Sequence[Failure]]:
        script = None
        if check.script and (attempt.is_scripted or self._is_offline):
            script = ScriptPlayer()
            script.extend([*_build_verdicts(check.script)])
        elif self._is_offline:
            raise Misuse("The judge has no script, and --offline allows no other model.")
        name = check.model or scenario.judge_model or self._judge_model
        choice = None if name is None or script else self._choose(name)
        models = AttemptModels(script, choice, is_offline=self._is_offline)
        adapter = _JudgeAdapter(models, self._target.adapter)
        with models.enter():  # in a task of its own: this one's requests are for the scenario
            task = asyncio.create_task(judge(check, records, adapter), name="judge")
        return await task


class _JudgeAdapter(Adapter):
    """Requests the judge's model, regardless of the model of the scenario."""

    def __init__(self, models: AttemptModels, usual: Adapter | None) -> None:
        self._models = models
        self._usual = None if isinstance(usual, EmptyAdapter) else usual

    def stream(self, request: ChatRequest) -> Events:
        """Yield the answer of the judge's model. Raises `Misuse` if there is none."""
        models = self._models
        if self._usual is None and not models.script and not (models.choice or _NOBODY).adapter:
            raise Misuse(
                "There is no model to judge.", hint="Name one: judge_model: openai:gpt-4o."
            )
        return models.stream(request, self._usual or Adapter())


_NOBODY = ModelChoice("")


async def _take_turn(
    client: Client, turn: Turn
) -> tuple[list[Reply], ReplyFailed | None, Sequence[Any]]:
    """Send a message and answer questions; return replies, an error and unused answers."""
    replies: list[Reply] = []
    left = [*turn.answers]
    try:
        replies.append(await client.say(turn.say))
        while replies[-1].interrupts and len(left) >= len(replies[-1].interrupts):
            count = len(replies[-1].interrupts)
            answers, left = left[:count], left[count:]
            replies.append(await client.resume(*answers))
    except ReplyFailed as error:
        return replies, error, left
    return replies, None, left


def _build_verdicts(script: Sequence[Any]) -> Iterator[ScriptedAnswer]:
    """Yield a judge's answers: a string as text, and an object or boolean as a tool call."""
    for verdict in script:
        if isinstance(verdict, str):
            yield ScriptedAnswer(text=verdict or " ")
            continue
        fields = {"passed": verdict, "reason": ""} if isinstance(verdict, bool) else verdict
        yield ScriptedAnswer(calls=(ScriptedCall(name="report_verdict", arguments=fields),))
