-- Where numbers of a source went back at a receiver: `steps`, each between the last number of before and the first one
-- of after. Whether the source restarted there, restarts.py and veto.sql decide.
CREATE TABLE suspects AS
SELECT DISTINCT src FROM (
  SELECT src, hearer FROM buckets WHERE lo IS NOT NULL GROUP BY src, hearer
  HAVING bool_or(restarted) OR sum(hi::HUGEINT - lo + 1) > max(hi)::HUGEINT - min(lo) + 1 OR arg_min(lo, bucket) > min(lo)
    OR arg_max(hi, bucket) < max(hi)) unordered;

CREATE TABLE ordered AS
SELECT *, max(hi) OVER before AS hi_before,
  lag(bucket, 3, bucket) OVER (PARTITION BY src, hearer ORDER BY bucket) AS look_from
FROM buckets SEMI JOIN suspects USING (src) WINDOW before AS (PARTITION BY src, hearer ORDER BY bucket ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING);

-- The rows around such places, in the order of the receiver.
CREATE TABLE near AS
WITH places AS (SELECT src, hearer, look_from, bucket FROM ordered WHERE restarted OR lo <= hi_before)
SELECT DISTINCT r.src, r.hearer, r.rec, r.key, r.us - h.ahead AS us, r.kind
FROM heard r JOIN places p ON r.src = p.src AND r.hearer = p.hearer AND r.us // 5000000 BETWEEN p.look_from AND p.bucket
JOIN hearers h ON h.id = r.hearer;

CREATE TABLE steps AS
WITH fresh AS (
  SELECT *, lag(key) OVER w AS old_key, lag(us) OVER w AS after, lag(rec) OVER w AS old_rec
  FROM near WHERE kind <= 3 WINDOW w AS (PARTITION BY src, hearer ORDER BY rec)),
back AS (
  SELECT * FROM fresh WHERE key <= old_key
    AND (kind <= 1 OR old_key::HUGEINT - key >= getvariable('sanity') OR us - after > getvariable('horizon'))),
-- A receiver takes the first numbers of a source that restarted soon for copies.
swallowed AS (
  SELECT b.src, b.hearer, b.rec, min(n.us) AS us, min(n.rec) AS first_rec, min(n.key) AS key
  FROM back b JOIN near n ON n.src = b.src AND n.hearer = b.hearer AND n.rec > b.old_rec AND n.rec < b.rec
    AND n.kind >= 5 AND n.key < b.key
  GROUP BY ALL),
-- The receiver's sessions one after the other, and what is carried from the days before.
spans AS (
  SELECT src, hearer, any_value(h.host) AS host, min(fresh_from) - any_value(ahead) AS start_us,
    arg_min(lo, bucket) FILTER (lo IS NOT NULL) AS first_key, max(fresh_to) - any_value(ahead) AS end_us,
    arg_max(hi, bucket) FILTER (hi IS NOT NULL) AS last_key, false AS carried
  FROM buckets b JOIN hearers h ON h.id = b.hearer GROUP BY src, hearer HAVING start_us IS NOT NULL
  UNION ALL
  SELECT s.id, -1, NULL, last_us, last_key, last_us, last_key, true FROM carried JOIN sources s USING (src)),
across AS (
  SELECT b.*, a.last_key AS old_key, a.end_us AS after
  FROM spans b ASOF JOIN spans a ON a.src = b.src AND a.host = b.host AND a.end_us < b.start_us
  UNION ALL
  SELECT b.*, a.last_key, a.end_us FROM spans b JOIN spans a ON a.src = b.src AND a.carried AND a.end_us < b.start_us
  WHERE NOT b.carried)
SELECT b.src, b.hearer, coalesce(s.first_rec, b.rec) AS rec, b.after, coalesce(s.us, b.us) AS before, b.old_key,
  coalesce(s.key, b.key) AS first_key, b.kind = 1 AS noticed
FROM back b LEFT JOIN swallowed s USING (src, hearer, rec)
UNION ALL
SELECT src, hearer, -1, after, start_us, old_key, first_key, false FROM across
WHERE first_key <= old_key
  AND (old_key::HUGEINT - first_key >= getvariable('sanity') OR start_us - after > getvariable('horizon'))
ORDER BY ALL;
