-- What is kept of epochs at the end of a day (schema.EPOCHS): those heard on it or told of by a report, with what they
-- were before, and the last one of each source that was heard within the carrying time.
WITH of_day AS (
  SELECT src, epoch, min(first_us) AS first_us, max(first_us) AS last_us, min(key) AS first_key, max(key) AS last_key,
    bit_or(seen) AS seen
  FROM today GROUP BY ALL),
with_tails AS (
  SELECT coalesce(d.src, t.src) AS src, coalesce(d.epoch, t.epoch) AS epoch, d.first_us, d.last_us, d.first_key,
    greatest(d.last_key, t.key) AS last_key, d.seen
  FROM of_day d FULL JOIN tails t ON t.src = d.src AND t.epoch = d.epoch),
before AS (SELECT c.*, s.id FROM carried c JOIN sources s USING (src)),
joined AS (
  SELECT d.src AS id, d.epoch, coalesce(b.cause, e.cause) AS cause, b.skipped AS skipped_before, b.epoch IS NOT NULL AS is_known,
    coalesce(b.first_us, d.first_us) AS first_us, coalesce(d.last_us, b.last_us) AS last_us,
    least(b.first_key, d.first_key) AS first_key, greatest(b.last_key, d.last_key) AS last_key, e.pace, e.pace_us,
    list_sort(list_distinct(list_concat(coalesce(b.hosts, []), coalesce((SELECT list(host) FROM hosts WHERE contains(d.seen, mask)), [])))) AS hosts
  FROM with_tails d
  JOIN (SELECT src, epoch, any_value(cause) AS cause, max(pace) AS pace, arg_max(pace_us, pace) AS pace_us FROM epochs_found GROUP BY ALL) e
    ON e.src = d.src AND e.epoch = d.epoch
  LEFT JOIN before b ON b.id = d.src AND b.epoch = d.epoch),
all_ AS (
  SELECT *, true AS active FROM joined
  UNION ALL SELECT id, epoch, cause, skipped, true, first_us, last_us, first_key, last_key, pace, pace_us, hosts, false
  FROM before b WHERE last_us >= getvariable('carried_from')
    AND NOT EXISTS (SELECT 1 FROM joined j WHERE j.id = b.id AND j.epoch = b.epoch)),
skips AS (
  SELECT *, CASE WHEN is_known THEN skipped_before
      WHEN cause = 'jump' AND lag(last_key) OVER w < first_key THEN least(first_key::HUGEINT - lag(last_key) OVER w - 1, 9223372036854775807) END AS skipped,
    epoch = max(epoch) OVER (PARTITION BY id) AS latest
  FROM all_ WINDOW w AS (PARTITION BY id ORDER BY epoch))
SELECT s.src, epoch, cause, skipped, first_us, last_us, first_key, last_key, pace, pace_us, hosts, active, latest
FROM skips JOIN sources s USING (id) WHERE active OR latest ORDER BY src, epoch
