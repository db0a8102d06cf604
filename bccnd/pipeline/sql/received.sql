-- The rows of the unit with the session that recorded each, and the time in microseconds by its corrected clock.
CREATE VIEW received AS
SELECT o.*, h.id AS hearer, epoch_us(o.ts) - h.shift AS us
FROM obs o
JOIN hearers h ON o.host = h.host AND o.journal_id = h.journal_id AND o.rec_no BETWEEN h.from_rec AND h.to_rec;

-- Verdicts of datagrams that reached their receiver as messages: up to 3 they were new to it, up to 4 no copies. All
-- others were refused.
CREATE TABLE kinds AS
SELECT * FROM (VALUES ('accepted', 0::UTINYINT), ('restart', 1::UTINYINT), ('not_addressed', 2::UTINYINT),
  ('looped', 3::UTINYINT), ('reordered', 4::UTINYINT), ('duplicate', 5::UTINYINT), ('stale', 6::UTINYINT)) AS k(verdict, kind);
