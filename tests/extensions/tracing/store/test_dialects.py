"""Spans of other programs are counted, whatever names they use."""

from typing import Any

import pytest

from copilot_runtime.extensions.tracing.dialects import translate_attributes
from copilot_runtime.extensions.tracing.store import TraceFilter, TraceStore
from copilot_runtime.telemetry import semconv
from tests.extensions.tracing.store.spans import make_span
from tests.in_one_test import in_one_test

LLM = {"openinference.span.kind": "LLM", "llm.model_name": "gpt", "session.id": "th"}


@pytest.mark.anyio
@in_one_test(
    "attributes",
    [
        {**LLM, "llm.token_count.prompt": 5, "llm.token_count.completion": 2},
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt",
            "copilot_chat.chat_session_id": "th",
            "gen_ai.usage.prompt_tokens": "5",
            "gen_ai.usage.completion_tokens": 2.0,
        },
    ],
)
async def test_tokens_of_every_dialect_are_counted(
    store: TraceStore, attributes: dict[str, Any]
) -> None:
    store.add(make_span("t", "a", attributes=attributes, scope="other"))

    [summary] = await store.list_traces(TraceFilter(thread_id="th"))
    assert (summary.model_calls, summary.input_tokens, summary.output_tokens) == (1, 5, 2)
    assert summary.models == ["gpt"]


def test_what_the_conventions_name_is_left_as_it_is() -> None:
    given = {semconv.USAGE_INPUT_TOKENS: 1, "prompt_tokens": 9, "gen_ai.request.top_k": 3}
    assert translate_attributes(given) == given
    retrieval = {semconv.OPERATION_NAME: semconv.RETRIEVAL, "gen_ai.request.top_k": 3}
    assert translate_attributes(retrieval)[semconv.RETRIEVAL_TOP_K] == 3
