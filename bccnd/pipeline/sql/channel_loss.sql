-- Table channel_loss, of a share: how much of what was sent on each channel each receiver got. A number that no receiver
-- got counts for the channel of the message after it, and for none if only a report tells of it.
WITH grouped AS (SELECT chan, minute, seen, listening, able, count(*) AS n, sum(gap) AS gap FROM today GROUP BY ALL)
SELECT host, c.chan, make_timestamptz(minute) AS win,
  least(sum(CASE WHEN contains(listening, mask) THEN n + gap ELSE 0 END), 9223372036854775807) AS expected,
  sum(CASE WHEN contains(seen, mask) THEN n ELSE 0 END) AS seen,
  sum(CASE WHEN contains(listening & ~seen, mask) THEN n ELSE 0 END) AS lost_here,
  least(sum(CASE WHEN contains(listening, mask) THEN gap ELSE 0 END), 9223372036854775807) AS lost_everywhere
FROM grouped JOIN hosts ON contains(able, mask) LEFT JOIN channels c ON c.id = grouped.chan
GROUP BY host, c.chan, minute ORDER BY chan, win, host
