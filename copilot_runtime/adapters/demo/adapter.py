"""The demo model: it needs neither network nor key, and answers by fixed rules."""

import asyncio
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, assert_never

from copilot_runtime.adapters.assembly import Assembly
from copilot_runtime.adapters.attachments import parse_media
from copilot_runtime.adapters.demo.data_questions import (
    describe_result,
    plan_call,
    refuse_question,
    suggest_questions,
)
from copilot_runtime.adapters.demo.drawings import (
    describe_drawing,
    list_other_actions,
    plan_drawing,
    tell_story,
)
from copilot_runtime.adapters.demo.matching import (
    NOTE,
    Call,
    Match,
    build_example,
    fill_arguments,
    find_missing,
    format_title,
    match_actions,
    split_words,
)
from copilot_runtime.adapters.demo.passages import (
    describe_missing,
    list_passages,
    quote_passages,
)
from copilot_runtime.adapters.demo.plans import (
    REPORT_EVALUATION,
    is_about_data,
    join_outcomes,
    judge_outcome,
    read_task,
    summarize_outcomes,
    write_tasks,
)
from copilot_runtime.adapters.demo.schema import Table, read_schema
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.api.events import Events, Usage
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    MediaPart,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.base.errors import CopilotError, Misuse, NetworkError, NotFound
from copilot_runtime.base.jsonvalue import (
    as_list,
    get_object,
    parse_object,
)

_WORD = re.compile(r"\s*\S+(?:\s+$)?")


class DemoAdapter(Adapter):
    """Answers by fixed rules, and says that it is no language model.

    Args:
        pace: The pause before each word, in seconds.
    """

    introduction = (
        "This is a demo: rules answer in place of a model, and need no key. For a model, set "
        "OPENAI_API_KEY; a program with DemoAdapter() alone has to name OpenAIAdapter() instead."
    )

    def __init__(self, *, pace: float = 0.03) -> None:
        self._pace = pace

    def suggest(self, actions: Sequence[Action]) -> Sequence[str]:
        """Return a sentence for each action that takes a value."""
        return _list_examples(actions)

    async def stream(self, request: ChatRequest) -> Events:
        """Answer the last message of `request`, word by word.

        Raises:
            Misuse: The client requires an action that it does not offer.
            CopilotError: The last message requests an error.
        """
        assembly = Assembly(request)
        words = 0
        for index, part in enumerate(build_answer(request)):
            if isinstance(part, CopilotError):
                raise part
            for word in _WORD.findall(part.text):
                await asyncio.sleep(self._pace)
                assembly.events = []
                match part.kind:
                    case "text":
                        words += 1
                        assembly.text(word)
                    case "reasoning":
                        assembly.reasoning(word)
                    case "call":
                        assembly.call(index, "", part.action, word)
                    case _:
                        assert_never(part.kind)
                for event in assembly.events:
                    yield event
        assembly.events = []
        assembly.end()
        for event in assembly.events:
            yield event
        prompt = sum(len(m.content.split()) for m in request.messages if isinstance(m, TextMessage))
        yield Usage(
            model="demo",
            provider="demo",
            input_tokens=prompt,
            output_tokens=words,
            dollars=(prompt + 4 * words) / 1_000_000,  # made up, as the page Costs says
        )

    def endpoint(self, request: ChatRequest) -> ModelEndpoint:
        """Return `demo` as the provider and the model."""
        del request
        return ModelEndpoint("demo", "demo", in_process=True)


class Part(NamedTuple):
    """A part of an answer. The text of a call is its arguments, as JSON, and `action` its name."""

    kind: Literal["text", "reasoning", "call"]
    text: str
    action: str = ""


_NOT_A_MODEL = "I am the demo model: a handful of rules, not a language model."
_REAL_MODEL = (
    "For real answers, set `OPENAI_API_KEY` ([get one](https://platform.openai.com/api-keys)) and "
    "start the runtime again; a program with `DemoAdapter()` alone has to name `OpenAIAdapter()` "
    "instead."
)
_NOTHING_FOUND = "Nothing was found in your documents"
_DATA_AGENT = "An agent with data, such as `analyst`, answers questions about numbers. "
_ALWAYS = ("Think about the sea", "Tell me a long story", "Show me an error")
_TRY = "Try one of these:\n\n"
_GREETINGS = {"help", "hello", "hi", "hey", "demo"}
_THANKS = {"thank", "thanks", "thx"}
_SMALL_TALK = {
    *_GREETINGS,
    *_THANKS,
    *split_words("a afternoon again and are can do evening for good how i is it lot morning much"),
    *split_words("so that there this very welcome what who you your"),
}
"""Words of which sentences consist that are answered before anything is searched or called."""
_QUESTION = re.compile(
    r"\W*(?:how|what|when|where|which|who|why|is|are|does|do|did|was|were|has|have)\b.*\?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_THOUGHT = (
    "The person wants me to think. I cannot. But I can show what thinking looks like on the "
    "wire: a stream of reasoning that comes before the answer."
)
_TITLE = "Write a title"
_STATE_ACTIONS = "AGUISendState"
_SHORT = 6
"""The most words of a sentence that asks for a story, a thought or an error alone."""
_MAX_TITLE = 40
_MAX_TEXT = 4_000


def build_answer(request: ChatRequest) -> Iterator[Part | CopilotError]:
    """Yield the parts of an answer to the last message of `request`; an error is the last one."""
    parameters = request.parameters
    offered = () if parameters.tool_choice == "none" else request.actions
    others = list_other_actions(offered)
    actions = [action for action in others if not action.name.startswith(_STATE_ACTIONS)]
    prompt = _last_user_text(request.messages)
    task = read_task(prompt)
    text = (task or prompt)[:_MAX_TEXT]
    if parameters.tool_choice == "function":
        yield _apply_tool_choice(offered, parameters.tool_choice_name, text)
    elif title := _build_title(request.messages):
        yield Part("text", title)
    elif results := _last_results(request.messages):
        yield Part("text", "\n\n".join(_report(result) for result in results))
    elif parameters.tool_choice == "required" and actions:
        for match in match_actions(text, actions) or [Match(actions[0], text)]:
            yield _call_match(match)
    elif any(action.name == REPORT_EVALUATION for action in offered):
        yield _call(judge_outcome(prompt))
    elif outcomes := join_outcomes(prompt):
        yield Part("text", outcomes)
    elif task and (summary := summarize_outcomes(prompt)):
        yield Part("text", summary)
    elif task:
        yield from _fail_refusal(request, text, _chat(request, text, actions, offered))
    else:
        yield from _chat(request, text, actions, offered)


def _fail_refusal(
    request: ChatRequest, text: str, parts: Iterable[Part | CopilotError]
) -> Iterator[Part | CopilotError]:
    """Yield the parts of an answer to a task, or an error if no rule answers it."""
    reason = _NOTHING_FOUND if request.has_knowledge else "The demo model has no rule"
    for part in parts:
        is_refusal = isinstance(part, Part) and _NOT_A_MODEL in part.text
        yield NotFound(f"{reason} for {text!r}.") if is_refusal else part


def _chat(
    request: ChatRequest, text: str, actions: Sequence[Action], offered: Sequence[Action]
) -> Iterator[Part | CopilotError]:
    words = set(split_words(text))
    tables = _read_tables(request)
    other = _DATA_AGENT if is_about_data(text) and not tables else ""
    lacks = describe_missing(text, request.passages, is_name=True)
    if attachments := [each for m in request.messages[-1:] for each in _list_attachments(m)]:
        *others, last = attachments
        sent = f"{', '.join(others)} and {last}" if others else last
        yield Part("text", f"You sent {sent}. {_NOT_A_MODEL} I cannot see or hear.")
    elif words <= _SMALL_TALK:
        yield Part("text", _introduce(words, actions, tables))
    elif call := (
        plan_drawing(text, offered) or plan_call(text, tables, {action.name for action in actions})
    ):
        yield _call(call)
    elif any(action.name == "create_plan" for action in actions):
        yield _call(Call("create_plan", {"tasks": write_tasks(text)}))
    elif not tables and (matches := match_actions(text, actions, by_name=True)):
        yield from _call_matches(matches)
    elif text not in _ALWAYS and not lacks and (quotes := quote_passages(text, request.passages)):
        also = describe_missing(text, request.passages, is_name=False)
        other = "" if re.search(r"\d", quotes) else other
        yield Part("text", f"{other}{also}{quotes}\n\n{NOTE}")
    elif len(words) <= _SHORT and (parts := _apply_rules(words, bool(_QUESTION.match(text)))):
        yield from parts
    elif links := list_passages(text, request.passages):
        yield Part("text", f"{other}{lacks}These passages may answer that:\n\n{links}\n\n{NOTE}")
    elif tables:
        yield Part("text", f"{_NOT_A_MODEL} {refuse_question(text, tables)}")
    elif matches := _find_calls(text, actions):
        yield from _call_matches(matches)
    elif "\n" not in text and words & _GREETINGS:
        yield Part("text", _introduce(words, actions, tables))
    elif request.has_knowledge:
        yield Part("text", f"{_NOT_A_MODEL} {_NOTHING_FOUND} for that. {other}".strip())
    else:
        yield Part("text", f"{_NOT_A_MODEL} I have no rule for that. {_suggest(actions)}")


def _find_calls(text: str, actions: Sequence[Action]) -> Sequence[Match]:
    """Return the calls that a text asks for; a question without an argument may be of others."""
    matches = match_actions(text, actions)
    is_question = bool(_QUESTION.match(text))
    return [
        it for it in matches if not is_question or not find_missing(it.action.parameters, it.clause)
    ]


def _read_tables(request: ChatRequest) -> Sequence[Table]:
    """Return the tables that an analyst's prompt describes."""
    first = request.messages[0] if request.messages else None
    prompt = first.content if isinstance(first, TextMessage) and first.role != "user" else ""
    return read_schema([request.instructions, prompt])


def _introduce(words: set[str], actions: Sequence[Action], tables: Sequence[Table]) -> str:
    opening = "You are welcome." if words & _THANKS else "Hello!"
    questions = f"{_TRY}{suggest_questions(tables)}" if tables else _suggest(actions)
    return f"{opening} {_NOT_A_MODEL} {questions}\n\n{_REAL_MODEL}"


def _apply_rules(words: set[str], is_question: bool) -> list[Part | CopilotError]:
    """Return the answer to requests that need no action; an empty list for others."""
    if words & {"story", "lorem"}:
        return [Part("text", tell_story())]
    if is_question:  # about something that took long, or failed for a reason
        return []
    if words & {"error", "errors", "fail", "crash"}:
        error = NetworkError("The demo model broke off, because you asked for an error.")
        return [Part("text", "Here it comes: I start a sentence and"), error]
    if words & {"think", "reason", "reasoning"}:
        return [
            Part("reasoning", _THOUGHT),
            Part("text", "I have thought about it. (I cannot really think.)"),
        ]
    return [Part("text", tell_story())] if "long" in words else []


def _list_attachments(message: Message) -> Iterator[str]:
    """Yield a short description of each attachment of a message."""
    if isinstance(message, ImageMessage):
        yield f"an image ({message.format}, {_format_size(message.bytes)})"
    parts = message.parts if isinstance(message, TextMessage) else ()
    for media in [parse_media(part) for part in parts if isinstance(part, MediaPart)]:
        source = _format_size(media.data) if media.data else media.url or media.id
        details = ", ".join(filter(None, [media.filename, media.mime_type, source]))
        yield f"{'an' if media.kind[0] in 'aeiou' else 'a'} {media.kind} ({details})"


def _format_size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"


def _build_title(messages: Sequence[Message]) -> str:
    """Return the start of the user's text if the runtime requests a title, or an empty string."""
    first = messages[0] if messages else None
    if not isinstance(first, TextMessage) or not first.content.startswith(_TITLE):
        return ""
    line = _last_user_text(messages).partition("\n")[2].partition("\n")[0]
    return line if len(line) <= _MAX_TITLE else f"{line[:_MAX_TITLE].rstrip()}…"


def _apply_tool_choice(
    actions: Sequence[Action], name: str | None, text: str
) -> Part | CopilotError:
    """Call the function that the client requires, as react-core's chat suggestions do."""
    action = next((each for each in actions if each.name == name), None)
    if action is None:
        offered = ", ".join(repr(each.name) for each in actions) or "none"
        return Misuse(f"The client insists on the action {name!r}. Offered: {offered}.")
    items = [{"title": sentence, "message": sentence} for sentence in _ALWAYS]
    return _call(Call(action.name, fill_arguments(action.parameters, text, items=items)))


def _call_matches(matches: Sequence[Match]) -> Iterator[Part]:
    """Yield the calls, or a sentence for each that lacks an argument."""
    for match in matches:
        if missing := find_missing(match.action.parameters, match.clause):
            names = " and ".join(f"`{name}`" for name in missing)
            example = build_example(match.action)
            yield Part("text", f"`{match.action.name}` needs {names}: try “{example}”. {NOTE}")
        else:
            yield _call_match(match)


def _call_match(match: Match) -> Part:
    return _call(Call(match.action.name, fill_arguments(match.action.parameters, match.clause)))


def _call(call: Call) -> Part:
    return Part("call", json.dumps(call.arguments, ensure_ascii=False), call.tool)


def _suggest(actions: Sequence[Action]) -> str:
    """Name three things to try."""
    if any(action.name == "create_plan" for action in actions):
        return "Write several questions or steps in one message: each becomes a task."
    examples = [*_list_examples(actions), *_ALWAYS]
    return _TRY + "\n".join(f"- {example}" for example in examples[:3])


def _list_examples(actions: Sequence[Action]) -> Sequence[str]:
    """Return sentences that call actions; those with an example of a value are the most telling."""
    telling = sorted(actions, key=lambda action: not as_list(action.parameters.get("required")))
    return [
        example
        for action in telling
        if (example := build_example(action)) != format_title(action) or action.in_browser
    ]


def _last_user_text(messages: Sequence[Message]) -> str:
    return next(
        (m.content for m in reversed(messages) if isinstance(m, TextMessage) and m.role == "user"),
        "",
    )


def _last_results(messages: Sequence[Message]) -> list[ResultMessage]:
    """Return the results since the person's last message, in the order of their calls."""
    last = [*takewhile(lambda m: not isinstance(m, TextMessage | ImageMessage), messages[::-1])]
    calls = [m.id for m in reversed(last) if isinstance(m, ActionExecutionMessage)]
    results = [m for m in reversed(last) if isinstance(m, ResultMessage)]
    return sorted(results, key=lambda m: calls.index(m.call_id) if m.call_id in calls else -1)


def _report(result: ResultMessage) -> str:
    output = parse_object(result.result)
    if reason := get_object(output, "error").get("message"):
        return f"The action `{result.name}` failed: {reason}"
    if description := describe_result(result.name, output):
        return description
    if description := describe_drawing(result.name, result.result, output):
        return description
    if not result.result.strip():
        return f"The action `{result.name}` is done."
    text = result.result if len(result.result) <= 500 else f"{result.result[:500]}…"
    return f"The action `{result.name}` answered: {text}"
