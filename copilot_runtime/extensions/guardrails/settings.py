"""The settings section `guardrails`."""

from pydantic import Field

from copilot_runtime.config.section import Section, Words


class GuardrailSettings(Section):
    """Rules for questions and answers; an empty list disables a rule."""

    allow: Words = Field(
        default=(), description="Topics; a question must mention at least one of them."
    )
    deny: Words = Field(default=(), description="Topics that a question must not mention.")
    words: Words = Field(
        default=(), description="Words that questions and answers must not contain."
    )
    message: str = Field(
        default="I cannot help with that topic.",
        min_length=1,
        description="Message that users get in place of an answer.",
    )
