-- What is kept of silences of a day (schema.HEARD). A source that sends heartbeats may be silent for 3.5 times the median
-- distance of these, at least 5 s; another one for 20 times its mean distance, at least a minute, if it sent ten
-- messages. The receiver with most of its messages gives the rhythm.
WITH of_day AS (
  SELECT b.src, h.host_id, bucket, min(first_us) AS first_us, max(last_us) AS last_us, sum(n) AS n, sum(once) AS once
  FROM buckets b JOIN hearers h ON h.id = b.hearer
  WHERE bucket * 5000000 >= getvariable('day_from') AND bucket * 5000000 < getvariable('day_to') GROUP BY ALL),
best AS (
  SELECT src, arg_max(host_id, (once, n, host_id)) AS host_id, max(once) AS once, max(n) AS n
  FROM (SELECT src, host_id, sum(once) AS once, sum(n) AS n FROM of_day GROUP BY ALL) GROUP BY src),
beats AS (
  SELECT r.src, r.key, min(r.us) AS us
  FROM heard r JOIN hearers h ON h.id = r.hearer JOIN best USING (src, host_id) JOIN sources s ON s.id = r.src
  JOIN channels c ON c.id = r.chan
  WHERE starts_with(c.chan, 'heartbeat/') AND c.chan = 'heartbeat/' || s.src AND r.kind <= 4
    AND r.us >= getvariable('day_from') AND r.us < getvariable('day_to') GROUP BY r.src, r.key),
distances AS (SELECT src, (us - lag(us) OVER (PARTITION BY src ORDER BY us)) // 1000 AS ms FROM beats),
rhythms AS (SELECT src, greatest(floor(median(ms) * 1000 * 3.5)::BIGINT, 5000000) AS patience FROM distances WHERE ms IS NOT NULL GROUP BY src HAVING count(*) >= 2),
spans AS (SELECT src, min(first_us) AS first_us, max(last_us) AS last_us FROM of_day GROUP BY src),
patience AS (
  SELECT b.src, CASE WHEN r.patience IS NOT NULL THEN r.patience
      WHEN coalesce(nullif(b.once, 0), b.n) >= 10 THEN greatest(60000000, floor((s.last_us - s.first_us) / (coalesce(nullif(b.once, 0), b.n) - 1) * 20)::BIGINT) END AS patience_us,
    CASE WHEN r.patience IS NOT NULL THEN 'heartbeat' ELSE 'any' END AS basis
  FROM best b JOIN spans s USING (src) LEFT JOIN rhythms r USING (src)),
both_ AS (
  SELECT src, host_id, bucket, first_us, last_us FROM of_day
  UNION ALL SELECT src, -1, bucket, min(first_us), max(last_us) FROM of_day GROUP BY src, bucket),
-- Where no bucket is empty, only a short patience can be exceeded.
broken AS (
  SELECT src, host_id FROM both_ JOIN patience USING (src) WHERE patience_us IS NOT NULL
  GROUP BY src, host_id HAVING count(*) <= max(bucket) - min(bucket) OR any_value(patience_us) < 10000000),
gaps AS (
  SELECT src, host_id, lag(last_us) OVER (PARTITION BY src, host_id ORDER BY bucket) AS from_us, first_us AS to_us
  FROM both_ SEMI JOIN broken USING (src, host_id))
SELECT kind, host, s.src, from_us, to_us, patience_us, basis
FROM (
  SELECT 'heard' AS kind, src, host_id, min(first_us) AS from_us, max(last_us) AS to_us FROM both_ GROUP BY src, host_id
  UNION ALL SELECT 'gap', g.src, host_id, from_us, to_us FROM gaps g JOIN patience p ON p.src = g.src WHERE to_us - from_us > patience_us) rows_
JOIN sources s ON s.id = rows_.src JOIN patience p ON p.src = rows_.src LEFT JOIN hosts ON hosts.id = host_id
ORDER BY src, host, kind, from_us
