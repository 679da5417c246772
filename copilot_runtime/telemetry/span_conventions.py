"""What the conventions want of each kind of span: its name, its kind and its attributes."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from copilot_runtime.telemetry import semconv as names

Level = Literal["required", "conditional", "recommended", "opt_in"]


class SpanConvention(NamedTuple):
    """The attributes that spans of an operation have, by requirement level.

    `name` is the span's name; what stands in braces is the value of an attribute. `kinds` are the
    kinds that it may have. `required` stand on every span, `recommended` where their values are
    known, `conditional` where the conventions' condition holds, `opt_in` where content is kept.
    """

    operations: Sequence[str]
    name: str
    kinds: Sequence[str]
    required: Sequence[str]
    conditional: Sequence[str] = ()
    recommended: Sequence[str] = ()
    opt_in: Sequence[str] = ()


_SAMPLING = (
    names.REQUEST_MAX_TOKENS,
    names.REQUEST_TEMPERATURE,
    names.REQUEST_TOP_P,
    names.REQUEST_FREQUENCY_PENALTY,
    names.REQUEST_PRESENCE_PENALTY,
    names.REQUEST_STOP_SEQUENCES,
)
_MESSAGES = (
    names.SYSTEM_INSTRUCTIONS,
    names.INPUT_MESSAGES,
    names.OUTPUT_MESSAGES,
    names.TOOL_DEFINITIONS,
)

CONVENTIONS: Sequence[SpanConvention] = (
    SpanConvention(
        (names.CHAT, names.TEXT_COMPLETION, names.GENERATE_CONTENT),
        "{gen_ai.operation.name} {gen_ai.request.model}",
        ("client", "internal"),
        (names.OPERATION_NAME, names.PROVIDER_NAME),
        (
            names.REQUEST_MODEL,
            names.ERROR_TYPE,
            names.CONVERSATION_ID,
            names.OUTPUT_TYPE,
            names.PROMPT_NAME,
            names.PROMPT_VERSION,
            names.REQUEST_CHOICE_COUNT,
            names.REQUEST_SEED,
            names.REQUEST_STREAM,
            names.REQUEST_TOP_K,
            names.SERVER_PORT,
        ),
        (
            names.SERVER_ADDRESS,
            *_SAMPLING,
            names.REQUEST_REASONING_LEVEL,
            names.REQUEST_PREVIOUS_RESPONSE_ID,
            names.CONVERSATION_COMPACTED,
            names.RESPONSE_ID,
            names.RESPONSE_MODEL,
            names.RESPONSE_FINISH_REASONS,
            names.RESPONSE_TIME_TO_FIRST_CHUNK,
            names.USAGE_INPUT_TOKENS,
            names.USAGE_OUTPUT_TOKENS,
            names.USAGE_CACHE_READ_TOKENS,
            names.USAGE_CACHE_WRITE_TOKENS,
            names.USAGE_REASONING_TOKENS,
        ),
        _MESSAGES,
    ),
    SpanConvention(
        (names.EMBEDDINGS,),
        "embeddings {gen_ai.request.model}",
        ("client", "internal"),
        (names.OPERATION_NAME, names.PROVIDER_NAME),
        (names.REQUEST_MODEL, names.ERROR_TYPE, names.SERVER_PORT),
        (
            names.SERVER_ADDRESS,
            names.REQUEST_ENCODING_FORMATS,
            names.USAGE_INPUT_TOKENS,
            names.EMBEDDINGS_DIMENSION_COUNT,
            names.RESPONSE_MODEL,
        ),
    ),
    SpanConvention(
        (names.RETRIEVAL,),
        "retrieval {gen_ai.data_source.id}",
        ("client", "internal"),
        (names.OPERATION_NAME,),
        (names.DATA_SOURCE_ID, names.PROVIDER_NAME, names.REQUEST_MODEL, names.ERROR_TYPE),
        (names.RETRIEVAL_TOP_K,),
        (names.RETRIEVAL_QUERY_TEXT, names.RETRIEVAL_DOCUMENTS),
    ),
    SpanConvention(
        (
            names.CREATE_MEMORY_STORE,
            names.SEARCH_MEMORY,
            names.CREATE_MEMORY,
            names.UPDATE_MEMORY,
            names.UPSERT_MEMORY,
            names.DELETE_MEMORY,
            names.DELETE_MEMORY_STORE,
        ),
        "{gen_ai.operation.name}",
        ("client", "internal"),
        (names.OPERATION_NAME,),
        (
            names.PROVIDER_NAME,
            names.MEMORY_STORE_ID,
            names.MEMORY_RECORD_ID,
            names.ERROR_TYPE,
        ),
        (names.MEMORY_RECORD_COUNT,),
        (names.MEMORY_QUERY_TEXT, names.MEMORY_RECORDS),
    ),
    SpanConvention(
        (names.INVOKE_AGENT,),
        "invoke_agent {gen_ai.agent.name}",
        ("internal", "client"),
        (names.OPERATION_NAME,),
        (
            names.AGENT_NAME,
            names.AGENT_DESCRIPTION,
            names.CONVERSATION_ID,
            names.DATA_SOURCE_ID,
            names.OUTPUT_TYPE,
            names.REQUEST_CHOICE_COUNT,
            names.REQUEST_SEED,
            names.ERROR_TYPE,
            names.SERVER_ADDRESS,
            names.SERVER_PORT,
        ),
        (
            names.REQUEST_MODEL,
            *_SAMPLING,
            names.USAGE_INPUT_TOKENS,
            names.USAGE_OUTPUT_TOKENS,
            names.RESPONSE_FINISH_REASONS,
        ),
        _MESSAGES,
    ),
    SpanConvention(
        (names.CREATE_AGENT,),
        "create_agent {gen_ai.agent.name}",
        ("client",),
        (names.OPERATION_NAME, names.PROVIDER_NAME),
        (
            names.AGENT_ID,
            names.AGENT_NAME,
            names.AGENT_DESCRIPTION,
            names.AGENT_VERSION,
            names.REQUEST_MODEL,
            names.ERROR_TYPE,
            names.SERVER_PORT,
        ),
        (names.SERVER_ADDRESS,),
        (names.SYSTEM_INSTRUCTIONS,),
    ),
    SpanConvention(
        (names.EXECUTE_TOOL,),
        "execute_tool {gen_ai.tool.name}",
        ("internal", "client"),
        (names.OPERATION_NAME, names.TOOL_NAME),
        (
            names.AGENT_NAME,
            names.CONVERSATION_ID,
            names.ERROR_TYPE,
            names.MCP_METHOD_NAME,
            names.NETWORK_TRANSPORT,
            names.NETWORK_PROTOCOL_NAME,
            names.SERVER_ADDRESS,
            names.SERVER_PORT,
            names.SKILL_NAME,
            names.SKILL_DESCRIPTION,
            names.SKILL_SOURCE_URI,
            names.SKILL_RESOURCE_NAME,
        ),
        (names.TOOL_TYPE, names.TOOL_CALL_ID, names.TOOL_DESCRIPTION),
        (names.TOOL_CALL_ARGUMENTS, names.TOOL_CALL_RESULT),
    ),
    SpanConvention(
        (names.INVOKE_WORKFLOW,),
        "invoke_workflow {gen_ai.workflow.name}",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.WORKFLOW_NAME, names.CONVERSATION_ID, names.ERROR_TYPE),
        (),
        (names.INPUT_MESSAGES, names.OUTPUT_MESSAGES),
    ),
    SpanConvention(
        (names.PLAN,),
        "plan {gen_ai.agent.name}",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.AGENT_NAME, names.ERROR_TYPE),
    ),
    SpanConvention(
        (names.FETCH_RESPONSE,),
        "fetch_response",
        ("client",),
        (names.OPERATION_NAME, names.RESPONSE_ID),
        (names.ERROR_TYPE,),
        (names.RESPONSE_STATUS, names.RESPONSE_FINISH_REASONS, names.RESPONSE_MODEL),
    ),
    SpanConvention(
        (names.EXECUTE_HOOK,),
        "execute_hook {copilot.hook.type}",
        ("internal",),
        (names.OPERATION_NAME, names.HOOK_TYPE),
        (names.ERROR_TYPE,),
        (names.HOOK_RESULT, names.HOOK_NAME),
    ),
    SpanConvention(
        (names.INGEST,),
        "ingest",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.ERROR_TYPE,),
        (names.INGEST_SOURCES, names.INGEST_CHANGES),
    ),
    SpanConvention(
        (names.AGENT_STEP,),
        "agent_step {copilot.step.name}",
        ("internal",),
        (names.OPERATION_NAME, names.STEP_NAME),
        (names.ERROR_TYPE,),
        (names.SPAN_SOURCE,),
    ),
)


def find_convention(operation: str) -> SpanConvention | None:
    """Return what the conventions want of spans of an operation, or None if nothing is known."""
    return next((one for one in CONVENTIONS if operation in one.operations), None)
