"""The capabilities of adapters, and the missing ones with reasons: a table for code, tests, README.

An adapter consults it before it sends a request (`CapabilityFilter.apply`), the contract suite
skips tests by it, and the README prints it. `CapabilityFilter.omit` handles parameters that one
model does not support although its provider's API does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from copilot_runtime.adapters.media.filter import MediaFilter
from copilot_runtime.api.events import Custom, Event
from copilot_runtime.api.messages import Message
from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import ConfigurationFailed, Misuse

UnsupportedPolicy = Literal["warn", "refuse"]
"""The handling of a parameter that a model does not support: omit it with a warning, or refuse."""

WARNING = "warning"
"""The name of the `Custom` event for each omitted parameter."""

CAPABILITIES: Mapping[str, str] = {
    "reasoning": "reasoning before the answer",
    "signatures": "signatures and other added fields go back to their service",
    "calls": "tool calls",
    "parallel_calls": "parallel tool calls",
    "interleaved_calls": "interleaved pieces of parallel tool calls",
    "arguments_in_pieces": "streamed arguments of tool calls",
    "history": "earlier tool calls and results in the request",
    "trimming": "truncation to the context window",
    "tool_choice_auto": "tool choice: auto",
    "tool_choice_none": "tool choice: none",
    "tool_choice_required": "tool choice: required",
    "tool_choice_function": "tool choice: a named tool",
    "parallel_tool_calls": "one tool call at a time, on request",
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "maximum length of the answer",
    "stop": "stop sequences",
    "seed": "seed",
    "frequency_penalty": "frequency penalty",
    "presence_penalty": "presence penalty",
    "reasoning_effort": "reasoning effort",
    "response_schema": "structured output by a JSON schema",
    "images": "images, inline",
    "image_urls": "images by URL",
    "documents": "documents, inline",
    "usage": "token counts",
    "cached_tokens": "counts of cached tokens",
    "reasoning_tokens": "counts of reasoning tokens",
    "stop_reasons": "stop reason",
    "refusals": "refusals marked as such",
    "content_filter": "content filter",
    "pings": "keep-alive messages in the stream",
    "end_marker": "end marker of the stream",
    "errors_in_stream": "errors inside the stream",
    "http": "retries, headers and connections of this package",
    "retry_after": "Retry-After",
    "half_characters": "escaped surrogate pairs across pieces",
    "answer_ids": "ids of tool calls from the model",
}
"""Capability → description. Capabilities that are parameters have the names in `Parameters`."""

_NO_REASONS: Mapping[str, str] = {}
_PENALTIES = ("frequency_penalty", "presence_penalty")
_NO_REFUSALS = "Its answers do not mark a refusal."

UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    "anthropic": {
        "seed": "The Messages API has no seed.",
        **dict.fromkeys(_PENALTIES, "The Messages API has no penalties."),
        "refusals": "Claude refuses in its text, or with the stop reason 'refusal'.",
        "content_filter": "What stops an answer is the stop reason 'refusal'.",
    },
    "azure": {},
    "bedrock": {
        "parallel_tool_calls": "Converse has no setting for it.",
        "seed": "Converse has no seed.",
        **dict.fromkeys(_PENALTIES, "Converse has no penalties."),
        "image_urls": "Bedrock takes images with their content or from Amazon S3.",
        "reasoning_tokens": "Converse counts them among the answer's.",
        "refusals": "Converse does not mark a refusal.",
    },
    "deepseek": {
        "parallel_tool_calls": "DeepSeek has no setting for it.",
        "seed": "DeepSeek has no seed.",
        "response_schema": "DeepSeek takes JSON mode only, without a schema.",
        **dict.fromkeys(("images", "image_urls", "documents"), "DeepSeek accepts text only."),
        "refusals": _NO_REFUSALS,
    },
    "github": {
        "parallel_tool_calls": "GitHub documents no setting for it.",
        "reasoning_effort": "GitHub documents no setting for it.",
        "documents": "GitHub takes images and text only.",
        "refusals": _NO_REFUSALS,
    },
    "google": {
        "interleaved_calls": "Gemini sends each call whole.",
        "arguments_in_pieces": "Gemini sends each call whole.",
        "parallel_tool_calls": "Gemini has no setting for it.",
        "refusals": "Gemini does not mark a refusal.",
        "end_marker": "The stream ends without one.",
    },
    "groq": {
        **dict.fromkeys(_PENALTIES, "None of Groq's models supports it."),
        "documents": "Groq takes images and text only.",
        "refusals": _NO_REFUSALS,
    },
    "langchain": {
        "response_schema": "Chat models of LangChain have no common way to stream it.",
        "refusals": "LangChain does not mark a refusal.",
        **dict.fromkeys(("end_marker", "http"), "The chat model of LangChain does HTTP itself."),
    },
    "lmstudio": {
        "tool_choice_function": "LM Studio takes auto, none and required only.",
        "parallel_tool_calls": "LM Studio documents no setting for it.",
        "image_urls": "LM Studio takes images with their content.",
        "documents": "LM Studio takes images and text only.",
        "refusals": _NO_REFUSALS,
        "content_filter": "A model on your own machine has no filter.",
    },
    "mistral": {
        "reasoning_effort": "Mistral's models have another scale for it.",
        "documents": "Mistral takes documents by their address only.",
        "refusals": _NO_REFUSALS,
    },
    "ollama": {
        "tool_choice_required": "Ollama's OpenAI API ignores it.",
        "tool_choice_function": "Ollama's OpenAI API ignores it.",
        "parallel_tool_calls": "Ollama has no setting for it.",
        "image_urls": "Ollama takes images with their content.",
        "documents": "Ollama takes images and text only.",
        "refusals": _NO_REFUSALS,
        "content_filter": "A model on your own machine has no filter.",
    },
    "openai": {},
    "openai_assistants": {
        "history": "The server stores it; in a new thread, earlier calls are sent as text.",
        "trimming": "The server shortens its threads itself.",
        **dict.fromkeys(("reasoning", "signatures"), "Runs have no reasoning."),
        "stop": "Runs have no stop sequences.",
        "seed": "Runs have no seed.",
        **dict.fromkeys(_PENALTIES, "Runs have no penalties."),
        "reasoning_effort": "A run that starts a thread does not accept it.",
        "images": "Threads take images by their address only.",
        "documents": "Threads take documents from a vector store only.",
        **dict.fromkeys(("cached_tokens", "reasoning_tokens"), "Runs do not count them."),
        "content_filter": "Runs do not report one.",
    },
    "openai_responses": {
        "stop": "The Responses API has no stop sequences.",
        "seed": "The Responses API has no seed.",
        **dict.fromkeys(_PENALTIES, "The Responses API has no penalties."),
        "end_marker": "Its last event also has the stop reason.",
    },
    "openrouter": {},
    "together": {
        "parallel_tool_calls": "Together has no setting for it.",
        "documents": "Together takes no files in a conversation.",
        "cached_tokens": "Together counts input and output tokens only.",
        "reasoning_tokens": "Together counts input and output tokens only.",
        "refusals": _NO_REFUSALS,
        "content_filter": "None of its stop reasons is a filter.",
    },
    "unify": {
        "documents": "Unify documents images and text only.",
        "refusals": _NO_REFUSALS,
    },
    "vllm": {
        "documents": "vLLM takes images, audio, video and text.",
        "reasoning_tokens": "vLLM counts them among the answer's.",
        "refusals": _NO_REFUSALS,
        "content_filter": "A model on your own machine has no filter.",
    },
}
"""Adapter → capability → the reason why the adapter lacks it."""

UNDOCUMENTED: Mapping[str, frozenset[str]] = {
    "lmstudio": frozenset(
        {"parallel_tool_calls", "reasoning_effort", "cached_tokens", "reasoning_tokens"}
    ),
    "unify": frozenset(
        {"documents", "cached_tokens", "reasoning_tokens", "refusals", "content_filter"}
    ),
}
"""Adapter → capabilities that the documentation of its service does not mention."""


class CapabilityFilter:
    """Omits the parameters of one request that its model does not support.

    `adapter` is the name in the table; `provider` and `model` appear in the messages. `warnings`
    are the events to yield before the first event of the response. `media` is the filter of the
    adapter, which remembers files between requests. Raises `Misuse` for an unknown
    policy.
    """

    def __init__(
        self,
        adapter: str,
        provider: str,
        model: str,
        unsupported: UnsupportedPolicy = "warn",
        media: MediaFilter | None = None,
    ) -> None:
        if unsupported not in ("warn", "refuse"):
            raise Misuse(f"unsupported is 'warn' or 'refuse', not {unsupported!r}.")
        self.adapter = adapter
        self.provider = provider
        self.model = model
        self.warnings: list[Event] = []
        self._refuses = unsupported == "refuse"
        self._media = media

    def apply(self, parameters: Parameters, reasons: Mapping[str, str] = _NO_REASONS) -> Parameters:
        """Return the parameters without those that the adapter's entry in the table lists.

        `reasons` extends that entry: parameter → the reason why this model does not support it.
        Raises `ConfigurationFailed` for such a parameter if the policy is `"refuse"`.
        """
        reasons = {**UNSUPPORTED.get(self.adapter, {}), **reasons}
        changes: dict[str, Any] = {}
        for name, why in reasons.items():
            value = getattr(parameters, name, None)  # most capabilities are no parameters
            if value in (None, (), []):
                continue
            changes[name] = None
            if name != "parallel_tool_calls" or value is False:  # else it is what all do
                self.omit(name, why)
        choice = f"tool_choice_{parameters.tool_choice}"
        if parameters.tool_choice and choice in reasons:
            self.omit(choice, reasons[choice])
            changes |= {"tool_choice": None, "tool_choice_name": None}
        return replace(parameters, **changes) if changes else parameters

    def filter_media(
        self, messages: Sequence[Message], *, shows_results: bool = True
    ) -> Sequence[Message]:
        """Return the messages with media that the service takes: see `MediaFilter.apply`."""
        media = self._media or MediaFilter(self.adapter, self.provider)
        return media.apply(messages, self.model, shows_results=shows_results)

    def reason(self, capability: str) -> str | None:
        """Return the reason why the adapter lacks a capability, or `None` if it has it."""
        return UNSUPPORTED.get(self.adapter, {}).get(capability)

    def omit(self, code: str, why: str) -> None:
        """Add a warning that `code` is omitted. Raises `ConfigurationFailed` if that is refused."""
        message = f"{self.provider} was asked for {code!r} with {self.model!r}. {why}"
        if self._refuses:
            raise ConfigurationFailed(
                message, hint="With unsupported='warn' the adapter leaves it out instead."
            )
        value = {
            "code": code,
            "message": message,
            "provider": self.provider,
            "model": self.model,
        }
        self.warnings.append(Custom(name=WARNING, value=value))
