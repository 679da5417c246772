"""The settings section `guardrails`."""

from pydantic import Field

from copilot_runtime.config.section import Section, Words


class GuardrailSettings(Section):
    """Rules for questions and answers; an empty list disables a rule."""

    allow: Words = Field(default=(), description="Topics; a question must mention one.")
    deny: Words = Field(default=(), description="Topics that a question must not mention.")
    words: Words = Field(default=(), description="Words forbidden in questions and answers.")
    message: str = Field(
        default="I cannot help with that topic.",
        min_length=1,
        description="What users get in place of an answer.",
    )
