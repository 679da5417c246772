// Calls each method of each service once, and writes what came as JSON.

import grpc from "@grpc/grpc-js";
import { connect, sign } from "./client.mjs";

const [address, protos, secret] = process.argv.slice(2);
const ann = connect(address, protos, { service: "node", secret, user: "ann" });
const own = connect(address, protos, { service: "node", secret });
const found = {};

const text = { role: "user", content: "Hello" };
const uri = "common.User.ann/common.Note.n1";
const identifiers = [{ uri: "common.Message.m1", tokens: 7 }];
const now = BigInt(Date.now()) * 1_000_000n;
const span = {
  trace_id: "0af7651916cd43dd8448eb211c80319c", span_id: "b7ad6b7169203331", name: "node.Call",
  start_time_unix_nano: String(now), end_time_unix_nano: String(now + 5n),
  attributes: { fields: { "node.version": { stringValue: "20", kind: "stringValue" } } },
};
const subscription = ann.follow("event", "Event", "Subscribe", {
  detail_types: ["ORDER_PLACED"],
});
const pages = subscription[Symbol.asyncIterator]();
await pages.next();

for (const [client, ...call] of [
  [own, "vector", "Vector", "SearchContent", { input: ["when does the library open"], limit: 1 }],
  [own, "graph", "Graph", "QueryByPattern", { predicate: "schema:jobTitle" }],
  [own, "graph", "Graph", "GetOntology", {}],
  [ann, "memory", "Memory", "AppendMemory", { thread_id: "t1", identifiers }],
  [ann, "memory", "Memory", "GetWindow", { thread_id: "t1", budget: 100 }],
  [ann, "context", "Context", "GetWindow", { id: "common.User.ann/common.Conversation.t1" }],
  [ann, "context", "Context", "OptimizeWindow",
    { id: "common.User.ann/common.Conversation.t1", budget: 50 }],
  [own, "trace", "Trace", "RecordSpan", { spans: [span] }],
  [own, "trace", "Trace", "FlushTraces", {}],
  [own, "trace", "Trace", "QuerySpans", { trace_id: span.trace_id }],
  [own, "tool", "Tool", "ListTools", {}],
  [ann, "tool", "Tool", "CallTool", { name: "whoami" }],
  [own, "llm", "Llm", "CreateEmbeddings", { input: ["one"] }],
  [own, "llm", "Llm", "CreateCompletions", { messages: [text] }],
  [ann, "agent", "Agent", "ProcessRequest", { messages: [text], thread_id: "t2" }],
  [ann, "event", "Event", "Publish", { detail_type: "ORDER_PLACED", resources: [uri] }],
]) {
  found[`${call[1]}.${call[2]}`] = await client.ask(...call);
}

do found["Event.Subscribe"] = (await pages.next()).value;
while (!found["Event.Subscribe"].events);  // else only the cursor has changed
subscription.on("error", () => {});
subscription.cancel();

for (const call of [
  ["agent", "Agent", "ProcessStream", { messages: [text] }],
  ["plan", "Plan", "Process", { content: "Write a letter." }],
]) {
  const messages = [];
  for await (const message of own.follow(...call)) messages.push(message);
  found[`${call[1]}.${call[2]}`] = messages;
}

const refused = {};
const once = sign("node", secret, "/copilot.tool.v1.Tool/ListTools", Buffer.alloc(0));
for (const [name, token] of [
  ["tampered", (...call) => sign(...call).replace(/.{8}/, "AAAAAAAA")],
  ["late", (...call) => sign(...call, Date.now() - 61_000)],
  ["of another message", (service, key, path) => sign(service, key, path, Buffer.from("x"))],
  ["of another method", (service, key, _, body) => sign(service, key, "/a.B/C", body)],
  ["first", () => once],
  ["replayed", () => once],
]) {
  const client = connect(address, protos, { service: "node", secret, token });
  refused[name] = await client.ask("tool", "Tool", "ListTools", {}).then(
    () => "OK", (error) => `${grpc.status[error.code]} ${error.details}`,
  );
  client.close();
}

console.log(JSON.stringify({ found, refused }));
ann.close();
own.close();
