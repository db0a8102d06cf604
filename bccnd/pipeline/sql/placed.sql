-- The era of each row: how many restarts of its source precede it. By the common clock; at a receiver that saw numbers
-- go back, by the order of its records; and near a restart, a late row by which numbers it is nearer to.
-- (`restarts`, `placed_steps` from restarts.py, without those vetoed.)
CREATE TABLE restarted AS
WITH rows_ AS (
  SELECT r.*, r.us - h.ahead AS moment FROM heard r SEMI JOIN restarts USING (src) JOIN hearers h ON h.id = r.hearer),
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
      AND (o.kind >= 4 OR o.least < o.era) AND o.key > (near.old_key::HUGEINT + near.first_key) / 2 THEN o.era - 1
    WHEN next.before - o.moment < 2000000 AND next.old_key::HUGEINT - next.first_key >= 16
      AND (o.kind >= 4 OR o.most > o.era) AND o.key < (next.old_key::HUGEINT + next.first_key) / 2 THEN o.era + 1
    ELSE o.era END)::INTEGER AS era
FROM ordered_ o
LEFT JOIN restarts near ON near.src = o.src AND near.number = o.era
LEFT JOIN restarts next ON next.src = o.src AND next.number = o.era + 1;

CREATE VIEW placed AS
SELECT r.src, 0 AS era, r.key, r.us, r.us - h.ahead AS moment, r.chan, r.len, r.kind, r.hearer
FROM heard r ANTI JOIN restarts USING (src) JOIN hearers h ON h.id = r.hearer
UNION ALL
SELECT src, era, key, us, moment, chan, len, kind, hearer FROM restarted;
