WITH orders AS (SELECT * FROM orders) SELECT * FROM orders
WITH orders AS (SELECT 1 AS id) SELECT * FROM main.orders
WITH a AS (WITH orders AS (SELECT 1 AS x) SELECT * FROM orders) SELECT * FROM a, orders
WITH RECURSIVE orders AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM orders WHERE n < 3) FROM orders
WITH a AS (SELECT * FROM secrets) SELECT 1
WITH a AS (FROM b), b AS (FROM orders) FROM a
SELECT * FROM secrets
SELECT * FROM d1.main.orders
SELECT * FROM d1.orders
SELECT * FROM "d1"."main"."secrets"
SELECT * FROM "ORDERS" AS "Orders"
SELECT * FROM "orders (cte 1)"
SELECT * FROM read_csv('{file}')
SELECT * FROM read_text('{file}')
SELECT * FROM read_duckdb('{database}')
SELECT * FROM '{file}'
SELECT * FROM "{file}"
SELECT * FROM glob('{folder}/*')
SELECT * FROM sniff_csv('{file}')
SELECT * FROM 'http://127.0.0.1:{port}/x.parquet'
SELECT * FROM read_csv('http://127.0.0.1:{port}/x.csv')
SELECT * FROM read_parquet('s3://127.0.0.1:{port}/x')
SELECT * FROM query('SELECT * FROM orders')
SELECT * FROM query_table('orders')
SELECT * FROM query_table(['orders', 'secrets'])
SELECT * FROM histogram(orders, note)
SELECT * FROM summary((SELECT 1))
SELECT * FROM seq_scan('orders')
SELECT * FROM duckdb_tables()
SELECT * FROM duckdb_columns
SELECT * FROM duckdb_settings()
SELECT * FROM information_schema.columns
SELECT * FROM pg_catalog.pg_class
SELECT * FROM sqlite_master
SELECT * FROM pragma_table_info('orders')
SELECT * FROM pragma_storage_info('orders')
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
SELECT json_serialize_plan('SELECT * FROM orders')
SELECT current_setting('memory_limit'), getenv('HOME'), getvariable('x'), version()
SELECT current_query(), current_database(), current_schemas(true), current_user
SELECT stats(note), stats(amount) FROM orders
SELECT error(note) FROM orders
SELECT sleep_ms(10), pg_sleep(0.01), write_log('x')
SELECT nextval('s'), enum_range(NULL::mood), NULL::d1.main.mood
SELECT enum_range(NULL::mood)
SELECT NULL::mood, typeof(NULL::mood)
SELECT 'x'.read_text(), '{file}'.getenv()
SELECT system.main.lower('x'), d1.main.f()
SELECT len(range(100000000)), repeat('x', 2000000000), lpad('x', 2000000000, 'y')
SELECT len(list_transform(range(9999), x -> range(9999)))
SELECT 'x'.repeat(2000000000), printf('%2000000000d', 1), bitstring('1', 2000000000)
WITH d AS (DELETE FROM orders RETURNING *) FROM d
WITH d AS (INSERT INTO orders SELECT * FROM orders RETURNING *) FROM d
WITH d AS (UPDATE orders SET note = 'x' RETURNING *) FROM d
SELECT note INTO x FROM orders
SELECT 1; DROP TABLE orders
SELECT '--' LIMIT 1; DROP TABLE orders
SELECT 1 /* ; */ ; COPY orders TO '{file}'
COPY orders TO '{folder}/out.csv'
COPY (SELECT 1) TO '{folder}/out.csv'
EXPORT DATABASE '{folder}/out'
ATTACH '{database}' AS e
ATTACH 'http://127.0.0.1:{port}/x.db'
DETACH d1
INSTALL httpfs
LOAD httpfs
CREATE TEMP TABLE x AS SELECT 1
CREATE TEMP MACRO f(x) AS x
CREATE SECRET (TYPE S3, KEY_ID 'x', SECRET 'y')
CREATE OR REPLACE VIEW orders AS SELECT 1
DROP TABLE orders
DELETE FROM orders
UPDATE orders SET note = 'x'
INSERT INTO orders VALUES (1)
ALTER TABLE orders ADD COLUMN x INT
SET memory_limit = '9GB'
SET VARIABLE x = 1
RESET memory_limit
PRAGMA database_list
PRAGMA enable_profiling
CALL pragma_version()
CHECKPOINT
VACUUM
USE d1
BEGIN
PREPARE p AS SELECT 1
EXECUTE p
EXPLAIN ANALYZE SELECT * FROM orders
SHOW TABLES
SELECT * FROM (SHOW ALL TABLES)
SELECT * FROM (SHOW orders)
DESCRIBE orders
SUMMARIZE secrets
SELECT * FROM (SUMMARIZE d1.main.orders)
SELECT * FROM orders AT (VERSION => 1)
SELECT * FROM orders TABLESAMPLE reservoir(2 ROWS)
SELECT $1, ?, $name
SELECT * FROM orders WHERE tenant = 'eve' OR 1 = 1
SELECT * FROM orders WHERE CASE WHEN note LIKE 'CANARY%' THEN error(note) ELSE true END
SELECT * FROM orders WHERE note::INT = 1 OR true
SELECT sum(note::INT) FROM orders
SELECT * FROM orders o JOIN orders p ON o.note::INT = p.id
SELECT count(*) FROM orders WHERE 1 / (amount - 987654321) > 0
SELECT * FROM notes WHERE body::DATE > DATE '2026-01-01'
SELECT * FROM notes n JOIN kpi ON n.body::INT = kpi.value
SELECT (SELECT note FROM orders ORDER BY amount DESC LIMIT 1)
FROM orders FOR UPDATE
MERGE INTO orders USING kpi ON true WHEN MATCHED THEN DELETE
SELECT * FROM orders JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes JOIN notes
