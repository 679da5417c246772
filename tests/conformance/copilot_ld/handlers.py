"""Which function answers the cases of which system: one line and one file each.

A handler takes a `Case`, does with our parts what its input says, and returns what came out as
JSON; sync or async. A `CopilotError` that it raises becomes `{"error": <message>}`. Where the
output of a case is prose, it returns a `Verdict` that it has reached by itself.
"""

PACKAGE = "tests.conformance.copilot_ld"

HANDLERS = {
    "identifier": f"{PACKAGE}.identifiers:answer",
    "type": f"{PACKAGE}.types:answer",
    "type(seed)": f"{PACKAGE}.types:answer_seed",
    "type(2025-08 seed TODO)": f"{PACKAGE}.types:answer_todo",
    "tokenizer": f"{PACKAGE}.identifiers:answer_tokens",
    "hash": f"{PACKAGE}.identifiers:answer_hash",
    "storage": f"{PACKAGE}.storage:answer",
    "resource": f"{PACKAGE}.resources:answer",
    "policy": f"{PACKAGE}.policies:answer",
    "index": f"{PACKAGE}.index:answer",
    "parser": f"{PACKAGE}.pages:answer",
    "sanitizer": f"{PACKAGE}.pages:answer_sanitizer",
    "resource-processor": f"{PACKAGE}.pages:answer_processor",
    "jsonld(seed)": f"{PACKAGE}.pages:answer_jsonld",
    "vector": f"{PACKAGE}.vectors:answer",
    "graph": f"{PACKAGE}.graph:answer",
    "ontology": f"{PACKAGE}.ontology:answer",
    "memory(seed)": f"{PACKAGE}.memory:answer_seed",
    "memory(HEAD)": f"{PACKAGE}.memory:answer_head",
    "trace": f"{PACKAGE}.traces:answer",
    "telemetry": f"{PACKAGE}.traces:answer_telemetry",
    "tool": f"{PACKAGE}.tools:answer",
    "otlp(seed)": f"{PACKAGE}.traces:answer_otlp",
    "agent": f"{PACKAGE}.assistants:answer",
    "agent(seed)": f"{PACKAGE}.assistants:answer_seed",
    "agent-config": f"{PACKAGE}.assistants:answer_config",
    "agent-service": f"{PACKAGE}.delegation:answer",
    "llm": f"{PACKAGE}.models:answer",
    "auth": f"{PACKAGE}.tokens:answer",
    "web-auth": f"{PACKAGE}.tokens:answer_web",
    "retry": f"{PACKAGE}.models:answer_retry",
    "config": f"{PACKAGE}.services:answer",
}
