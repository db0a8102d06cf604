-- The datagrams that were refused, of a share: minute by minute and by what they claim.
CREATE TABLE refused AS
SELECT host, verdict, peer_ip, src AS claimed_src, algo, us - us % 60000000 AS minute, count(*) AS n, min(us) AS first_us,
  max(us) AS last_us
FROM received ANTI JOIN kinds USING (verdict)
WHERE verdict <> 'journal_gap' AND us >= getvariable('day_from') AND us < getvariable('day_to') GROUP BY ALL;
