-- What a receiver heard of a source in each 5 s, the shortest silence that counts: enough for silences, and for where
-- numbers went back. `lo` and `hi` are the numbers that were new to the receiver.
CREATE TABLE buckets AS
SELECT src, hearer, us // 5000000 AS bucket, min(us) AS first_us, max(us) AS last_us, count(*) AS n,
  count(*) FILTER (kind IN (0, 1, 2, 4)) AS once, min(key) FILTER (kind <= 3) AS lo, max(key) FILTER (kind <= 3) AS hi,
  min(us) FILTER (kind <= 3) AS fresh_from, max(us) FILTER (kind <= 3) AS fresh_to, bool_or(kind = 1) AS restarted
FROM heard GROUP BY ALL;
