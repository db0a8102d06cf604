-- Table integrity, of a share: which senders sent datagrams that were refused. Addresses and names are those that the
-- datagrams claim: they fill at most `cap` rows a minute at a receiver with one verdict, and `*` stands for the rest.
WITH counted AS (
  SELECT minute, host, verdict, peer_ip, claimed_src, algo, sum(n) AS n, min(first_us) AS first_us, max(last_us) AS last_us
  FROM refused GROUP BY ALL),
ranked AS (
  SELECT *, row_number() OVER (PARTITION BY minute, host, verdict ORDER BY claimed_src IS NOT DISTINCT FROM '*', n DESC, peer_ip, claimed_src, algo) > getvariable('cap') AS beyond
  FROM counted)
SELECT make_timestamptz(minute) AS win, host, CASE WHEN NOT beyond THEN peer_ip END AS peer_ip,
  CASE WHEN beyond THEN '*' ELSE claimed_src END AS claimed_src, CASE WHEN NOT beyond THEN algo END AS algo, verdict,
  sum(n) AS n, make_timestamptz(min(first_us)) AS first_ts, make_timestamptz(max(last_us)) AS last_ts
FROM ranked GROUP BY ALL ORDER BY win, host, verdict, peer_ip, claimed_src, algo
