"""The settings section `guardrails`."""

from pydantic import Field

from copilot_runtime.config.section import Section, Words


class GuardrailSettings(Section):
    """Rules for questions and answers; an empty list is no rule."""

    allow: Words = Field(
        default=(), description="Topics of which a question must name at least one."
    )
    deny: Words = Field(default=(), description="Topics that a question must not name.")
    words: Words = Field(
        default=(), description="Words that neither question nor answer may contain."
    )
    message: str = Field(
        default="I cannot help with that topic.",
        min_length=1,
        description="What the person reads instead of an answer.",
    )
