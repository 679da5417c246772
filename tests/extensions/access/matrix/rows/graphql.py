"""Rows of the operations of GraphQL, by the field at their root."""

from collections.abc import Mapping

from tests.extensions.access.matrix.rows.asks import Row, get, gql, post, subscribe
from tests.wire.client import STATE, chat

FOLLOW = """subscription($run: String!) {
    generateCopilotResponse(runId: $run, after: "0") { runId deltas { content } } }"""
MEMORY = """query($id: String!) { memory(threadId: $id) {
    conversation items { id } window { tokens } recall(input: ["mat"]) { text } } }"""
ANSWER = """mutation($id: String!, $question: String!) {
    answerPlan(id: $id, questionId: $question, answer: "approve") { request } }"""
_SQL = 'sql: "SELECT * FROM orders"'


def _analyst(field: str, arguments: str = "", shows: str = "") -> Row:
    brackets = f"({arguments})" if arguments else ""
    body = "{ error output }" if field != "datasets" else "{ name rows }"
    return gql(f"{{ analyst {{ {field}{brackets} {body} }} }}", shows)


_PLANS = "{ plans { id title threadId user } next }"

GRAPHQL_ROWS: Mapping[str, Row] = {
    "GET ?query=": get("?query={plans{plans{title}}}", "plan"),
    "query hello": gql("{ hello }"),
    "query availableAgents": gql("{ availableAgents { agents { name } } }"),
    "query loadAgentState": gql(STATE, data={"threadId": "<asking_thread>", "agentName": "asking"}),
    "query tools": gql("{ tools { name } }"),
    "query events": gql("{ events { events { id resources detail } cursor } }"),
    "query traces": gql("{ traces(limit: 100) { traces { traceId } } }", kind="operator"),
    "query trace": gql(
        "query($id: String!) { trace(id: $id) { __typename } }", kind="operator", id="<trace>"
    ),
    "query traceStats": gql("{ traceStats { traces spans } }", kind="operator"),
    "query plans": gql(f"{{ plans {_PLANS} }}", "plan"),
    "query plan": gql(
        "query($id: String!) { plan(id: $id) { request status } }", "plan", id="<plan>"
    ),
    "query knowledgeSources": gql("{ knowledgeSources { name message } }"),
    "query resources": gql("{ resources(limit: 100) { resources { id } total } }", ""),
    "query resource": gql(
        "query($id: String!) { resource(id: $id) { title content } }", id="<upload>"
    ),
    "query search": gql('{ search(input: ["mat key file"]) { id text } }'),
    "query graph": gql("{ graph { triples { subject object } resources { id } } }"),
    "query ontology": gql("{ ontology { turtle classes { name instances } } }"),
    "query memory": gql(
        MEMORY,
        id="<thread>",
    ),
    "query contextWindow": gql(
        "query($id: String!) { contextWindow(id: $id) { __typename } }", id="<conversation>"
    ),
    "query analyst": gql("{ analyst { __typename } }"),
    "query analyst.datasets": _analyst("datasets"),
    "query analyst.summarizeData": _analyst("summarizeData", shows="town"),
    "query analyst.queryData": _analyst("queryData", 'searchText: "town"', "town"),
    "query analyst.analyzeData": _analyst(
        "analyzeData", 'groupBy: ["city"], metric: ["amount"]', "town"
    ),
    "query analyst.compareData": _analyst("compareData", 'groupColumn: "city"'),
    "query analyst.queryKpiData": _analyst("queryKpiData"),
    "query analyst.runSql": _analyst("runSql", _SQL, "town"),
    "query analyst.plotData": _analyst(
        "plotData", f'{_SQL}, chartType: "bar", xColumn: "city", yColumn: ["amount"]'
    ),
    "query analyst.analyzePatterns": _analyst("analyzePatterns"),
    "query analyst.downloadData": _analyst("downloadData", f'{_SQL}, format: "csv"'),
    "query analyst.describeMetricSignals": _analyst("describeMetricSignals"),
    "query analyst.recallMemory": _analyst("recallMemory"),
    "mutation analyst": gql("mutation { analyst { __typename } }"),
    "mutation analyst.saveAsDataset": gql(
        f'mutation {{ analyst {{ saveAsDataset(name: "anns_orders", {_SQL}) {{ output }} }} }}',
        changes=True,
    ),
    "mutation generateCopilotResponse": post("", chat(threadId="<thread>"), changes=True),
    "mutation stopCopilotResponse": gql(
        "mutation($id: String!) { stopCopilotResponse(runId: $id) }", changes=True, id="<v1_run>"
    ),
    "mutation stopPlan": gql(
        "mutation($id: String!) { stopPlan(id: $id) { request } }", changes=True, id="<plan>"
    ),
    "mutation retryPlan": gql(
        "mutation($id: String!) { retryPlan(id: $id) { request } }", changes=True, id="<plan>"
    ),
    "mutation answerPlan": gql(
        ANSWER,
        changes=True,
        id="<plan>",
        question="<question>",
    ),
    "mutation callTool": gql(
        'mutation { callTool(name: "whoami", arguments: {}) { content error } }'
    ),
    "mutation publishEvent": gql(
        "mutation($event: PublishEventInput!) { publishEvent(event: $event) { id } }",
        changes=True,
        event={"detailType": "NOTE", "resources": ["<conversation>"], "source": "shop"},
    ),
    "mutation optimizeContextWindow": gql(
        "mutation($id: String!) { optimizeContextWindow(id: $id) { successful } }",
        changes=True,
        id="<conversation>",
    ),
    "subscription generateCopilotResponse": subscribe(FOLLOW, "live", run="<v1_run>"),
    "subscription spans": subscribe(
        "subscription($id: String!) { spans(traceId: $id) { phase } }",
        kind="operator",
        id="<trace>",
    ),
    "subscription events": subscribe('subscription { events(after: "0") { resources } }'),
    "subscription resourceEvents": subscribe(
        "subscription($id: String!) { resourceEvents(prefix: $id) { resources } }",
        id="<conversation>",
    ),
}
"""Operations of GraphQL, by the field at their root."""
