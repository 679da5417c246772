"""Which function answers the cases of which area: one line each.

A handler takes what is `given` and the `World`, does with our analyst what it says, and returns
facts, by the names that cases expect them under; sync or async.
"""

PACKAGE = "tests.conformance.data_analyst"

HANDLERS = {
    "input_guard": f"{PACKAGE}.questions:answer_input",
    "output_guard": f"{PACKAGE}.questions:answer_output",
    "classification": f"{PACKAGE}.questions:answer_classification",
    "history": f"{PACKAGE}.questions:answer_history",
    "sql_guard": f"{PACKAGE}.statements:answer_guard",
    "engine_sandbox": f"{PACKAGE}.statements:answer_sandbox",
    "sql_fingerprint": f"{PACKAGE}.statements:answer_fingerprint",
    "schema_fingerprint": f"{PACKAGE}.statements:answer_schema",
    "sql_autofix": f"{PACKAGE}.repairs:answer",
    "skills": f"{PACKAGE}.prompts:answer_skills",
    "sql_examples": f"{PACKAGE}.prompts:answer_examples",
    "schema_context": f"{PACKAGE}.prompts:answer_schema",
    "prompt": f"{PACKAGE}.prompts:answer_prompt",
    "memory": f"{PACKAGE}.memories:answer",
    "cache": f"{PACKAGE}.calls:answer_cache",
    "tools": f"{PACKAGE}.calls:answer_tools",
    "stream": f"{PACKAGE}.streams:answer",
    "tracing": f"{PACKAGE}.spans:answer",
}
