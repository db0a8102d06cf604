-- The messages with their epochs: the numbers before each that no host received, the hosts that were listening, and
-- those that could receive its source: hosts with rows of a segment on which it was heard, and those without any rows;
-- of a source that was not heard on the day those that heard it before.
-- (`epochs_found` from epochs.py; `listening`, `reach`, `silent_hosts` are the receivers of the day.)
CREATE TABLE audience AS
WITH on_segments AS (
  SELECT DISTINCT src, segment FROM heard WHERE us >= getvariable('day_from') AND us < getvariable('day_to'))
SELECT src, bit_or(mask) AS able
FROM (
  SELECT src, host_id FROM on_segments JOIN reach USING (segment)
  UNION SELECT src, host_id FROM (SELECT DISTINCT src FROM on_segments), silent_hosts
  UNION SELECT s.id, h.id FROM (SELECT src, unnest(hosts) AS host FROM carried) JOIN sources s USING (src) JOIN hosts h USING (host)
    ANTI JOIN on_segments o ON o.src = s.id) able_hosts
JOIN hosts ON hosts.id = host_id GROUP BY src;

CREATE TABLE messages AS
WITH placed_ AS (
  SELECT n.*, coalesce(l.late, no_hosts()) AS late, e.epoch FROM numbers n LEFT JOIN late_numbers l USING (src, era, key)
  ASOF JOIN epochs_found e ON n.src = e.src AND n.era = e.era AND n.key >= e.low),
gaps AS (
  SELECT *, greatest(key::HUGEINT - coalesce(lag(key) OVER w, key) - 1, 0) AS missing, lag(moment) OVER w AS before
  FROM placed_ WINDOW w AS (PARTITION BY src, epoch ORDER BY key)),
-- Numbers that may have been sent while no receiver was listening are not known to be lost.
unheard AS (
  SELECT DISTINCT g.src, g.epoch, g.key FROM gaps g JOIN audience a ON a.src = g.src
  JOIN listening l ON l.since < g.moment AND l.until > g.before
  WHERE g.missing > 0 AND NOT contains(l.hosts, able)),
known AS (SELECT g.*, CASE WHEN u.key IS NULL THEN missing ELSE 0 END AS gap FROM gaps g LEFT JOIN unheard u USING (src, epoch, key))
SELECT m.src, epoch, key, first_us, first_us - first_us % 60000000 AS minute, chan, len, copies, seen, late, gap,
  (coalesce(l.hosts, no_hosts()) & coalesce(able, no_hosts())) | seen AS listening, coalesce(able, no_hosts()) | seen AS able
FROM known m LEFT JOIN audience a ON a.src = m.src ASOF LEFT JOIN listening l ON m.moment >= l.since;

CREATE VIEW today AS
SELECT * FROM messages WHERE copies > 0 AND first_us >= getvariable('day_from') AND first_us < getvariable('day_to');

-- What reports tell of behind all that was received on the day (`reported` from epochs.py).
CREATE TABLE tails AS
WITH highest AS (
  SELECT r.src, r.epoch, r.key, any_value(r.us) AS us, any_value(r.moment) AS moment,
    max(m.key) FILTER (m.first_us < getvariable('day_to')) AS heard, max(m.key) FILTER (m.key <= r.key) AS floor
  FROM reported r JOIN messages m ON m.src = r.src AND m.epoch = r.epoch GROUP BY r.src, r.epoch, r.key)
SELECT h.src, epoch, key, us - us % 60000000 AS minute, key::HUGEINT - floor AS lost, floor,
  coalesce(l.hosts, no_hosts()) & coalesce(able, no_hosts()) AS listening
FROM highest h LEFT JOIN audience a ON a.src = h.src ASOF LEFT JOIN listening l ON h.moment >= l.since
WHERE key > heard;

-- Sets of hosts by the numbers that stand for them: the same wherever and whenever a set occurs.
CREATE TABLE sets AS
WITH used AS (SELECT seen AS set_ FROM today UNION SELECT listening FROM today),
named AS (SELECT set_, coalesce(list(host ORDER BY host) FILTER (host IS NOT NULL), []) AS names FROM used LEFT JOIN hosts ON contains(set_, mask) GROUP BY set_)
SELECT set_, names AS hosts, (md5_number_lower(array_to_string(names, chr(10)))::HUGEINT - 9223372036854775808)::BIGINT AS set_id FROM named;
