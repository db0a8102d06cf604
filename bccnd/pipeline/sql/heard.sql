-- The rows of messages of senders with a name: names as numbers, and the `kind` of the verdict.
CREATE TABLE sources AS
SELECT (row_number() OVER (ORDER BY src))::INTEGER AS id, src
FROM (SELECT src FROM obs WHERE src <> '?' AND seq_key IS NOT NULL UNION SELECT src FROM carried UNION SELECT src FROM sent);

CREATE TABLE channels AS
SELECT (row_number() OVER (ORDER BY chan))::INTEGER AS id, chan FROM (SELECT DISTINCT chan FROM obs WHERE chan IS NOT NULL);

CREATE TABLE heard AS
SELECT s.id AS src, hearer, r.seq_key AS key, us, r.rec_no AS rec, c.id AS chan, r.len, k.kind, g.id AS segment
FROM received r JOIN kinds k ON r.verdict = k.verdict
JOIN sources s ON r.src = s.src
LEFT JOIN channels c ON r.chan = c.chan
LEFT JOIN segments g ON coalesce(r.segment, '') = g.segment
WHERE r.seq_key IS NOT NULL AND us >= getvariable('margin_from') AND us < getvariable('margin_to');
