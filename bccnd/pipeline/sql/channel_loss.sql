-- Table channel_loss, of a share: how much of what was sent on each channel each receiver got. A number that no receiver
-- got counts for the channel of the message after it, and for none if only a report tells of it.
WITH whole AS (SELECT chan, minute, able, count(*) AS n, sum(gap) AS gap FROM today GROUP BY ALL),
partly AS (
  SELECT chan, minute, able & ~seen AS without, listening, count(*) AS n, sum(gap) AS gap
  FROM today WHERE seen <> able GROUP BY ALL),
parts AS (
  SELECT id, chan, minute, n + gap AS expected, n AS seen, 0 AS lost_here, gap AS lost_everywhere
  FROM whole JOIN hosts ON contains(able, mask)
  UNION ALL SELECT id, chan, minute, 0, -n, n, 0 FROM partly JOIN hosts ON contains(without & listening, mask)
  UNION ALL SELECT id, chan, minute, -(n + gap), -n, 0, -gap FROM partly JOIN hosts ON contains(without & ~listening, mask))
SELECT host, c.chan, make_timestamptz(minute) AS win, least(sum(expected), 9223372036854775807) AS expected,
  sum(seen) AS seen, sum(lost_here) AS lost_here, least(sum(lost_everywhere), 9223372036854775807) AS lost_everywhere
FROM parts JOIN hosts USING (id) LEFT JOIN channels c ON c.id = parts.chan
GROUP BY host, c.chan, minute ORDER BY chan, win, host
