"""What the conventions want of each kind of span: its name, its kind and its attributes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from copilot_runtime.telemetry import semconv as names


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
            names.OPENAI_API_TYPE,
            names.OPENAI_RESPONSE_SERVICE_TIER,
            names.OPENAI_RESPONSE_SYSTEM_FINGERPRINT,
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
            names.PROVIDER_NAME,
            names.AGENT_ID,
            names.AGENT_NAME,
            names.AGENT_DESCRIPTION,
            names.AGENT_VERSION,
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
            names.PROMPT_NAME,
            names.RPC_RESPONSE_STATUS_CODE,
            names.NETWORK_TRANSPORT,
            names.NETWORK_PROTOCOL_NAME,
            names.SERVER_ADDRESS,
            names.SERVER_PORT,
            names.SKILL_NAME,
            names.SKILL_DESCRIPTION,
            names.SKILL_SOURCE_URI,
            names.SKILL_RESOURCE_NAME,
        ),
        (
            names.TOOL_TYPE,
            names.TOOL_CALL_ID,
            names.TOOL_DESCRIPTION,
            names.MCP_SESSION_ID,
            names.MCP_PROTOCOL_VERSION,
        ),
        (names.TOOL_CALL_ARGUMENTS, names.TOOL_CALL_RESULT, names.MCP_RESOURCE_URI),
    ),
    SpanConvention(
        (names.INVOKE_WORKFLOW,),
        "invoke_workflow {gen_ai.workflow.name}",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.WORKFLOW_NAME, names.CONVERSATION_ID, names.ERROR_TYPE, names.USER_NAME),
        (),
        (names.INPUT_MESSAGES, names.OUTPUT_MESSAGES, names.TASK_OUTPUT, names.TASK_REASON),
    ),
    SpanConvention(
        (names.PLAN,),
        "plan {gen_ai.agent.name}",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.AGENT_NAME, names.CONVERSATION_ID, names.ERROR_TYPE),
    ),
    SpanConvention(
        (names.EXECUTE_TASK,),
        "execute_task {gen_ai.agent.name}",
        ("internal",),
        (names.OPERATION_NAME, names.PLAN_ID, names.TASK_ID, names.TASK_OUTCOME),
        (names.AGENT_NAME, names.CONVERSATION_ID, names.ERROR_TYPE, names.TASK_ROUND),
        (names.TASK_ATTEMPT, names.TASK_SCORE),
        (names.TASK_NAME, names.TASK_DESCRIPTION, names.TASK_OUTPUT, names.TASK_REASON),
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
        (names.HOOK_RESULT, names.HOOK_NAME, names.AGENT_NAME, names.CONVERSATION_ID),
    ),
    SpanConvention(
        (names.INGEST,),
        "ingest",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.ERROR_TYPE,),
        (names.INGEST_SOURCES, names.INGEST_CHANGES, names.INGEST_FAILURES),
    ),
    SpanConvention(
        (names.INGEST_STEP,),
        "ingest_step {copilot.ingest.step}",
        ("internal",),
        (names.OPERATION_NAME, names.INGEST_STEP_NAME),
        (names.ERROR_TYPE,),
        (names.INGEST_SOURCES, names.INGEST_CHANGES, names.INGEST_FAILURES),
    ),
    SpanConvention(
        (names.UPLOAD,),
        "upload",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.ERROR_TYPE, names.CONVERSATION_ID),
        (names.UPLOAD_STATE, names.UPLOAD_MEDIA_TYPE, names.UPLOAD_BYTES, names.UPLOAD_CHUNKS),
        (names.UPLOAD_NAME, names.UPLOAD_MESSAGE),
    ),
    SpanConvention(
        (names.ANSWER_REQUEST,),
        "copilot.request",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.CONVERSATION_ID, names.USER_NAME, names.ERROR_TYPE),
    ),
    SpanConvention(
        (names.PREPARE_REQUEST,),
        "prepare_request",
        ("internal",),
        (names.OPERATION_NAME,),
        (names.REQUEST_CLASS, names.REQUEST_CONFIDENCE, names.REQUEST_BLOCKED, names.ERROR_TYPE),
        (names.REQUEST_SKILLS, names.REQUEST_DATASET),
    ),
    SpanConvention(
        (names.SANITIZE_OUTPUT,),
        "sanitize_output",
        ("internal",),
        (names.OPERATION_NAME, names.REDACTION_COUNT),
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


MCP_SERVER = SpanConvention(
    (),
    "{mcp.method.name} {gen_ai.tool.name}",
    ("server",),
    (names.MCP_METHOD_NAME,),
    (
        names.OPERATION_NAME,
        names.TOOL_NAME,
        names.JSONRPC_REQUEST_ID,
        names.RPC_RESPONSE_STATUS_CODE,
        names.NETWORK_PROTOCOL_NAME,
        names.NETWORK_PROTOCOL_VERSION,
        names.CLIENT_ADDRESS,
        names.CLIENT_PORT,
        names.ERROR_TYPE,
    ),
    (names.MCP_SESSION_ID, names.MCP_PROTOCOL_VERSION, names.NETWORK_TRANSPORT),
)
"""Requests of MCP clients, which have an operation only if they call a tool."""


MCP_CLIENT = SpanConvention(
    (),
    "{mcp.method.name}",
    ("client",),
    (names.MCP_METHOD_NAME,),
    (
        names.ERROR_TYPE,
        names.NETWORK_PROTOCOL_NAME,
        names.SERVER_ADDRESS,
        names.SERVER_PORT,
    ),
    (names.MCP_SESSION_ID, names.MCP_PROTOCOL_VERSION, names.NETWORK_TRANSPORT),
)
"""Requests to MCP servers for which a run waits before it begins. Calls of tools are tools."""


DATABASE = SpanConvention(
    (),
    "{db.operation.name} {db.collection.name}",
    ("client",),
    (names.DB_SYSTEM_NAME,),
    (
        names.DB_OPERATION_NAME,
        names.DB_COLLECTION_NAME,
        names.DB_NAMESPACE,
        names.DB_RESPONSE_STATUS_CODE,
        names.ERROR_TYPE,
        names.SERVER_PORT,
    ),
    (
        names.SQL_ATTEMPT,
        names.SQL_HASH,
        names.DB_QUERY_SUMMARY,
        names.DB_QUERY_TEXT,
        names.DB_RESPONSE_RETURNED_ROWS,
        names.SERVER_ADDRESS,
    ),
)
"""Queries to databases, which have no operation of the conventions for generative AI."""


RPC = SpanConvention(
    (),
    "{rpc.method}",
    ("client", "server"),
    (names.RPC_SYSTEM_NAME,),
    (
        names.RPC_SERVICE,
        names.RPC_METHOD,
        names.RPC_RESPONSE_STATUS_CODE,
        names.ERROR_TYPE,
        names.SERVER_ADDRESS,
        names.SERVER_PORT,
        names.CLIENT_ADDRESS,
        names.CLIENT_PORT,
    ),
    (),
)
"""Calls of gRPC services, which have no operation of the conventions for generative AI."""


def find_convention(attributes: Mapping[str, Any], kind: str) -> SpanConvention | None:
    """Return what the conventions want of a span, or None if nothing is known of its like."""
    if kind == "server" and names.MCP_METHOD_NAME in attributes:
        return MCP_SERVER
    if names.MCP_METHOD_NAME in attributes and names.OPERATION_NAME not in attributes:
        return MCP_CLIENT
    if names.DB_SYSTEM_NAME in attributes:
        return DATABASE
    if names.RPC_SYSTEM_NAME in attributes:
        return RPC
    operation = attributes.get(names.OPERATION_NAME, "")
    return next((one for one in CONVENTIONS if operation in one.operations), None)
