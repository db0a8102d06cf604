-- What was refused, of a share: minute by minute and by what it claims.
CREATE TABLE refused AS
WITH rows_ AS (
  SELECT o.host, verdict, peer_ip, src AS claimed_src, algo, epoch_us(ts) - shift AS us
  FROM obs o JOIN hearers h ON o.host = h.host AND o.journal_id = h.journal_id AND o.rec_no BETWEEN h.from_rec AND h.to_rec
  WHERE verdict NOT IN ('accepted', 'reordered', 'restart', 'duplicate', 'stale', 'looped', 'not_addressed', 'journal_gap'))
SELECT host, verdict, peer_ip, claimed_src, algo, us - us % 60000000 AS minute, count(*) AS n, min(us) AS first_us,
  max(us) AS last_us
FROM rows_ WHERE us >= getvariable('day_from') AND us < getvariable('day_to') GROUP BY ALL;
