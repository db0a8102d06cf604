-- One row for each number of a source and era: when it came first, who saw it, who only late. The number that is carried
-- from the days before is among them, seen by nobody (`copies` 0).
CREATE TABLE numbers AS
WITH carried_ AS (
  SELECT s.id AS src, coalesce(t.number, 0) AS era, last_key AS key, last_us AS us
  FROM carried c JOIN sources s USING (src) ASOF LEFT JOIN restarts t ON t.src = s.id AND c.last_us >= t.before - 1000),
rows_ AS (
  SELECT p.src, era, key, us, moment, chan, len, kind, hosts.mask AS mask
  FROM placed p JOIN hearers h ON h.id = p.hearer JOIN hosts ON hosts.id = h.host_id
  UNION ALL SELECT src, era, key, us, us, NULL, NULL, NULL, NULL FROM carried_)
SELECT src, era, key, coalesce(min(us) FILTER (kind IS NOT NULL), min(us)) AS first_us,
  coalesce(min(moment) FILTER (kind IS NOT NULL), min(moment)) AS moment, min(chan) AS chan, max(len) AS len,
  count(kind) AS copies, coalesce(bit_or(mask), nobody()) AS seen,
  coalesce(bit_or(mask) FILTER (kind = 6), nobody()) & ~coalesce(bit_or(mask) FILTER (kind < 5), nobody()) AS late
FROM rows_ GROUP BY src, era, key;

-- Numbers of an era without a hole of `sanity`.
CREATE TABLE blocks AS
WITH steps_ AS (
  SELECT src, era, key, moment, copies, key::HUGEINT - lag(key) OVER w >= getvariable('sanity') AS begins
  FROM numbers WINDOW w AS (PARTITION BY src, era ORDER BY key)),
numbered AS (SELECT *, sum(coalesce(begins, false)::INTEGER) OVER (PARTITION BY src, era ORDER BY key) AS block FROM steps_)
SELECT src, era, block, min(key) AS low, max(key) AS high, min(moment) AS start_us, max(moment) AS end_us
FROM numbered GROUP BY src, era, block ORDER BY src, era, block;
