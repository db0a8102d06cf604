-- The rows of datagrams that reached their receiver as messages: names as numbers, times in microseconds by the
-- corrected clock of the host. `kind`: 0 accepted, 1 restart, 2 not_addressed, 3 looped, 4 reordered, 5 duplicate,
-- 6 stale; up to 3 it was new to the receiver, up to 4 no copy.
CREATE TABLE sources AS
SELECT (row_number() OVER (ORDER BY src))::INTEGER AS id, src
FROM (SELECT src FROM obs WHERE src <> '?' AND seq_key IS NOT NULL UNION SELECT src FROM carried UNION SELECT src FROM sent);

CREATE TABLE channels AS
SELECT (row_number() OVER (ORDER BY chan))::INTEGER AS id, chan FROM (SELECT DISTINCT chan FROM obs WHERE chan IS NOT NULL);

CREATE TABLE heard AS
SELECT s.id AS src, h.id AS hearer, o.seq_key AS key, epoch_us(o.ts) - h.shift AS us, o.rec_no AS rec, c.id AS chan,
  o.len, k.kind, g.id AS segment
FROM obs o
JOIN (VALUES ('accepted', 0::UTINYINT), ('restart', 1::UTINYINT), ('not_addressed', 2::UTINYINT),
  ('looped', 3::UTINYINT), ('reordered', 4::UTINYINT), ('duplicate', 5::UTINYINT), ('stale', 6::UTINYINT)) AS k(verdict, kind)
  ON o.verdict = k.verdict
JOIN hearers h ON o.host = h.host AND o.journal_id = h.journal_id AND o.rec_no BETWEEN h.from_rec AND h.to_rec
JOIN sources s ON o.src = s.src
LEFT JOIN channels c ON o.chan = c.chan
LEFT JOIN segments g ON coalesce(o.segment, '') = g.segment
WHERE o.seq_key IS NOT NULL
  AND epoch_us(o.ts) - h.shift >= getvariable('margin_from') AND epoch_us(o.ts) - h.shift < getvariable('margin_to');
