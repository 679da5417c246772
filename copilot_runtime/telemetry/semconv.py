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

    Other programs alone write a foreign attribute; it is listed because its meaning is known.
    """

    name: str
    type: AttributeType
    about: str
    is_content: bool = False
    is_identity: bool = False
    is_foreign: bool = False


ATTRIBUTES: dict[str, Attribute] = {}
"""All attributes that this package writes or knows, by name."""


def _define(
    name: str,
    type: AttributeType,
    about: str,
    *,
    is_content: bool = False,
    is_identity: bool = False,
    is_foreign: bool = False,
) -> str:
    ATTRIBUTES[name] = Attribute(name, type, about, is_content, is_identity, is_foreign)
    return name


# -- what was done, and by whom ---------------------------------------------------------------
OPERATION_NAME = _define("gen_ai.operation.name", "string", "What was done, such as `chat`.")
PROVIDER_NAME = _define("gen_ai.provider.name", "string", "Who runs the model, such as `openai`.")
CONVERSATION_ID = _define("gen_ai.conversation.id", "string", "The id of the thread.")
AGENT_NAME = _define("gen_ai.agent.name", "string", "The name of the agent, as clients call it.")
AGENT_ID = _define("gen_ai.agent.id", "string", "The id of a remote agent.")
AGENT_DESCRIPTION = _define("gen_ai.agent.description", "string", "What the agent is for.")
AGENT_VERSION = _define(
    "gen_ai.agent.version", "string", "The version of a remote agent.", is_foreign=True
)
WORKFLOW_NAME = _define(
    "gen_ai.workflow.name", "string", "The name of a workflow: the agent whose plan it is."
)
DATA_SOURCE_ID = _define("gen_ai.data_source.id", "string", "Where passages were looked for.")
ERROR_TYPE = _define("error.type", "string", "What kind of error it was: a code, or a class.")
EXCEPTION_TYPE = _define("exception.type", "string", "The class of an exception.")
EXCEPTION_MESSAGE = _define(
    "exception.message", "string", "The message of an exception.", is_content=True
)
EXCEPTION_STACKTRACE = _define(
    "exception.stacktrace", "string", "Where an exception was raised.", is_content=True
)

# -- a request to a model ---------------------------------------------------------------------
REQUEST_MODEL = _define("gen_ai.request.model", "string", "The model that was asked for.")
REQUEST_CHOICE_COUNT = _define("gen_ai.request.choice.count", "int", "How many answers, if not 1.")
REQUEST_SEED = _define("gen_ai.request.seed", "int", "The seed that was sent.")
REQUEST_STREAM = _define("gen_ai.request.stream", "boolean", "Whether the answer is a stream.")
REQUEST_TOP_K = _define("gen_ai.request.top_k", "int", "How many tokens to choose among.")
REQUEST_MAX_TOKENS = _define("gen_ai.request.max_tokens", "int", "The longest answer, in tokens.")
REQUEST_TEMPERATURE = _define("gen_ai.request.temperature", "double", "How much chance there is.")
REQUEST_TOP_P = _define("gen_ai.request.top_p", "double", "Share of the likeliest tokens.")
REQUEST_FREQUENCY_PENALTY = _define(
    "gen_ai.request.frequency_penalty", "double", "Penalty of frequent tokens."
)
REQUEST_PRESENCE_PENALTY = _define(
    "gen_ai.request.presence_penalty", "double", "Penalty of tokens that were there."
)
REQUEST_STOP_SEQUENCES = _define(
    "gen_ai.request.stop_sequences", "string[]", "Texts at which an answer ends."
)
REQUEST_REASONING_LEVEL = _define(
    "gen_ai.request.reasoning.level", "string", "How much the model may think, as it was sent."
)
REQUEST_PREVIOUS_RESPONSE_ID = _define(
    "gen_ai.request.previous_response.id", "string", "The answer that this one continues."
)
REQUEST_ENCODING_FORMATS = _define(
    "gen_ai.request.encoding_formats", "string[]", "The form of the vectors."
)
OUTPUT_TYPE = _define("gen_ai.output.type", "string", "`text`, `json`, `image` or `speech`.")
PROMPT_NAME = _define("gen_ai.prompt.name", "string", "The name of a template of prompts.")
PROMPT_VERSION = _define(
    "gen_ai.prompt.version", "string", "The version of that template.", is_foreign=True
)
CONVERSATION_COMPACTED = _define(
    "gen_ai.conversation.compacted", "boolean", "Whether older messages were left out; or absent."
)

# -- the answer -------------------------------------------------------------------------------
RESPONSE_ID = _define("gen_ai.response.id", "string", "The provider's id of the answer.")
RESPONSE_MODEL = _define("gen_ai.response.model", "string", "The model that answered.")
RESPONSE_STATUS = _define(
    "gen_ai.response.status", "string", "How far a stored answer is.", is_foreign=True
)
RESPONSE_FINISH_REASONS = _define(
    "gen_ai.response.finish_reasons", "string[]", "Why the answer ended; `error` if it broke off."
)
RESPONSE_TIME_TO_FIRST_CHUNK = _define(
    "gen_ai.response.time_to_first_chunk", "double", "Seconds until the first event."
)
USAGE_INPUT_TOKENS = _define(
    "gen_ai.usage.input_tokens", "int", "Tokens that were read, those of a cache included."
)
USAGE_OUTPUT_TOKENS = _define(
    "gen_ai.usage.output_tokens", "int", "Tokens that were written, reasoning included."
)
USAGE_CACHE_READ_TOKENS = _define(
    "gen_ai.usage.cache_read.input_tokens", "int", "Tokens of the input that a cache had."
)
USAGE_CACHE_WRITE_TOKENS = _define(
    "gen_ai.usage.cache_write.input_tokens", "int", "Tokens of the input that a cache took in."
)
USAGE_REASONING_TOKENS = _define(
    "gen_ai.usage.reasoning.output_tokens", "int", "Tokens of the output that were thoughts."
)
OPENAI_API_TYPE = _define("openai.api.type", "string", "`chat_completions` or `responses`.")
OPENAI_RESPONSE_SERVICE_TIER = _define(
    "openai.response.service_tier", "string", "The tier that answered."
)
OPENAI_RESPONSE_SYSTEM_FINGERPRINT = _define(
    "openai.response.system_fingerprint", "string", "OpenAI's name of what the model runs on."
)
SERVER_ADDRESS = _define("server.address", "string", "The host that was asked.")
SERVER_PORT = _define("server.port", "int", "The port of that host.")

# -- what people and models wrote ---------------------------------------------------------------
SYSTEM_INSTRUCTIONS = _define(
    "gen_ai.system_instructions", "any", "The system prompt.", is_content=True
)
INPUT_MESSAGES = _define(
    "gen_ai.input.messages", "any", "The messages that were sent.", is_content=True
)
OUTPUT_MESSAGES = _define(
    "gen_ai.output.messages", "any", "The messages that came back.", is_content=True
)
TOOL_DEFINITIONS = _define(
    "gen_ai.tool.definitions", "any", "The tools that were offered.", is_content=True
)

# -- tools and skills ---------------------------------------------------------------------------
TOOL_NAME = _define("gen_ai.tool.name", "string", "The name of the tool.")
TOOL_TYPE = _define("gen_ai.tool.type", "string", "`function`, `extension` or `datastore`.")
TOOL_CALL_ID = _define("gen_ai.tool.call.id", "string", "The id of the call.")
TOOL_DESCRIPTION = _define("gen_ai.tool.description", "string", "What the tool is for.")
TOOL_CALL_ARGUMENTS = _define(
    "gen_ai.tool.call.arguments", "any", "The arguments of the call.", is_content=True
)
TOOL_CALL_RESULT = _define(
    "gen_ai.tool.call.result", "any", "The result of the call.", is_content=True
)
SKILL_NAME = _define("gen_ai.skill.name", "string", "The skill that was loaded.", is_foreign=True)
SKILL_DESCRIPTION = _define(
    "gen_ai.skill.description", "string", "What the skill is for.", is_foreign=True
)
SKILL_SOURCE_URI = _define(
    "gen_ai.skill.source.uri", "string", "Where the skill comes from.", is_foreign=True
)
SKILL_RESOURCE_NAME = _define(
    "gen_ai.skill.resource.name", "string", "A file of the skill.", is_foreign=True
)

# -- embeddings, retrieval, memory --------------------------------------------------------------
EMBEDDINGS_DIMENSION_COUNT = _define(
    "gen_ai.embeddings.dimension.count", "int", "The length of a vector."
)
RETRIEVAL_TOP_K = _define("gen_ai.retrieval.top_k", "int", "How many passages were wanted.")
RETRIEVAL_QUERY_TEXT = _define(
    "gen_ai.retrieval.query.text", "string", "What was looked for.", is_content=True
)
RETRIEVAL_DOCUMENTS = _define(
    "gen_ai.retrieval.documents", "any", "What was found.", is_content=True
)
MEMORY_STORE_ID = _define("gen_ai.memory.store.id", "string", "Which memory it is.")
MEMORY_RECORD_ID = _define("gen_ai.memory.record.id", "string", "Which record of it.")
MEMORY_RECORD_COUNT = _define("gen_ai.memory.record.count", "int", "How many records.")
MEMORY_QUERY_TEXT = _define(
    "gen_ai.memory.query.text", "string", "What was looked for.", is_content=True
)
MEMORY_RECORDS = _define("gen_ai.memory.records", "any", "What was found.", is_content=True)

# -- MCP ------------------------------------------------------------------------------------------
MCP_METHOD_NAME = _define("mcp.method.name", "string", "The method, such as `tools/call`.")
MCP_SESSION_ID = _define("mcp.session.id", "string", "The session.")
MCP_PROTOCOL_VERSION = _define("mcp.protocol.version", "string", "The version of MCP.")
MCP_RESOURCE_URI = _define(
    "mcp.resource.uri", "string", "The resource that was read.", is_content=True
)
"""Content, because a model generates it."""
JSONRPC_REQUEST_ID = _define("jsonrpc.request.id", "string", "The id of the request.")
RPC_SYSTEM_NAME = _define("rpc.system.name", "string", "The kind of RPC, such as `grpc`.")
RPC_METHOD = _define("rpc.method", "string", "The service and its method.")
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
CLIENT_ADDRESS = _define("client.address", "string", "The host of a client.", is_identity=True)
CLIENT_PORT = _define("client.port", "int", "The port of a client.", is_identity=True)

# -- databases ------------------------------------------------------------------------------------
DB_SYSTEM_NAME = _define("db.system.name", "string", "The kind of database, such as `duckdb`.")
DB_OPERATION_NAME = _define("db.operation.name", "string", "What was done, such as `SELECT`.")
DB_COLLECTION_NAME = _define("db.collection.name", "string", "The table.")
DB_NAMESPACE = _define("db.namespace", "string", "The database.")
DB_QUERY_SUMMARY = _define("db.query.summary", "string", "The query in a few words.")
DB_QUERY_TEXT = _define("db.query.text", "string", "The query, with `?` for each value.")
DB_RESPONSE_STATUS_CODE = _define(
    "db.response.status_code", "string", "The database's own code.", is_foreign=True
)
DB_RESPONSE_RETURNED_ROWS = _define("db.response.returned_rows", "int", "How many rows came back.")

# -- evaluations ----------------------------------------------------------------------------------
EVALUATION_NAME = _define("gen_ai.evaluation.name", "string", "What was judged.")
EVALUATION_SCORE_VALUE = _define("gen_ai.evaluation.score.value", "double", "The score.")
EVALUATION_SCORE_LABEL = _define("gen_ai.evaluation.score.label", "string", "The score in a word.")
EVALUATION_EXPLANATION = _define(
    "gen_ai.evaluation.explanation", "string", "Why it was judged so.", is_content=True
)

# -- who, where -----------------------------------------------------------------------------------
USER_NAME = _define("user.name", "string", "Who asked.", is_identity=True)
PROCESS_USER_NAME = _define(
    "process.user.name", "string", "The user of this process.", is_identity=True
)
HOST_NAME = _define("host.name", "string", "The name of this machine.", is_identity=True)
SERVICE_NAME = _define("service.name", "string", "What this server is.")
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
RUN_PROTOCOL = _define("copilot.run.protocol", "string", "`agui` or `graphql`.")
RUN_TURNS = _define("copilot.run.turns", "int", "How many requests to the model it took.")
RUN_TOOL_CALLS = _define("copilot.run.tool_calls", "int", "How many calls of tools it made.")
REQUEST_TYPE = _define("copilot.request.type", "string", "CopilotKit's word for the request.")
TOOL_LOCATION = _define(
    "copilot.tool.location", "string", "Where a tool runs: `server`, `browser`, `agent` or `mcp`."
)
TOOL_WAITING = _define(
    "copilot.tool.waiting",
    "boolean",
    "True of a call whose result had not come when the run ended: the browser brings it later.",
)
TOOL_SERVER = _define("copilot.tool.server", "string", "The host of the MCP server that has it.")
HOOK_TYPE = _define("copilot.hook.type", "string", "The hook, such as `before_request`.")
HOOK_RESULT = _define("copilot.hook.result", "string", "`success`, `error` or `refused`.")
HOOK_NAME = _define("copilot.hook.name", "string", "The name of its function.")
COST_DOLLARS = _define("copilot.cost.usd", "double", "What the answer cost, if prices are known.")
FEEDBACK_RATING = _define("copilot.feedback.rating", "string", "`up` or `down`.")
FEEDBACK_COMMENT = _define(
    "copilot.feedback.comment", "string", "What somebody said about it.", is_content=True
)
SPAN_SOURCE = _define(
    "copilot.span.source", "string", "`events` for a span that was made of an agent's events."
)
STEP_NAME = _define("copilot.step.name", "string", "A step of an agent, such as a node.")
LOG_SEVERITY = _define("copilot.log.severity", "string", "How bad it is, such as `WARN`.")
LOG_LOGGER = _define("copilot.log.logger", "string", "Who wrote to the log of another process.")
LOG_BODY = _define("copilot.log.body", "any", "What was written to that log.", is_content=True)
INGEST_SOURCES = _define("copilot.ingest.sources", "int", "How many sources there were.")
INGEST_CHANGES = _define("copilot.ingest.changes", "int", "How many sources or resources changed.")
INGEST_FAILURES = _define(
    "copilot.ingest.failures", "int", "How many sources or resources could not be taken in."
)
INGEST_STEP_NAME = _define(
    "copilot.ingest.step", "string", "A step: `read`, `store`, `embed` or `link`."
)
UPLOAD_STATE = _define(
    "copilot.upload.state", "string", "`searchable`, `stored`, `refused` or `reading`."
)
UPLOAD_MEDIA_TYPE = _define("copilot.upload.media_type", "string", "The type, by the content.")
UPLOAD_BYTES = _define("copilot.upload.bytes", "int", "How large the file is.")
UPLOAD_CHUNKS = _define("copilot.upload.chunks", "int", "How many pieces of text it has.")
UPLOAD_NAME = _define(
    "copilot.upload.name", "string", "What the user calls the file.", is_content=True
)
UPLOAD_MESSAGE = _define(
    "copilot.upload.message", "string", "Why it was refused, or cut.", is_content=True
)
PLAN_ID = _define("copilot.plan.id", "string", "The id of a plan.")
PLAN_OUTCOME = _define(
    "copilot.plan.outcome",
    "string",
    "`finished`, `failed` or `stopped`; `interrupted` where another server goes on with it.",
)
PLAN_EPOCH = _define(
    "copilot.plan.epoch", "int", "Which carrying out it is: 1, and 1 more for each time it goes on."
)
PLAN_TASKS = _define("copilot.plan.tasks", "int", "How many tasks there are, or were added.")
PLAN_SECONDS = _define(
    "copilot.plan.seconds", "double", "Seconds from the beginning of a plan, on whatever server."
)
TASK_ID = _define("copilot.task.id", "string", "Where a task is in its plan, such as `2.1`.")
TASK_ATTEMPT = _define("copilot.task.attempt", "int", "How often the task has begun.")
TASK_ROUND = _define(
    "copilot.task.round", "int", "The round of corrections that made the task; absent if planned."
)
TASK_SCORE = _define(
    "copilot.task.score", "double", "How well the agent fits the task that was elected for it."
)
TASK_OUTCOME = _define(
    "copilot.task.outcome",
    "string",
    "`finished`, `failed`, `skipped` or `stopped`; `interrupted` if the server ended before.",
)
TASK_TOKENS = _define("copilot.task.tokens", "int", "Tokens of a task and of those below it.")
TASK_COST = _define(
    "copilot.task.cost.usd", "double", "What a task and those below it cost, as far as it is known."
)
TASK_WAITING = _define("copilot.task.waiting", "double", "Seconds that it waited for people.")
TASK_NAME = _define("copilot.task.name", "string", "The name of a task.", is_content=True)
TASK_DESCRIPTION = _define(
    "copilot.task.description", "string", "What is to be done.", is_content=True
)
TASK_OUTPUT = _define("copilot.task.output", "string", "What came of it.", is_content=True)
TASK_REASON = _define(
    "copilot.task.reason", "string", "Why it did not finish, in a sentence.", is_content=True
)
QUESTION_KIND = _define(
    "copilot.question.kind",
    "string",
    "`approval`, `interrupted_call`, `interrupted_task`, or `interrupt`: an agent itself asks.",
)
QUESTION_TEXT = _define("copilot.question.text", "string", "What was asked.", is_content=True)
QUESTION_ANSWER = _define(
    "copilot.question.answer",
    "string",
    "`approve`, `reject`, `retry`, `done`, `fail`, `resolve` or `cancel`.",
)
QUESTION_NOTE = _define(
    "copilot.question.note", "string", "What a person wrote beside the answer.", is_content=True
)
REQUEST_CLASS = _define(
    "copilot.request.class",
    "string",
    "What kind of question the analyst takes it for, such as `data_question`.",
)
REQUEST_CONFIDENCE = _define(
    "copilot.request.confidence", "double", "How sure the analyst is of that, from 0 to 1."
)
REQUEST_SKILLS = _define(
    "copilot.request.skills", "string[]", "The skills that the model reads for it."
)
REQUEST_DATASET = _define("copilot.request.dataset", "string", "The data set that it is about.")
REQUEST_BLOCKED = _define(
    "copilot.request.blocked", "string", "Why it is not answered, such as `prompt_injection`."
)
REDACTION_COUNT = _define(
    "copilot.redaction.count", "int", "How much was taken out of the text of an answer."
)
SQL_ATTEMPT = _define(
    "axis.sql.attempt", "int", "Which attempt a query of the analyst is: after 1, it was repaired."
)
SQL_HASH = _define(
    "axis.sql.hash", "string", "Equal for queries of the analyst that differ in values only."
)
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

    MCP requests and database queries have no operation, unless they are tool calls.
    """
    operation = attributes.get(OPERATION_NAME)
    if operation is None:
        return MCP_METHOD_NAME in attributes or DB_SYSTEM_NAME in attributes
    return EXPORTED_OPERATIONS.get(str(operation), False)


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
    "How long requests to models took.",
    (*_MODEL, ERROR_TYPE),
    _D,
    "released",
)
TOKEN_USAGE = _histogram(
    "gen_ai.client.token.usage",
    "{token}",
    "How many tokens requests to models took.",
    (*_MODEL, TOKEN_TYPE),
    _TOKENS,
    "released",
)
TIME_TO_FIRST_CHUNK = _time(
    "gen_ai.client.operation.time_to_first_chunk",
    "How long the first event of a stream took.",
    _MODEL,
    _D,
    "released",
)
INFERENCE_DURATION = _time(
    "gen_ai.client.inference.duration",
    "How long requests to models took.",
    (*_MODEL, ERROR_TYPE),
    _D,
    "head",
)
INFERENCE_TIME_TO_FIRST_CHUNK = _time(
    "gen_ai.client.inference.time_to_first_chunk",
    "How long the first event of a stream took.",
    _MODEL,
    _D,
    "head",
)
_USAGE = {
    "input_tokens": "Tokens that were read.",
    "output_tokens": "Tokens that were written.",
    "cache_read.input_tokens": "Tokens that a cache had.",
    "cache_write.input_tokens": "Tokens that a cache took in.",
    "reasoning.output_tokens": "Tokens that were thoughts.",
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
    "How many tokens one request read.",
    _MODEL,
    _TOKENS,
    "head",
)
INFERENCE_OUTPUT_TOKENS = _histogram(
    "gen_ai.client.inference.operation.output_tokens",
    "{token}",
    "How many tokens one answer had.",
    _MODEL,
    _TOKENS,
    "head",
)
INVOKE_AGENT_DURATION = _time(
    "gen_ai.invoke_agent.duration",
    "How long runs took.",
    (AGENT_NAME, REQUEST_MODEL, ERROR_TYPE),
    _AGENT,
)
INVOKE_AGENT_INFERENCE_CALLS = _histogram(
    "gen_ai.invoke_agent.inference_calls",
    "{inference_call}",
    "How many requests to a model a run took.",
    (AGENT_NAME,),
    _CALLS,
)
INVOKE_AGENT_TOOL_CALLS = _histogram(
    "gen_ai.invoke_agent.tool_calls",
    "{tool_call}",
    "How many calls of tools a run made.",
    (AGENT_NAME,),
    _CALLS,
)
INVOKE_WORKFLOW_DURATION = _time(
    "gen_ai.invoke_workflow.duration",
    "How long workflows took.",
    (WORKFLOW_NAME, ERROR_TYPE),
    _WORKFLOW,
)
EXECUTE_TOOL_DURATION = _time(
    "gen_ai.execute_tool.duration",
    "How long calls of tools took.",
    (TOOL_NAME, TOOL_TYPE, AGENT_NAME, ERROR_TYPE),
    _D,
)
MCP_CLIENT_OPERATION_DURATION = _time(
    "mcp.client.operation.duration",
    "How long requests to MCP servers took.",
    (MCP_METHOD_NAME, TOOL_NAME, ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
MCP_SERVER_OPERATION_DURATION = _time(
    "mcp.server.operation.duration",
    "How long requests of MCP clients took.",
    (MCP_METHOD_NAME, TOOL_NAME, ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
MCP_CLIENT_SESSION_DURATION = _time(
    "mcp.client.session.duration",
    "How long sessions with MCP servers lasted.",
    (ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
MCP_SERVER_SESSION_DURATION = _time(
    "mcp.server.session.duration",
    "How long sessions of MCP clients behind pipes lasted; over HTTP there are none.",
    (ERROR_TYPE, NETWORK_TRANSPORT),
    _MCP,
)
RUNS_OPEN = _gauge("copilot.runs.open", "{run}", "Runs that go on.")
READERS_OPEN = _gauge("copilot.readers.open", "{reader}", "Readers of logs.")
WORKER_UP = _gauge(
    "copilot.worker.up",
    "{worker}",
    "At `/metrics` of several workers: 1 if the worker answered, else 0.",
)
RUN_COUNT = _counter(
    "copilot.run.count", "{run}", "Runs by how they ended.", (AGENT_NAME, RUN_OUTCOME)
)
PLANS_OPEN = _gauge("copilot.plans.open", "{plan}", "Plans that are carried out.")
PLAN_QUESTIONS_OPEN = _gauge(
    "copilot.plan.questions.open", "{question}", "Questions of plans that nobody has answered."
)
PLAN_COUNT = _counter(
    "copilot.plan.count", "{plan}", "Plans by how they ended.", (WORKFLOW_NAME, PLAN_OUTCOME)
)
PLAN_DURATION = _time(
    "copilot.plan.duration",
    "How long plans took, on however many servers.",
    (WORKFLOW_NAME, PLAN_OUTCOME),
    _WORKFLOW,
)
PLAN_WAITING = _time(
    "copilot.plan.waiting",
    "How long plans waited for people while nothing else was done.",
    (WORKFLOW_NAME,),
    _WORKFLOW,
)
TASK_COUNT = _counter(
    "copilot.task.count", "{task}", "Tasks of plans by how they ended.", (AGENT_NAME, TASK_OUTCOME)
)
TASK_DURATION = _time(
    "copilot.task.duration",
    "How long tasks of plans took, the time included in which they waited for people.",
    (AGENT_NAME, TASK_OUTCOME),
    _AGENT,
)
FEEDBACK_COUNT = _counter(
    "copilot.feedback.count", "{rating}", "Thumbs up and down.", (FEEDBACK_RATING,)
)
STORE_OPERATION = _define("copilot.store.operation", "string", "What was done to a store.")
STORE_DURATION = _time(
    "copilot.store.duration",
    "How long the store of threads took.",
    (STORE_OPERATION, ERROR_TYPE),
    _FAST,
)
BUS_DELAY = _time(
    "copilot.bus.delay", "How long an event waited for the store before readers got it.", (), _FAST
)
TELEMETRY_DROPPED = _counter(
    "copilot.telemetry.dropped", "{item}", "Spans and records that were left out."
)
METRIC_OVERFLOW = _define(
    "otel.metric.overflow", "boolean", "Of values whose attributes were too many to be told apart."
)
COST = _counter("copilot.cost", "USD", "What answers cost, where prices are known.", _MODEL)

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
