SELECT tenant, count(*), sum(amount) FROM orders GROUP BY ALL ORDER BY ALL LIMIT 7
FROM orders SELECT note, amount WHERE amount > 2
SELECT DISTINCT note FROM orders ORDER BY note DESC NULLS LAST LIMIT 3 OFFSET 1
WITH a AS (SELECT id, amount FROM orders), b AS (SELECT * FROM a WHERE amount > 1) SELECT count(*) FROM b JOIN a USING (id)
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT sum(n) FROM r
SELECT o.id, n.body FROM orders o LEFT JOIN notes n ON o.id = n.id WHERE n.body IS NOT NULL
SELECT * FROM orders o, LATERAL (SELECT max(body) m FROM notes n WHERE n.id = o.id) x
SELECT (SELECT max(amount) FROM orders i WHERE i.id < o.id) FROM orders o
SELECT * FROM orders WHERE id IN (SELECT id FROM notes) AND EXISTS (SELECT 1 FROM kpi WHERE value > amount)
SELECT id, row_number() OVER w, lag(amount) OVER w FROM orders WINDOW w AS (PARTITION BY tenant ORDER BY id)
SELECT id FROM orders QUALIFY rank() OVER (ORDER BY amount DESC) <= 2
SELECT tenant, string_agg(note, ',' ORDER BY id) FILTER (WHERE amount > 1) FROM orders GROUP BY tenant HAVING count(*) > 1
SELECT id FROM orders UNION ALL BY NAME SELECT id, body FROM notes
SELECT id FROM orders EXCEPT SELECT id FROM notes
PIVOT orders ON tenant USING sum(amount) GROUP BY id
PIVOT orders ON note IN ('n1', 'n2') USING count(*)
SELECT * FROM orders PIVOT (sum(amount) FOR tenant IN ('bob', 'eve'))
UNPIVOT orders ON tenant, note INTO NAME k VALUE v
SELECT * FROM (SUMMARIZE orders)
SELECT * FROM (DESCRIBE notes)
SELECT * FROM orders POSITIONAL JOIN notes
SELECT * FROM orders ASOF JOIN notes ON orders.id >= notes.id
SELECT * FROM orders SEMI JOIN notes USING (id)
SELECT COLUMNS('.*t'), * EXCLUDE (tenant) REPLACE (amount + 1 AS amount) FROM orders
SELECT COLUMNS(c -> c LIKE 'n%') FROM orders
SELECT orders FROM orders
SELECT unnest(o) FROM (SELECT orders AS o FROM orders)
SELECT struct_pack(a := id).a, {'k': note}.k, [id, amount][1], MAP {'a': id}['a'] FROM orders
SELECT list_transform([1, 2], lambda x : x + id), list_filter([1, 2], x -> x > 1), [x * 2 FOR x IN [1, 2] IF x > 1] FROM orders
SELECT CAST(note AS INT) FROM orders
SELECT note::INT + 1 FROM orders WHERE note::INT > 0
SELECT max(note::DATE) FROM orders JOIN kpi ON note::INT = kpi.value
SELECT TRY_CAST(note AS INT), coalesce(note, 'x'), CASE WHEN amount > 1 THEN 'a' ELSE note END FROM orders
SELECT date_trunc('month', DATE '2026-01-05'), extract(year FROM TIMESTAMP '2026-01-05 01:02:03'), INTERVAL 3 DAY
SELECT strftime(DATE '2026-01-05', '%Y-%m'), printf('%05d', id), format('{:>5}', note) FROM orders
SELECT repeat('#', amount::INT), lpad(note, 5, '.'), rpad(note, amount::INT, '.') FROM orders
SELECT unnest(generate_series(1, id)), range(3) FROM orders
SELECT d FROM generate_series(DATE '2026-01-01', DATE '2026-01-09', INTERVAL 1 DAY) t(d)
SELECT regexp_extract(note, '(\d+)', 1), note ~ 'n.', note SIMILAR TO 'n%', note ILIKE '%N%' FROM orders
SELECT quantile_cont(amount, [0.1, 0.5]), median(amount), mode(tenant), arg_max(note, amount), approx_count_distinct(id) FROM orders
SELECT histogram(tenant), first(note), list(note ORDER BY id), any_value(tenant) FROM orders
SELECT min(note), max(note), min(amount), max(id), count(DISTINCT tenant) FROM orders
SELECT grouping(tenant), tenant, sum(amount) FROM orders GROUP BY ROLLUP (tenant)
SELECT sum(amount) FROM orders GROUP BY GROUPING SETS ((tenant), ())
SELECT * FROM VALUES (1, 'a'), (2, 'b') v(i, s) JOIN orders ON i = id
TABLE kpi
VALUES (1), (2)
(SELECT 1) UNION (SELECT 2)
SELECT json_extract('{"a": 1}', '$.a'), '{"a": 1}'::JSON ->> 'a', json_object('a', note) FROM orders
SELECT rowid, * FROM kpi
SELECT main.orders.note FROM main.orders
