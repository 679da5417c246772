"""The sections of the settings for models: an adapter, its parameters, and speech."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from copilot_runtime.config.section import Section, read_object, split_words


class AdapterSettings(Section):
    """The model `copilot-runtime serve` talks to when it is not given a module."""

    name: str = Field(
        default="",
        description="Name in the table of adapters. Empty: openai if it has a key, else demo.",
    )
    options: Annotated[Mapping[str, Any], BeforeValidator(read_object)] = Field(
        default={},
        description="Arguments of the adapter, such as model; as JSON in the environment.",
        repr=False,  # it may hold a key
    )


class ParameterSettings(Section):
    """Parameters of the model, where a page asks for no others. Null means the adapter's own.

    There is no `tool_choice` that demands a call: with each result, it would demand the next.
    """

    model: str | None = Field(
        default=None, min_length=1, description="The model, if not the adapter's own."
    )
    temperature: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="How much chance is in an answer."
    )
    max_tokens: int | None = Field(
        default=None, gt=0, description="Longest answer, in the model's tokens."
    )
    stop: tuple[str, ...] | None = Field(default=None, description="Texts at which an answer ends.")
    tool_choice: Literal["auto", "none"] | None = Field(
        default=None, description="Whether the model may call tools."
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether the model may call several tools at once."
    )
    top_p: float | None = Field(
        default=None, ge=0, le=1, description="Share of the likeliest tokens that count."
    )
    seed: int | None = Field(default=None, description="Seed for answers that can be repeated.")
    frequency_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="How much repeated tokens are avoided."
    )
    presence_penalty: float | None = Field(
        default=None, allow_inf_nan=False, description="How much known subjects are avoided."
    )
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = Field(
        default=None, description="How long the model thinks."
    )
    response_schema: Mapping[str, Any] | None = Field(
        default=None, description="JSON schema of every answer; as JSON in the environment."
    )
    response_name: str | None = Field(
        default=None, min_length=1, description="The name of what the schema describes."
    )

    @field_validator("stop", mode="before")
    @classmethod
    def _list_of_texts(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else split_words(value)

    @field_validator("response_schema", mode="before")
    @classmethod
    def _json_object(cls, value: Any) -> Any:
        return read_object(value)


class TranscriptionSettings(Section):
    """What turns speech into text, with the key and address of OpenAI's variables."""

    model: str = Field(
        default="",
        description="Its model. Empty: whisper-1 if there is a key for OpenAI. Or: none.",
    )
    base_url: str | None = Field(
        default=None, description="Its address, if it is not OPENAI_BASE_URL."
    )
    language: str | None = Field(
        default=None, description="ISO 639-1 code, if all recordings are in one language."
    )
