-- Restarts that cannot be: another receiver heard numbers go on rising across them, nearer to where the old ones would
-- be by then than to the new ones. (`restarts` from restarts.py: src, number, before, old_key, first_key.)
CREATE TABLE paces AS
SELECT src, max(pace) AS pace
FROM (SELECT src, hearer, avg((hi::HUGEINT - lo + 1) / 5e6) AS pace FROM ordered WHERE NOT restarted AND lo > hi_before GROUP BY ALL)
GROUP BY src;

CREATE TABLE vetoed AS
WITH moments AS (
  SELECT r.*, b.hearer, r.before + h.ahead AS moment FROM restarts r
  JOIN (SELECT DISTINCT src, hearer FROM buckets) b USING (src) JOIN hearers h ON h.id = b.hearer
  ANTI JOIN steps s ON s.src = r.src AND s.hearer = b.hearer AND s.after <= r.before AND s.before >= r.before),
behind AS (
  SELECT m.src, m.number, m.before, m.old_key, m.first_key, o.lo, o.fresh_from - m.moment AS later
  FROM moments m ASOF JOIN (SELECT * FROM ordered WHERE lo > hi_before) o
    ON o.src = m.src AND o.hearer = m.hearer AND o.fresh_from >= m.moment)
SELECT DISTINCT src, number FROM behind LEFT JOIN paces USING (src)
WHERE lo > old_key AND 2 * lo::HUGEINT - old_key - first_key > 2 * coalesce(pace, 0) * later;
