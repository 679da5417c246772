PRAGMA application_id = 1414676803;
PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE labels(
  kind TEXT NOT NULL,
  value TEXT NOT NULL,
  trace INTEGER NOT NULL,
  PRIMARY KEY (kind, value, trace)
) WITHOUT ROWID;
CREATE TABLE records(
  trace INTEGER NOT NULL,
  span_id TEXT NOT NULL,
  record TEXT NOT NULL
);
INSERT INTO "records" VALUES(1,'702486a43f18bd25','{"trace_id":"ae1971174521e61dfe089410c1348f4a","span_id":"702486a43f18bd25","parent_span_id":"6b23f6b561943aea","name":"chat demo","kind":1,"start_time_unix_nano":1795730767218208407,"end_time_unix_nano":1795730769716391155,"attributes":{"gen_ai.operation.name":"chat","gen_ai.provider.name":"demo","gen_ai.request.model":"demo","gen_ai.request.stream":true,"gen_ai.conversation.id":"dc78cb87-921c-45af-b8e9-51c35b081506","gen_ai.response.time_to_first_chunk":0.03154819,"gen_ai.response.model":"demo","gen_ai.usage.input_tokens":2,"gen_ai.usage.output_tokens":82},"events":[],"status":{"code":0,"message":""},"resource":{"attributes":{}}}');
INSERT INTO "records" VALUES(1,'6b23f6b561943aea','{"trace_id":"ae1971174521e61dfe089410c1348f4a","span_id":"6b23f6b561943aea","parent_span_id":"","name":"invoke_agent default","kind":1,"start_time_unix_nano":1795730767216040928,"end_time_unix_nano":1795730769721216099,"attributes":{"gen_ai.operation.name":"invoke_agent","gen_ai.agent.name":"default","gen_ai.conversation.id":"dc78cb87-921c-45af-b8e9-51c35b081506","copilot.run.id":"713b70dc-a389-4ea7-a6a7-9e36b67d6755","copilot.run.protocol":"agui","copilot.request.type":"Chat","copilot.run.turns":1,"gen_ai.usage.input_tokens":2,"gen_ai.usage.output_tokens":82,"gen_ai.request.model":"demo","copilot.run.outcome":"finished"},"events":[],"status":{"code":0,"message":""},"resource":{"attributes":{}}}');
INSERT INTO "records" VALUES(2,'5c1b97ff5365649d','{"trace_id":"55f11cff614eb22256b783d414df18db","span_id":"5c1b97ff5365649d","parent_span_id":"934740c3c4e6a802","name":"embeddings hashing:512","kind":1,"start_time_unix_nano":1795730772138717672,"end_time_unix_nano":1795730772139178122,"attributes":{"gen_ai.operation.name":"embeddings","gen_ai.provider.name":"hashing","gen_ai.request.model":"hashing:512","gen_ai.embeddings.dimension.count":512},"events":[],"status":{"code":0,"message":""},"resource":{"attributes":{}}}');
INSERT INTO "records" VALUES(2,'5682df14b50095e5','{"trace_id":"55f11cff614eb22256b783d414df18db","span_id":"5682df14b50095e5","parent_span_id":"934740c3c4e6a802","name":"embeddings hashing:512","kind":1,"start_time_unix_nano":1795730772139269259,"end_time_unix_nano":1795730772139358052,"attributes":{"gen_ai.operation.name":"embeddings","gen_ai.provider.name":"hashing","gen_ai.request.model":"hashing:512","gen_ai.embeddings.dimension.count":512},"events":[],"status":{"code":0,"message":""},"resource":{"attributes":{}}}');
CREATE TABLE schema_version(version INTEGER NOT NULL);
INSERT INTO "schema_version" VALUES(3);
CREATE TABLE traces(
  id INTEGER PRIMARY KEY,
  trace_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  start_time INTEGER NOT NULL,
  end_time INTEGER NOT NULL,
  thread_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  spans INTEGER NOT NULL,
  errors INTEGER NOT NULL,
  model_calls INTEGER NOT NULL,
  tool_calls INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  dollars REAL NOT NULL,
  unpriced INTEGER NOT NULL,
  models TEXT NOT NULL,
  error_type TEXT NOT NULL,
  outcome TEXT NOT NULL,
  has_root INTEGER NOT NULL,
  rating TEXT NOT NULL DEFAULT ''
);
INSERT INTO "traces" VALUES(1,'ae1971174521e61dfe089410c1348f4a','invoke_agent default',1795730767216040928,1795730769721216099,'dc78cb87-921c-45af-b8e9-51c35b081506','713b70dc-a389-4ea7-a6a7-9e36b67d6755','default',2,0,1,0,2,82,0.0,1,'["demo"]','','finished',1,'');
INSERT INTO "traces" VALUES(2,'55f11cff614eb22256b783d414df18db','embeddings hashing:512',1795730772138717672,1795730772139358052,'','','',2,0,0,0,0,0,0.0,0,'','','',0,'');
CREATE UNIQUE INDEX records_by_id ON records(trace, span_id);
CREATE VIEW spans AS
  SELECT json_extract(record, '$.trace_id') AS trace_id, span_id,
    json_extract(record, '$.parent_span_id') AS parent_span_id,
    json_extract(record, '$.name') AS name,
    json_extract(record, '$.kind') AS kind,
    json_extract(record, '$.start_time_unix_nano') AS start_time,
    json_extract(record, '$.end_time_unix_nano') AS end_time,
    json_extract(record, '$.status.code') AS status,
    json_extract(record, '$.attributes."gen_ai.operation.name"') AS operation,
    json_extract(record, '$.attributes."gen_ai.provider.name"') AS provider,
    json_extract(record, '$.attributes."gen_ai.request.model"') AS model,
    json_extract(record, '$.attributes."gen_ai.response.model"') AS response_model,
    json_extract(record, '$.attributes."gen_ai.agent.name"') AS agent,
    json_extract(record, '$.attributes."gen_ai.tool.name"') AS tool,
    json_extract(record, '$.attributes."gen_ai.conversation.id"') AS conversation_id,
    json_extract(record, '$.attributes."copilot.run.id"') AS run_id,
    json_extract(record, '$.attributes."error.type"') AS error_type,
    json_extract(record, '$.attributes."gen_ai.usage.input_tokens"') AS input_tokens,
    json_extract(record, '$.attributes."gen_ai.usage.output_tokens"') AS output_tokens,
    json_extract(record, '$.attributes."gen_ai.usage.cache_read.input_tokens"') AS cache_read_tokens,
    json_extract(record, '$.attributes."gen_ai.usage.cache_write.input_tokens"') AS cache_write_tokens,
    json_extract(record, '$.attributes."gen_ai.usage.reasoning.output_tokens"') AS reasoning_tokens,
    json_extract(record, '$.attributes."copilot.cost.usd"') AS dollars,
    json_extract(record, '$.attributes."copilot.run.outcome"') AS outcome,
    record
  FROM records;
CREATE INDEX traces_by_start ON traces(start_time, trace_id);
CREATE INDEX traces_by_thread ON traces(thread_id, start_time);
CREATE INDEX traces_with_errors ON traces(start_time, trace_id) WHERE errors > 0;
CREATE INDEX traces_by_rating ON traces(rating, start_time, trace_id) WHERE rating <> '';
CREATE INDEX labels_by_trace ON labels(trace);
CREATE VIEW sessions AS
  SELECT thread_id AS session_id, count(*) AS runs, min(start_time) AS start_time,
         max(end_time) AS end_time, sum(model_calls) AS llm_calls, sum(tool_calls) AS tool_calls,
         sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
         sum(dollars) AS dollars, sum(errors) AS errors
  FROM traces GROUP BY thread_id;
COMMIT;
