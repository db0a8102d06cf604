-- Table channel_traffic: which channel carries how much. A message counts once, however often it was received; those of
-- senders without a name are told apart by what is in them. Percentiles are lengths that occurred.
WITH lengths AS (
  SELECT minute, chan, src, len FROM today
  UNION ALL SELECT minute, chan, src, len FROM (
    SELECT DISTINCT us - us % 60000000 AS minute, c.id AS chan, 0 AS src, len, peer_ip, peer_port, seq_key
    FROM nameless LEFT JOIN channels c USING (chan)))
SELECT make_timestamptz(minute) AS win, c.chan, coalesce(s.src, '?') AS src, count(*) AS msgs, sum(len) AS bytes,
  quantile_disc(len, 0.5) AS p50_len, quantile_disc(len, 0.99) AS p99_len, c.chan LIKE '!_%' AS directed
FROM lengths l LEFT JOIN channels c ON c.id = l.chan LEFT JOIN sources s ON s.id = l.src
GROUP BY minute, c.chan, s.src ORDER BY win, chan, src
