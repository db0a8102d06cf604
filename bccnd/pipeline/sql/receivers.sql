-- The sessions of receivers (`hearers`), the segments of which hosts have rows on the day (`reach`), the hosts that
-- recorded nothing, and from when until when which hosts were listening. What is more than a day away is not known to
-- have been deaf. (`listened`, `given_hearers`, `segments_of_hosts` from receivers.py; `hosts` from engine.py.)
CREATE TABLE hearers AS
SELECT (row_number() OVER (ORDER BY host, journal_id, from_rec) - 1)::INTEGER AS id, h.id AS host_id, host, journal_id,
  from_rec, to_rec, shift, ahead, mask
FROM given_hearers JOIN hosts h USING (host);

CREATE TABLE segments AS
SELECT (row_number() OVER (ORDER BY segment))::INTEGER AS id, segment
FROM (SELECT DISTINCT segment FROM segments_of_hosts WHERE segment IS NOT NULL);

CREATE TABLE reach AS
SELECT h.id AS host_id, s.id AS segment FROM segments_of_hosts JOIN hosts h USING (host) JOIN segments s USING (segment);

CREATE TABLE silent_hosts AS SELECT id AS host_id FROM hosts WHERE id NOT IN (SELECT host_id FROM reach)
  AND host IN (SELECT host FROM listened WHERE low < getvariable('day_to') AND high >= getvariable('day_from'));

CREATE TABLE listening AS
WITH clipped AS (
  SELECT mask, greatest(low, getvariable('day_from') - 86400000000) AS low, least(high + 1, getvariable('day_to') + 86400000000) AS high
  FROM listened JOIN hosts USING (host)),
moments AS (
  SELECT getvariable('day_from') - 86400000000 AS since UNION SELECT low FROM clipped WHERE low < high
  UNION SELECT high FROM clipped WHERE low < high)
SELECT since, coalesce(bit_or(mask), no_hosts()) AS hosts, lead(since, 1, 4611686018427387904) OVER (ORDER BY since) AS until
FROM moments LEFT JOIN clipped ON low <= since AND since < high GROUP BY since
UNION ALL
SELECT -4611686018427387904, coalesce(bit_or(mask), no_hosts()), getvariable('day_from') - 86400000000 FROM hosts;
