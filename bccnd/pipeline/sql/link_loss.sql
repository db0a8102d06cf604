-- Table link_loss: how much of what each source sent each receiver got, minute by minute. A receiver has a row for each
-- source that can reach it. What was sent while it was not recording is no loss, also if no receiver got it.
WITH copies_ AS (
  SELECT d.src, e.epoch, d.host_id, d.us - d.us % 60000000 AS minute, count(*) AS dup
  FROM placed d
  ASOF JOIN epochs_found e ON d.src = e.src AND d.era = e.era AND d.key >= e.low
  WHERE d.kind = 5 AND d.us >= getvariable('day_from') AND d.us < getvariable('day_to') GROUP BY ALL),
-- Most messages reach all hosts that can hear the source: only the others are counted host by host.
whole AS (SELECT src, epoch, minute, able, count(*) AS n, sum(gap) AS gap FROM today GROUP BY ALL),
partly AS (
  SELECT src, epoch, minute, able & ~seen AS without, listening, count(*) AS n, sum(gap) AS gap
  FROM today WHERE seen <> able GROUP BY ALL),
late_ AS (SELECT src, epoch, minute, late, count(*) AS n FROM today WHERE late <> no_hosts() GROUP BY ALL),
parts AS (
  SELECT id AS host_id, src, epoch, minute, n AS any_seen, gap AS lost_everywhere, n AS seen, 0 AS lost_here,
    0 AS not_listening, 0 AS late, 0 AS dup
  FROM whole JOIN hosts ON contains(able, mask)
  UNION ALL SELECT id, src, epoch, minute, 0, 0, -n, n, 0, 0, 0
  FROM partly JOIN hosts ON contains(without & listening, mask)
  UNION ALL SELECT id, src, epoch, minute, 0, -gap, -n, 0, n, 0, 0
  FROM partly JOIN hosts ON contains(without & ~listening, mask)
  UNION ALL SELECT id, src, epoch, minute, 0, 0, 0, 0, 0, n, 0 FROM late_ JOIN hosts ON contains(late, mask)
  UNION ALL SELECT host_id, src, epoch, minute, 0, 0, 0, 0, 0, 0, dup FROM copies_
  UNION ALL SELECT id, src, epoch, minute, 0, lost, 0, 0, 0, 0, 0 FROM tails JOIN hosts ON contains(listening, mask) WHERE lost > 0),
cells AS (
  SELECT host_id, src, epoch, minute, sum(any_seen) AS any_seen, sum(seen) AS seen, sum(lost_here) AS lost_here,
    least(sum(lost_everywhere), 9223372036854775807) AS lost_everywhere, sum(not_listening) AS not_listening,
    sum(dup) AS dup, sum(late) AS late
  FROM parts GROUP BY ALL)
SELECT host, s.src, epoch, make_timestamptz(minute) AS win, least(any_seen + lost_everywhere, 9223372036854775807) AS expected,
  any_seen, seen, lost_here, lost_everywhere, not_listening, dup, late,
  (lost_here + lost_everywhere)::DOUBLE / nullif(any_seen + lost_everywhere - not_listening, 0) AS loss_ratio
FROM cells JOIN hosts ON hosts.id = host_id JOIN sources s ON s.id = cells.src
ORDER BY src, epoch, win, host
