-- Table missed: ranges of numbers that a receiver did not get, or none (host null).
WITH singles AS (
  SELECT src, epoch, id AS host_id, key, key::HUGEINT - row_number() OVER (PARTITION BY src, epoch, id ORDER BY key) AS run
  FROM today JOIN hosts ON contains(listening & ~seen, mask)),
ranges AS (
  SELECT src, epoch, host_id, min(key)::HUGEINT AS lo_key, max(key)::HUGEINT AS hi_key FROM singles GROUP BY src, epoch, host_id, run
  UNION ALL SELECT src, epoch, NULL, key - gap, key::HUGEINT - 1 FROM today WHERE gap > 0
  UNION ALL SELECT src, epoch, NULL, floor::HUGEINT + 1, key FROM tails WHERE lost > 0)
SELECT s.src, epoch, lo_key, hi_key, host FROM ranges JOIN sources s ON s.id = ranges.src LEFT JOIN hosts ON hosts.id = host_id
ORDER BY src, epoch, lo_key, host
