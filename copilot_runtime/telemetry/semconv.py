"""Names of attributes, metrics and events: the semantic conventions of OpenTelemetry, and our own.

No other module spells out such a name. The conventions for generative AI are those of the
repository open-telemetry/semantic-conventions-genai; they are still in development, so the setting
`telemetry.semconv` selects the names of the last release or those of its main branch.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

SCOPE = "copilot_runtime"
"""The instrumentation scope of our spans, metrics and events."""

Dialect = Literal["released", "head", "dual"]

AttributeType = Literal[
    "string", "string[]", "int", "double", "boolean", "any", "int[]", "double[]", "boolean[]"
]


class Attribute(NamedTuple):
    """The classification of an attribute: content (written by users or models), or identity.

    A foreign attribute is only written by other programs; it is listed because it is known.
    """

    name: str
    type: AttributeType
    about: str
    is_content: bool = False
    is_identity: bool = False
    is_foreign: bool = False


ATTRIBUTES: dict[str, Attribute] = {}
"""All attributes that this package writes or knows, by name."""


def _define(name: str, type: AttributeType, about: str, **flags: bool) -> str:
    ATTRIBUTES[name] = Attribute(name, type, about, **flags)
    return name


def _content(name: str, type: AttributeType, about: str) -> str:
    return _define(name, type, about, is_content=True)


def _identity(name: str, type: AttributeType, about: str) -> str:
    return _define(name, type, about, is_identity=True)


def _foreign(name: str, type: AttributeType, about: str) -> str:
    return _define(name, type, about, is_foreign=True)


# -- operation and agent ----------------------------------------------------------------------
OPERATION_NAME = _define("gen_ai.operation.name", "string", "The operation, such as `chat`.")
PROVIDER_NAME = _define("gen_ai.provider.name", "string", "The provider, such as `openai`.")
CONVERSATION_ID = _define("gen_ai.conversation.id", "string", "The id of the thread.")
AGENT_NAME = _define("gen_ai.agent.name", "string", "The name of the agent, as clients call it.")
AGENT_ID = _define("gen_ai.agent.id", "string", "The id of a remote agent.")
AGENT_DESCRIPTION = _define("gen_ai.agent.description", "string", "The purpose of the agent.")
AGENT_VERSION = _foreign("gen_ai.agent.version", "string", "The version of a remote agent.")
WORKFLOW_NAME = _define(
    "gen_ai.workflow.name", "string", "The name of a workflow: the agent whose plan it is."
)
DATA_SOURCE_ID = _define("gen_ai.data_source.id", "string", "The id of the data source.")
ERROR_TYPE = _define("error.type", "string", "The error code or exception class.")
EXCEPTION_TYPE = _define("exception.type", "string", "The class of an exception.")
EXCEPTION_MESSAGE = _content("exception.message", "string", "The message of an exception.")
EXCEPTION_STACKTRACE = _content(
    "exception.stacktrace", "string", "The stack trace of an exception."
)

# -- a request to a model ---------------------------------------------------------------------
REQUEST_MODEL = _define("gen_ai.request.model", "string", "The requested model.")
REQUEST_CHOICE_COUNT = _define("gen_ai.request.choice.count", "int", "Number of choices, if not 1.")
REQUEST_SEED = _define("gen_ai.request.seed", "int", "The requested seed.")
REQUEST_STREAM = _define("gen_ai.request.stream", "boolean", "Whether the answer is a stream.")
REQUEST_TOP_K = _define("gen_ai.request.top_k", "int", "The top-k sampling setting.")
REQUEST_MAX_TOKENS = _define("gen_ai.request.max_tokens", "int", "Maximum number of output tokens.")
REQUEST_TEMPERATURE = _define("gen_ai.request.temperature", "double", "The sampling temperature.")
REQUEST_TOP_P = _define("gen_ai.request.top_p", "double", "The nucleus sampling setting.")
REQUEST_FREQUENCY_PENALTY = _define(
    "gen_ai.request.frequency_penalty", "double", "The frequency penalty."
)
REQUEST_PRESENCE_PENALTY = _define(
    "gen_ai.request.presence_penalty", "double", "The presence penalty."
)
REQUEST_STOP_SEQUENCES = _define("gen_ai.request.stop_sequences", "string[]", "The stop sequences.")
REQUEST_REASONING_LEVEL = _define(
    "gen_ai.request.reasoning.level", "string", "The requested reasoning effort."
)
REQUEST_PREVIOUS_RESPONSE_ID = _define(
    "gen_ai.request.previous_response.id", "string", "The id of the previous response."
)
REQUEST_ENCODING_FORMATS = _define(
    "gen_ai.request.encoding_formats", "string[]", "The encodings of the vectors."
)
OUTPUT_TYPE = _define("gen_ai.output.type", "string", "`text`, `json`, `image` or `speech`.")
PROMPT_NAME = _define("gen_ai.prompt.name", "string", "The name of the prompt template.")
PROMPT_VERSION = _foreign("gen_ai.prompt.version", "string", "The version of that template.")
CONVERSATION_COMPACTED = _define(
    "gen_ai.conversation.compacted", "boolean", "True if older messages were omitted, else absent."
)

# -- the answer -------------------------------------------------------------------------------
RESPONSE_ID = _define("gen_ai.response.id", "string", "The provider's id of the response.")
RESPONSE_MODEL = _define("gen_ai.response.model", "string", "The model that answered.")
RESPONSE_STATUS = _foreign("gen_ai.response.status", "string", "The status of a stored response.")
RESPONSE_FINISH_REASONS = _define(
    "gen_ai.response.finish_reasons", "string[]", "The finish reasons; `error` if interrupted."
)
RESPONSE_TIME_TO_FIRST_CHUNK = _define(
    "gen_ai.response.time_to_first_chunk", "double", "Seconds until the first event."
)
USAGE_INPUT_TOKENS = _define(
    "gen_ai.usage.input_tokens", "int", "Input tokens, including cached ones."
)
USAGE_OUTPUT_TOKENS = _define(
    "gen_ai.usage.output_tokens", "int", "Output tokens, including reasoning."
)
USAGE_CACHE_READ_TOKENS = _define(
    "gen_ai.usage.cache_read.input_tokens", "int", "Input tokens read from a cache."
)
USAGE_CACHE_WRITE_TOKENS = _define(
    "gen_ai.usage.cache_write.input_tokens", "int", "Input tokens written to a cache."
)
USAGE_REASONING_TOKENS = _define(
    "gen_ai.usage.reasoning.output_tokens", "int", "Output tokens used for reasoning."
)
OPENAI_API_TYPE = _define("openai.api.type", "string", "`chat_completions` or `responses`.")
OPENAI_RESPONSE_SERVICE_TIER = _define(
    "openai.response.service_tier", "string", "The service tier of the response."
)
OPENAI_RESPONSE_SYSTEM_FINGERPRINT = _define(
    "openai.response.system_fingerprint", "string", "OpenAI's fingerprint of the backend."
)
SERVER_ADDRESS = _define("server.address", "string", "The host of the server.")
SERVER_PORT = _define("server.port", "int", "The port of that host.")

# -- content of users and models -----------------------------------------------------------------
SYSTEM_INSTRUCTIONS = _content("gen_ai.system_instructions", "any", "The system prompt.")
INPUT_MESSAGES = _content("gen_ai.input.messages", "any", "The messages of the request.")
OUTPUT_MESSAGES = _content("gen_ai.output.messages", "any", "The messages of the response.")
TOOL_DEFINITIONS = _content("gen_ai.tool.definitions", "any", "The definitions of the tools.")

# -- tools and skills ---------------------------------------------------------------------------
TOOL_NAME = _define("gen_ai.tool.name", "string", "The name of the tool.")
TOOL_TYPE = _define("gen_ai.tool.type", "string", "`function`, `extension` or `datastore`.")
TOOL_CALL_ID = _define("gen_ai.tool.call.id", "string", "The id of the call.")
TOOL_DESCRIPTION = _define("gen_ai.tool.description", "string", "The description of the tool.")
TOOL_CALL_ARGUMENTS = _content("gen_ai.tool.call.arguments", "any", "The arguments of the call.")
TOOL_CALL_RESULT = _content("gen_ai.tool.call.result", "any", "The result of the call.")
SKILL_NAME = _foreign("gen_ai.skill.name", "string", "The name of a loaded skill.")
SKILL_DESCRIPTION = _foreign("gen_ai.skill.description", "string", "The description of the skill.")
SKILL_SOURCE_URI = _foreign("gen_ai.skill.source.uri", "string", "The URI of the skill's source.")
SKILL_RESOURCE_NAME = _foreign("gen_ai.skill.resource.name", "string", "A file of the skill.")

# -- embeddings, retrieval, memory --------------------------------------------------------------
EMBEDDINGS_DIMENSION_COUNT = _define(
    "gen_ai.embeddings.dimension.count", "int", "The length of a vector."
)
RETRIEVAL_TOP_K = _define("gen_ai.retrieval.top_k", "int", "Maximum number of passages.")
RETRIEVAL_QUERY_TEXT = _content("gen_ai.retrieval.query.text", "string", "The search query.")
RETRIEVAL_DOCUMENTS = _content("gen_ai.retrieval.documents", "any", "The retrieved documents.")
MEMORY_STORE_ID = _define("gen_ai.memory.store.id", "string", "The id of the memory store.")
MEMORY_RECORD_ID = _define("gen_ai.memory.record.id", "string", "The id of the record.")
MEMORY_RECORD_COUNT = _define("gen_ai.memory.record.count", "int", "Number of records.")
MEMORY_QUERY_TEXT = _content("gen_ai.memory.query.text", "string", "The search query.")
MEMORY_RECORDS = _content("gen_ai.memory.records", "any", "The found records.")

# -- MCP ------------------------------------------------------------------------------------------
MCP_METHOD_NAME = _define("mcp.method.name", "string", "The method, such as `tools/call`.")
MCP_SESSION_ID = _define("mcp.session.id", "string", "The id of the session.")
MCP_PROTOCOL_VERSION = _define("mcp.protocol.version", "string", "The version of MCP.")
MCP_RESOURCE_URI = _content("mcp.resource.uri", "string", "The URI of the resource.")
"""Content, because a model generates it."""
JSONRPC_REQUEST_ID = _define("jsonrpc.request.id", "string", "The id of the request.")
RPC_SYSTEM_NAME = _define("rpc.system.name", "string", "The kind of RPC, such as `grpc`.")
RPC_SERVICE = _define("rpc.service", "string", "The full name of the called service.")
RPC_METHOD = _define("rpc.method", "string", "The service and its method.")
RESPONSE_MESSAGES = _define("response.messages", "int", "Number of messages of a response.")
RPC_RESPONSE_STATUS_CODE = _define(
    "rpc.response.status_code",
    "string",
    "The code of a JSON-RPC error, or the status of a gRPC call.",
)
NETWORK_TRANSPORT = _define("network.transport", "string", "`tcp`, `quic` or `pipe`.")
NETWORK_PROTOCOL_NAME = _define("network.protocol.name", "string", "The protocol, such as `http`.")
NETWORK_PROTOCOL_VERSION = _define(
    "network.protocol.version", "string", "The version of that protocol."
)
CLIENT_ADDRESS = _identity("client.address", "string", "The host of a client.")
CLIENT_PORT = _identity("client.port", "int", "The port of a client.")

# -- databases ------------------------------------------------------------------------------------
DB_SYSTEM_NAME = _define("db.system.name", "string", "The kind of database, such as `duckdb`.")
DB_OPERATION_NAME = _define("db.operation.name", "string", "The operation, such as `SELECT`.")
DB_COLLECTION_NAME = _define("db.collection.name", "string", "The table.")
DB_NAMESPACE = _define("db.namespace", "string", "The database.")
DB_QUERY_SUMMARY = _define("db.query.summary", "string", "A short summary of the query.")
DB_QUERY_TEXT = _define("db.query.text", "string", "The query, with `?` for each value.")
DB_RESPONSE_STATUS_CODE = _foreign(
    "db.response.status_code", "string", "The status code of the database."
)
DB_RESPONSE_RETURNED_ROWS = _define("db.response.returned_rows", "int", "Number of returned rows.")

# -- evaluations ----------------------------------------------------------------------------------
EVALUATION_NAME = _define("gen_ai.evaluation.name", "string", "The name of the metric.")
EVALUATION_SCORE_VALUE = _define("gen_ai.evaluation.score.value", "double", "The score.")
EVALUATION_SCORE_LABEL = _define("gen_ai.evaluation.score.label", "string", "The score as a label.")
EVALUATION_EXPLANATION = _content(
    "gen_ai.evaluation.explanation", "string", "The explanation of the score."
)

# -- users and hosts ------------------------------------------------------------------------------
USER_NAME = _identity("user.name", "string", "The authenticated user.")
PROCESS_USER_NAME = _identity("process.user.name", "string", "The user of this process.")
HOST_NAME = _identity("host.name", "string", "The name of this machine.")
SERVICE_NAME = _define("service.name", "string", "The name of this service.")
SERVICE_VERSION = _define("service.version", "string", "The version of this package.")
DEPLOYMENT_ENVIRONMENT_NAME = _define(
    "deployment.environment.name", "string", "Such as production; the setting `deployment`."
)

# -- our own --------------------------------------------------------------------------------------
RUN_ID = _define("copilot.run.id", "string", "The id of the run, as the client sent it.")
RUN_OUTCOME = _define(
    "copilot.run.outcome",
    "string",
    "`finished`, `failed`, `stopped`, `refused`, or `interrupted` if it waits for a person.",
)
RUN_OVERRIDES = _define(
    "copilot.run.overrides",
    "string[]",
    "The names of what an operator changed of the agent in the playground.",
)
RUN_PROTOCOL = _define("copilot.run.protocol", "string", "`agui` or `graphql`.")
RUN_TURNS = _define("copilot.run.turns", "int", "Number of requests to models.")
RUN_TOOL_CALLS = _define("copilot.run.tool_calls", "int", "Number of tool calls.")
REQUEST_TYPE = _define("copilot.request.type", "string", "CopilotKit's type of the request.")
TOOL_LOCATION = _define(
    "copilot.tool.location", "string", "Where a tool runs: `server`, `browser`, `agent` or `mcp`."
)
TOOL_WAITING = _define(
    "copilot.tool.waiting",
    "boolean",
    "True for a call without a result at the end of the run: the browser sends it later.",
)
TOOL_SERVER = _define("copilot.tool.server", "string", "The host of the tool's MCP server.")
HOOK_TYPE = _define("copilot.hook.type", "string", "The hook, such as `before_request`.")
HOOK_RESULT = _define("copilot.hook.result", "string", "`success`, `error` or `refused`.")
HOOK_NAME = _define("copilot.hook.name", "string", "The name of the hook function.")
USAGE_ESTIMATED = _define(
    "copilot.usage.estimated",
    "boolean",
    "True if the token counts are estimated, for an answer that ended before the provider counted.",
)
COST_DOLLARS = _define("copilot.cost.usd", "double", "The cost, if prices are known.")
FEEDBACK_RATING = _define("copilot.feedback.rating", "string", "`up` or `down`.")
FEEDBACK_COMMENT = _content("copilot.feedback.comment", "string", "The comment of the user.")
SPAN_SOURCE = _define(
    "copilot.span.source", "string", "`events` for a span derived from an agent's events."
)
STEP_NAME = _define("copilot.step.name", "string", "A step of an agent, such as a node.")
LOG_SEVERITY = _define("copilot.log.severity", "string", "The severity, such as `WARN`.")
LOG_LOGGER = _define("copilot.log.logger", "string", "The logger of a record of another process.")
LOG_BODY = _content("copilot.log.body", "any", "The body of that record.")
INGEST_SOURCES = _define("copilot.ingest.sources", "int", "Number of sources.")
INGEST_CHANGES = _define("copilot.ingest.changes", "int", "Number of changed sources or resources.")
INGEST_FAILURES = _define(
    "copilot.ingest.failures", "int", "Number of sources or resources that failed."
)
INGEST_STEP_NAME = _define(
    "copilot.ingest.step", "string", "A step: `read`, `store`, `embed` or `link`."
)
UPLOAD_STATE = _define(
    "copilot.upload.state", "string", "`searchable`, `stored`, `refused` or `reading`."
)
UPLOAD_MEDIA_TYPE = _define("copilot.upload.media_type", "string", "The detected media type.")
UPLOAD_BYTES = _define("copilot.upload.bytes", "int", "The size of the file in bytes.")
UPLOAD_CHUNKS = _define("copilot.upload.chunks", "int", "Number of text chunks of the file.")
UPLOAD_NAME = _content("copilot.upload.name", "string", "The name of the file.")
UPLOAD_MESSAGE = _content(
    "copilot.upload.message", "string", "The reason of a refusal or truncation."
)
PLAN_ID = _define("copilot.plan.id", "string", "The id of a plan.")
PLAN_OUTCOME = _define(
    "copilot.plan.outcome",
    "string",
    "`finished`, `failed` or `stopped`; `interrupted` where another server goes on with it.",
)
PLAN_EPOCH = _define(
    "copilot.plan.epoch", "int", "Number of the execution: 1, plus 1 for each resumption."
)
PLAN_TASKS = _define("copilot.plan.tasks", "int", "Number of tasks, or of added ones.")
PLAN_SECONDS = _define(
    "copilot.plan.seconds", "double", "Seconds since the start of the plan, on all servers."
)
TASK_ID = _define("copilot.task.id", "string", "The position of a task in its plan, such as `2.1`.")
TASK_ATTEMPT = _define("copilot.task.attempt", "int", "Number of the attempt.")
TASK_ROUND = _define(
    "copilot.task.round", "int", "The correction round that added the task; absent if planned."
)
TASK_SCORE = _define(
    "copilot.task.score", "double", "How well the selected agent matches the task."
)
TASK_OUTCOME = _define(
    "copilot.task.outcome",
    "string",
    "`finished`, `failed`, `skipped` or `stopped`; `interrupted` if the server ended before.",
)
TASK_TOKENS = _define("copilot.task.tokens", "int", "Tokens of a task and its subtasks.")
TASK_COST = _define("copilot.task.cost.usd", "double", "The known cost of a task and its subtasks.")
TASK_WAITING = _define("copilot.task.waiting", "double", "Seconds spent waiting for people.")
TASK_NAME = _content("copilot.task.name", "string", "The name of a task.")
TASK_DESCRIPTION = _content("copilot.task.description", "string", "The description of a task.")
TASK_OUTPUT = _content("copilot.task.output", "string", "The output of a task.")
TASK_REASON = _content("copilot.task.reason", "string", "The reason why it did not finish.")
QUESTION_KIND = _define(
    "copilot.question.kind",
    "string",
    "`approval`, `interrupted_call`, `interrupted_task`, or `interrupt` of an agent.",
)
QUESTION_TEXT = _content("copilot.question.text", "string", "The question.")
QUESTION_ANSWER = _define(
    "copilot.question.answer",
    "string",
    "`approve`, `reject`, `retry`, `done`, `fail`, `resolve` or `cancel`.",
)
QUESTION_NOTE = _content("copilot.question.note", "string", "The comment with an answer.")
REQUEST_CLASS = _define(
    "copilot.request.class",
    "string",
    "The analyst's classification of the question, such as `data_question`.",
)
REQUEST_CONFIDENCE = _define(
    "copilot.request.confidence", "double", "The confidence of that, from 0 to 1."
)
REQUEST_SKILLS = _define("copilot.request.skills", "string[]", "The skills given to the model.")
REQUEST_DATASET = _define("copilot.request.dataset", "string", "The data set of the question.")
REQUEST_BLOCKED = _define(
    "copilot.request.blocked", "string", "The reason of a refusal, such as `prompt_injection`."
)
REDACTION_COUNT = _define("copilot.redaction.count", "int", "Number of redactions in an answer.")
SQL_ATTEMPT = _define(
    "axis.sql.attempt", "int", "Number of the attempt of a query; after 1, it was repaired."
)
SQL_HASH = _define("axis.sql.hash", "string", "Hash that ignores the values in a query.")
ERROR_TYPE_OTHER = "_OTHER"
ERROR_TYPE_EVALUATION = "evaluation_failed"

# -- operations -----------------------------------------------------------------------------------
CHAT = "chat"
TEXT_COMPLETION = "text_completion"
GENERATE_CONTENT = "generate_content"
EMBEDDINGS = "embeddings"
RETRIEVAL = "retrieval"
CREATE_AGENT = "create_agent"
INVOKE_AGENT = "invoke_agent"
EXECUTE_TOOL = "execute_tool"
EXECUTE_HOOK = "execute_hook"
INVOKE_WORKFLOW = "invoke_workflow"
PLAN = "plan"
EXECUTE_TASK = "execute_task"
FETCH_RESPONSE = "fetch_response"
SEARCH_MEMORY = "search_memory"
CREATE_MEMORY = "create_memory"
UPDATE_MEMORY = "update_memory"
UPSERT_MEMORY = "upsert_memory"
DELETE_MEMORY = "delete_memory"
CREATE_MEMORY_STORE = "create_memory_store"
DELETE_MEMORY_STORE = "delete_memory_store"
INGEST = "ingest"
INGEST_STEP = "ingest_step"
UPLOAD = "upload"
AGENT_STEP = "agent_step"
ANSWER_REQUEST = "copilot.request"
PREPARE_REQUEST = "prepare_request"
SANITIZE_OUTPUT = "sanitize_output"

INFERENCES = frozenset((CHAT, TEXT_COMPLETION, GENERATE_CONTENT))
"""Operations that are model requests: only these count tokens and cost."""

EXPORTED_OPERATIONS: Mapping[str, bool] = {
    **dict.fromkeys((CHAT, TEXT_COMPLETION, GENERATE_CONTENT, EMBEDDINGS, RETRIEVAL), True),
    **dict.fromkeys((CREATE_AGENT, INVOKE_AGENT, EXECUTE_TOOL, EXECUTE_HOOK), True),
    **dict.fromkeys((INVOKE_WORKFLOW, PLAN, EXECUTE_TASK, FETCH_RESPONSE), True),
    **dict.fromkeys((SEARCH_MEMORY, CREATE_MEMORY, UPDATE_MEMORY, UPSERT_MEMORY), True),
    **dict.fromkeys((DELETE_MEMORY, CREATE_MEMORY_STORE, DELETE_MEMORY_STORE), True),
    **dict.fromkeys((INGEST, INGEST_STEP, UPLOAD), True),
    **dict.fromkeys((ANSWER_REQUEST, PREPARE_REQUEST, SANITIZE_OUTPUT), True),
    AGENT_STEP: False,
}
"""True for operations whose spans are exported. A test fails if an operation is missing."""


def is_exported(attributes: Mapping[str, Any]) -> bool:
    """Return True if a span of ours may be exported, by its attributes.

    Requests to MCP servers, gRPC calls, database queries and spans of the application have no
    operation.
    """
    operation = attributes.get(OPERATION_NAME)
    return operation is None or EXPORTED_OPERATIONS.get(str(operation), False)


# -- metrics --------------------------------------------------------------------------------------
_D = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(4**power for power in range(14))
_AGENT = tuple(round(0.1 * 2**power, 1) for power in range(13))
_WORKFLOW = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_MCP = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_CALLS = (1, 2, 3, 5, 8, 13, 21, 34)
_FAST = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


class Metric(NamedTuple):
    """A metric instrument. `buckets` are a histogram's upper bounds; `dialect` owns its name."""

    name: str
    kind: Literal["histogram", "counter", "gauge"]
    unit: str
    about: str
    attributes: Sequence[str]
    buckets: Sequence[float] = ()
    dialect: Dialect = "dual"


METRICS: dict[str, Metric] = {}
"""All metrics that this package writes, by name."""


def _add(metric: Metric) -> str:
    METRICS[metric.name] = metric
    return metric.name


def _histogram(
    name: str,
    unit: str,
    about: str,
    attributes: Sequence[str],
    buckets: Sequence[float],
    dialect: Dialect = "dual",
) -> str:
    return _add(Metric(name, "histogram", unit, about, attributes, buckets, dialect))


def _time(
    name: str,
    about: str,
    attributes: Sequence[str],
    buckets: Sequence[float],
    dialect: Dialect = "dual",
) -> str:
    """Define a histogram of seconds."""
    return _histogram(name, "s", about, attributes, buckets, dialect)


def _counter(
    name: str, unit: str, about: str, attributes: Sequence[str] = (), dialect: Dialect = "dual"
) -> str:
    return _add(Metric(name, "counter", unit, about, attributes, dialect=dialect))


def _gauge(name: str, unit: str, about: str) -> str:
    return _add(Metric(name, "gauge", unit, about, ()))


_MODEL = (OPERATION_NAME, PROVIDER_NAME, REQUEST_MODEL, RESPONSE_MODEL, SERVER_ADDRESS, SERVER_PORT)
TOKEN_TYPE = _define("gen_ai.token.type", "string", "`input` or `output`.")
TOKEN_MODALITY = _define(
    "gen_ai.token.modality", "string", "`text`, `image`, `audio` or `unknown`."
)

OPERATION_DURATION = _time(
    "gen_ai.client.operation.duration",
    "Duration of requests to models.",
    (*_MODEL, ERROR_TYPE),
    _D,
    "released",
)
TOKEN_USAGE = _histogram(
    "gen_ai.client.token.usage",
    "{token}",
    "Number of tokens of requests to models.",
    (*_MODEL, TOKEN_TYPE),
    _TOKENS,
    "released",
)
TIME_TO_FIRST_CHUNK = _time(
    "gen_ai.client.operation.time_to_first_chunk",
    "Time to the first event of a stream.",
    _MODEL,
    _D,
    "released",
)
INFERENCE_DURATION = _time(
    "gen_ai.client.inference.duration",
    "Duration of requests to models.",
    (*_MODEL, ERROR_TYPE),
    _D,
    "head",
)
INFERENCE_TIME_TO_FIRST_CHUNK = _time(
    "gen_ai.client.inference.time_to_first_chunk",
    "Time to the first event of a stream.",
    _MODEL,
    _D,
    "head",
)
_USAGE = {
    "input_tokens": "Input tokens.",
    "output_tokens": "Output tokens.",
    "cache_read.input_tokens": "Input tokens read from a cache.",
    "cache_write.input_tokens": "Input tokens written to a cache.",
    "reasoning.output_tokens": "Output tokens used for reasoning.",
}
INFERENCE_USAGE: Mapping[str, str] = {
    kind: _counter(
        f"gen_ai.client.inference.usage.{kind}",
        "{token}",
        about,
        (*_MODEL, TOKEN_MODALITY),
        dialect="head",
    )
    for kind, about in _USAGE.items()
}
"""Token counters by token type."""
INFERENCE_INPUT_TOKENS = _histogram(
    "gen_ai.client.inference.operation.input_tokens",
    "{token}",
    "Input tokens of one request.",
    _MODEL,
    _TOKENS,
    "head",
)
INFERENCE_OUTPUT_TOKENS = _histogram(
    "gen_ai.client.inference.operation.output_tokens",
    "{token}",
    "Output tokens of one request.",
    _MODEL,
    _TOKENS,
    "head",
)
INVOKE_AGENT_DURATION = _time(
    "gen_ai.invoke_agent.duration",
    "Duration of runs.",
    (AGENT_NAME, REQUEST_MODEL, ERROR_TYPE),
    _AGENT,
)
INVOKE_AGENT_INFERENCE_CALLS = _histogram(
    "gen_ai.invoke_agent.inference_calls",
    "{inference_call}",
    "Number of requests to models per run.",
    (AGENT_NAME,),
    _CALLS,
)
INVOKE_AGENT_TOOL_CALLS = _histogram(
    "gen_ai.invoke_agent.tool_calls",
    "{tool_call}",
    "Number of tool calls per run.",
    (AGENT_NAME,),
    _CALLS,
)
INVOKE_WORKFLOW_DURATION = _time(
    "gen_ai.invoke_workflow.duration",
    "Duration of workflows.",
    (WORKFLOW_NAME, ERROR_TYPE),
    _WORKFLOW,
)
EXECUTE_TOOL_DURATION = _time(
    "gen_ai.execute_tool.duration",
    "Duration of tool calls.",
    (TOOL_NAME, TOOL_TYPE, AGENT_NAME, ERROR_TYPE),
    _D,
)
MCP_CLIENT_OPERATION_DURATION = _time(
    "mcp.client.operation.duration",
    "Duration of requests to MCP servers.",
    (MCP_METHOD_NAME, TOOL_NAME, ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
MCP_SERVER_OPERATION_DURATION = _time(
    "mcp.server.operation.duration",
    "Duration of requests of MCP clients.",
    (MCP_METHOD_NAME, TOOL_NAME, ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
MCP_CLIENT_SESSION_DURATION = _time(
    "mcp.client.session.duration",
    "Duration of sessions with MCP servers.",
    (ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
MCP_SERVER_SESSION_DURATION = _time(
    "mcp.server.session.duration",
    "Duration of sessions of MCP clients over stdio; HTTP has none.",
    (ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
RUNS_OPEN = _gauge("copilot.runs.open", "{run}", "Active runs.")
READERS_OPEN = _gauge("copilot.readers.open", "{reader}", "Active readers of run logs.")
WORKER_UP = _gauge(
    "copilot.worker.up",
    "{worker}",
    "At `/metrics` of several workers: 1 if the worker answered, else 0.",
)
RUN_COUNT = _counter("copilot.run.count", "{run}", "Runs by outcome.", (AGENT_NAME, RUN_OUTCOME))
PLANS_OPEN = _gauge("copilot.plans.open", "{plan}", "Active plans.")
PLAN_QUESTIONS_OPEN = _gauge(
    "copilot.plan.questions.open", "{question}", "Unanswered questions of plans."
)
PLAN_COUNT = _counter(
    "copilot.plan.count", "{plan}", "Plans by outcome.", (WORKFLOW_NAME, PLAN_OUTCOME)
)
PLAN_DURATION = _time(
    "copilot.plan.duration",
    "Duration of plans, on all servers.",
    (WORKFLOW_NAME, PLAN_OUTCOME),
    _WORKFLOW,
)
PLAN_WAITING = _time(
    "copilot.plan.waiting",
    "Time that plans only waited for people.",
    (WORKFLOW_NAME,),
    _WORKFLOW,
)
TASK_COUNT = _counter(
    "copilot.task.count", "{task}", "Tasks of plans by outcome.", (AGENT_NAME, TASK_OUTCOME)
)
TASK_DURATION = _time(
    "copilot.task.duration",
    "Duration of tasks of plans, including the time spent waiting for people.",
    (AGENT_NAME, TASK_OUTCOME),
    _AGENT,
)
FEEDBACK_COUNT = _counter(
    "copilot.feedback.count", "{rating}", "Thumbs up and down.", (FEEDBACK_RATING,)
)
STORE_OPERATION = _define("copilot.store.operation", "string", "The operation of a store.")
STORE_DURATION = _time(
    "copilot.store.duration",
    "Duration of operations of the thread store.",
    (STORE_OPERATION, ERROR_TYPE),
    _FAST,
)
BUS_DELAY = _time(
    "copilot.bus.delay", "Delay of events until they are stored and published.", (), _FAST
)
TELEMETRY_DROPPED = _counter("copilot.telemetry.dropped", "{item}", "Dropped spans and records.")
METRIC_OVERFLOW = _define(
    "otel.metric.overflow", "boolean", "True for the overflow of too many attribute sets."
)
COST = _counter("copilot.cost", "USD", "Cost of requests to models with known prices.", _MODEL)

# -- events ---------------------------------------------------------------------------------------
EVENT_INFERENCE_DETAILS = "gen_ai.client.inference.operation.details"
EVENT_EVALUATION_RESULT = "gen_ai.evaluation.result"
EVENT_EXCEPTION = "gen_ai.client.operation.exception"
EVENT_SPAN_EXCEPTION = "exception"
EVENT_LOG = "copilot.log"
EVENT_FEEDBACK = "copilot.feedback"
LOGGED_EVENTS = frozenset(
    {EVENT_INFERENCE_DETAILS, EVENT_EVALUATION_RESULT, EVENT_EXCEPTION, EVENT_FEEDBACK}
)
"""Events that are exported as log records, if logs are exported; others are span events."""
EVENT_RETRY = "copilot.retry"
EVENT_INTERRUPT = "copilot.interrupt"
EVENT_SURFACE_FAILED = "copilot.surface_failed"
EVENT_QUESTION = "copilot.question"
EVENT_ANSWER = "copilot.answer"
EVENT_CORRECTION = "copilot.correction"
EVENT_REQUEST_SENT = "request.sent"
EVENT_REQUEST_RECEIVED = "request.received"
EVENT_RESPONSE_SENT = "response.sent"
EVENT_RESPONSE_RECEIVED = "response.received"

_FOREIGN_CONTENT = (
    *("gen_ai.prompt", "gen_ai.completion", "gen_ai.tool.message", "input.value", "output.value"),
    *("llm.input_messages", "llm.output_messages", "llm.prompts", "llm.tools", "tool.parameters"),
    *("traceloop.entity.input", "traceloop.entity.output", "langfuse.observation.input"),
    *("langfuse.observation.output", "all_messages_events", "pydantic_ai.all_messages", "events"),
    *("tool_arguments", "tool_response", "final_result", "logfire.msg", "model_request_parameters"),
    *("retrieval.documents", "embedding.text", "db.statement", "mcp.request", "mcp.response"),
    *("ai.prompt", "ai.response.text", "ai.response.object", "ai.response.toolCalls", "ai.value"),
    *("ai.toolCall.args", "ai.toolCall.result", "ai.response.reasoning", "ai.telemetry.metadata"),
    *("gcp.vertex.agent.llm_re", "gcp.vertex.agent.tool_", "gcp.vertex.agent.data"),
    *("llm.prompt_template", "llm.function_call", "langfuse.trace.input", "langfuse.trace.output"),
    *("http.request.header.", "http.response.header.", "rpc.grpc.request.metadata."),
)
"""Prefixes of attribute names that hold content in other dialects."""


FACTS = frozenset(name for name, entry in ATTRIBUTES.items() if not entry.is_content)
"""Names of attributes that never hold content."""


def is_content(name: str) -> bool:
    """Return True if an attribute of any dialect holds content: text of users or models."""
    entry = ATTRIBUTES.get(name)
    if entry is not None:
        return entry.is_content
    return name.startswith(_FOREIGN_CONTENT) and name not in (PROMPT_NAME, PROMPT_VERSION)


_IDENTITY = re.compile(
    r"(enduser|user|langfuse\.user)\.|http\.client_ip|(.*[._])?(user_?id|user_?name|email)$",
    re.IGNORECASE,
)
"""Names of attributes that identify a user in other dialects."""


def is_identity(name: str) -> bool:
    """Return True if an attribute identifies a user."""
    entry = ATTRIBUTES.get(name)
    return entry.is_identity if entry is not None else _IDENTITY.match(name) is not None
