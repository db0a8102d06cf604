-- Table liveness: which sources fell silent for longer than their rhythm explains, at which receiver or at all (host
-- null), and why. (`kept`: schema.HEARD of days in a row; `recorded`, `ends`: when hosts recorded, and where their data
-- end.) A silence in which the receiver was not recording for longer than explained is `host_down`: the source may have
-- sent. For all receivers together that means that all sources of the machine, two at least, fell silent together.
WITH followed AS (
  SELECT k.*, lead(from_us) OVER (PARTITION BY host, src ORDER BY day, from_us) AS next_us FROM kept k WHERE kind = 'heard'),
ends_ AS (FROM ends UNION ALL SELECT NULL, max(end_us) FROM ends),
candidates AS (
  SELECT host, src, from_us, to_us AS until_us, patience_us, basis, true AS ended FROM kept WHERE kind = 'gap'
  UNION ALL
  SELECT f.host, src, to_us, CASE WHEN next_us <= to_us + getvariable('carried') THEN next_us ELSE least(e.end_us, to_us + getvariable('carried')) END, patience_us, basis,
    coalesce(next_us <= to_us + getvariable('carried'), false)
  FROM followed f LEFT JOIN ends_ e ON e.host IS NOT DISTINCT FROM f.host),
silences AS (
  SELECT row_number() OVER (ORDER BY src, host, from_us) AS id, *, split_part(src, '/', 1) AS machine
  FROM candidates WHERE until_us - from_us > patience_us),
watchers AS (
  SELECT s.id, k.host, s.from_us, s.until_us, s.patience_us
  FROM silences s JOIN (SELECT DISTINCT src, host FROM kept WHERE host IS NOT NULL) k ON k.src = s.src AND (s.host IS NULL OR s.host = k.host)),
watched AS (
  SELECT DISTINCT id FROM (
    SELECT w.id, w.host, any_value(patience_us) AS patience_us, sum(least(r.end_us, until_us) - greatest(r.start_us, from_us)) AS us
    FROM watchers w JOIN recorded r ON r.host = w.host AND r.start_us < until_us AND r.end_us > from_us GROUP BY w.id, w.host)
  WHERE us > patience_us),
everywhere AS (SELECT s.* FROM silences s JOIN watched USING (id) WHERE s.host IS NULL),
alive AS (
  SELECT src, split_part(src, '/', 1) AS machine, min(from_us) AS born_us, max(patience_us) AS patience_us
  FROM kept WHERE host IS NULL AND kind = 'heard' AND patience_us IS NOT NULL GROUP BY src),
others AS (
  SELECT s.id, s.from_us, s.patience_us AS own_us, a.src, a.patience_us
  FROM everywhere s JOIN alive a ON a.machine = s.machine AND a.src <> s.src AND a.born_us <= s.from_us
    AND a.patience_us < s.until_us - s.from_us),
answers AS (
  SELECT o.id, o.src, coalesce(bool_or(abs(c.from_us - o.from_us) <= greatest(o.own_us, c.patience_us)), false) AS fell,
    coalesce(bool_or(c.from_us <= o.from_us), false) AS dead
  FROM others o LEFT JOIN everywhere c ON c.src = o.src AND c.until_us > o.from_us AND c.from_us <= o.from_us + greatest(o.own_us, o.patience_us)
  GROUP BY o.id, o.src),
together AS (SELECT id FROM answers GROUP BY id HAVING bool_or(fell) AND NOT bool_or(NOT fell AND NOT dead))
SELECT s.host, src, make_timestamptz(from_us) AS from_ts, CASE WHEN ended THEN make_timestamptz(until_us) END AS to_ts,
  CASE WHEN t.id IS NOT NULL OR (s.host IS NOT NULL AND w.id IS NULL) THEN 'host_down' WHEN ended THEN 'gap' ELSE 'open' END AS kind, basis,
  strftime(make_timestamp(from_us), '%Y-%m-%d') AS day
FROM silences s LEFT JOIN watched w USING (id) LEFT JOIN together t USING (id)
WHERE s.host IS NOT NULL OR w.id IS NOT NULL
