-- The era of each row: how many restarts of its source precede it. (`restarts`, `placed_steps` from restarts.py, without
-- those vetoed.) Buckets that are not near a restart are in the era of their time as a whole.
CREATE TABLE bucket_eras AS
WITH moments AS (
  SELECT r.src, h.id AS hearer, r.number, r.before + h.ahead AS us, h.ahead
  FROM restarts r JOIN (SELECT DISTINCT src, hearer FROM buckets SEMI JOIN restarts USING (src)) b USING (src) JOIN hearers h ON h.id = b.hearer),
near AS (
  SELECT m.src, m.hearer, (least(m.us, coalesce(s.before + m.ahead, m.us)) - 3000000) // 5000000 AS low, (greatest(m.us, coalesce(s.before + m.ahead, m.us)) + 3000000) // 5000000 AS high
  FROM moments m LEFT JOIN placed_steps s ON s.src = m.src AND s.hearer = m.hearer AND s.number = m.number),
contested AS (SELECT DISTINCT b.src, b.hearer, b.bucket FROM buckets b JOIN near n ON n.src = b.src AND n.hearer = b.hearer AND b.bucket BETWEEN n.low AND n.high)
SELECT b.src, b.hearer, b.bucket, coalesce(m.number, 0) AS era, c.bucket IS NOT NULL AS is_contested
FROM (SELECT src, hearer, bucket, bucket * 5000000 AS us FROM buckets SEMI JOIN restarts USING (src)) b
LEFT JOIN contested c ON c.src = b.src AND c.hearer = b.hearer AND c.bucket = b.bucket
ASOF LEFT JOIN moments m ON m.src = b.src AND m.hearer = b.hearer AND b.us >= m.us;

-- Rows near a restart: by the common clock; at a receiver that saw numbers go back, by the order of its records; and late
-- rows by which numbers they are nearer to.
CREATE TABLE contested_rows AS
WITH rows_ AS (
  SELECT r.*, r.us - h.ahead AS moment FROM heard r JOIN hearers h ON h.id = r.hearer
  SEMI JOIN (SELECT src, hearer, bucket FROM bucket_eras WHERE is_contested) c ON c.src = r.src AND c.hearer = r.hearer AND c.bucket = r.us // 5000000),
timed AS (
  SELECT r.*, coalesce(t.number, 0) AS by_time FROM rows_ r ASOF LEFT JOIN restarts t ON t.src = r.src AND r.moment >= t.before - 1000),
bounded AS (
  SELECT t.*, coalesce(low.number, 0) AS least, coalesce(high.number - 1, 1 << 30) AS most
  FROM timed t
  ASOF LEFT JOIN placed_steps low ON low.src = t.src AND low.hearer = t.hearer AND t.rec >= low.rec
  ASOF LEFT JOIN placed_steps high ON high.src = t.src AND high.hearer = t.hearer AND t.rec < high.rec),
ordered_ AS (SELECT *, least(greatest(by_time, least), most) AS era FROM bounded)
SELECT o.src, o.hearer, o.key, o.us, o.moment, o.chan, o.len, o.kind,
  (CASE
    WHEN o.moment - near.before < 2000000 AND near.old_key::HUGEINT - near.first_key >= 16
      AND (o.kind >= 4 OR o.least < o.era) AND 2 * o.key::HUGEINT > near.old_key::HUGEINT + near.first_key THEN o.era - 1
    WHEN next.before - o.moment < 2000000 AND next.old_key::HUGEINT - next.first_key >= 16
      AND (o.kind >= 4 OR o.most > o.era) AND 2 * o.key::HUGEINT < next.old_key::HUGEINT + next.first_key THEN o.era + 1
    ELSE o.era END)::INTEGER AS era
FROM ordered_ o
LEFT JOIN restarts near ON near.src = o.src AND near.number = o.era
LEFT JOIN restarts next ON next.src = o.src AND next.number = o.era + 1;

CREATE VIEW placed AS
SELECT r.src, 0 AS era, r.key, r.us, r.us - h.ahead AS moment, r.chan, r.len, r.kind, h.host_id, h.mask
FROM heard r ANTI JOIN restarts USING (src) JOIN hearers h ON h.id = r.hearer
UNION ALL
SELECT r.src, b.era, r.key, r.us, r.us - h.ahead, r.chan, r.len, r.kind, h.host_id, h.mask
FROM heard r JOIN hearers h ON h.id = r.hearer
JOIN bucket_eras b ON b.src = r.src AND b.hearer = r.hearer AND b.bucket = r.us // 5000000 AND NOT b.is_contested
UNION ALL
SELECT src, era, key, us, moment, chan, len, kind, h.host_id, h.mask FROM contested_rows JOIN hearers h ON h.id = hearer;
