-- One row for each number of a source and era: when it came first, and which hosts received it. The number that is
-- carried from the days before is among them, received by none (`copies` 0): its times are behind all others, so that
-- they do not count.
CREATE TABLE numbers AS
WITH carried_ AS (
  SELECT s.id AS src, coalesce(t.number, 0) AS era, last_key AS key, last_us AS us
  FROM carried c JOIN sources s USING (src) ASOF LEFT JOIN restarts t ON t.src = s.id AND c.last_us >= t.before - 1000),
rows_ AS (
  SELECT src, era, key, us, moment, chan, len, mask, 1 AS one FROM placed
  UNION ALL SELECT src, era, key, us + 2305843009213693952, us + 2305843009213693952, NULL, NULL, NULL, NULL FROM carried_),
grouped AS (
  SELECT src, era, key, min(us) AS us, min(moment) AS moment, min(chan) AS chan, max(len) AS len, count(one) AS copies,
    bit_or(mask) AS seen
  FROM rows_ GROUP BY src, era, key)
SELECT src, era, key, CASE WHEN copies > 0 THEN us ELSE us - 2305843009213693952 END AS first_us,
  CASE WHEN copies > 0 THEN moment ELSE moment - 2305843009213693952 END AS moment, chan, len, copies, coalesce(seen, no_hosts()) AS seen
FROM grouped;

-- The hosts that received a number only late: dropped as stale, and never accepted.
CREATE TABLE late_numbers AS
SELECT src, era, key, bit_or(mask) FILTER (kind = 6) & ~coalesce(bit_or(mask) FILTER (kind < 5), no_hosts()) AS late
FROM placed SEMI JOIN (SELECT DISTINCT src, era, key FROM placed WHERE kind = 6) s USING (src, era, key) GROUP BY src, era, key;

-- Numbers of an era without a hole of `sanity`.
CREATE TABLE blocks AS
WITH steps_ AS (
  SELECT src, era, key, moment, key::HUGEINT - lag(key) OVER w >= getvariable('sanity') AS begins
  FROM numbers WINDOW w AS (PARTITION BY src, era ORDER BY key)),
numbered AS (SELECT *, sum(coalesce(begins, false)::INTEGER) OVER (PARTITION BY src, era ORDER BY key) AS block FROM steps_)
SELECT src, era, block, min(key) AS low, max(key) AS high, min(moment) AS start_us, max(moment) AS end_us
FROM numbered GROUP BY src, era, block ORDER BY src, era, block;
