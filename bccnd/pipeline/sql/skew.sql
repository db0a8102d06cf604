-- How far the clock of each session, and of each host, is ahead of its reference: percentiles over the messages that both
-- received. A number that came again much later may be of another epoch, and says nothing.
WITH of_sessions AS (
  SELECT message, s.host, s.journal_id, s.start_us, min(us) AS us
  FROM samples m JOIN sessions s ON m.host = s.host AND m.journal_id = s.journal_id AND m.rec BETWEEN s.from_rec AND s.to_rec
  GROUP BY ALL HAVING max(us) - min(us) <= getvariable('horizon')),
of_hosts AS (
  SELECT message, host, '' AS journal_id, 0 AS start_us, min(us) AS us FROM samples GROUP BY ALL
  HAVING max(us) - min(us) <= getvariable('horizon')),
differences AS (
  SELECT s.host, s.journal_id, s.start_us, r.ref_host, s.us - o.us AS ahead
  FROM (FROM of_sessions UNION ALL FROM of_hosts) s JOIN refs r ON r.host = s.host
  JOIN of_hosts o ON o.host = r.ref_host AND o.message = s.message)
SELECT getvariable('day_number') AS day_number, host, journal_id, start_us, ref_host, floor(quantile_cont(ahead, 0.05) + 0.5)::BIGINT AS p05_us,
  floor(quantile_cont(ahead, 0.5) + 0.5)::BIGINT AS p50_us, floor(quantile_cont(ahead, 0.95) + 0.5)::BIGINT AS p95_us, count(*) AS n
FROM differences WHERE host <> ref_host GROUP BY ALL ORDER BY host, journal_id, start_us
