-- A stable part of the messages, as sessions received them: what clocks are compared by.
SELECT hash(src, seq_key) AS message, host, journal_id, rec_no AS rec, epoch_us(ts) AS us
FROM obs
WHERE verdict IN ('accepted', 'reordered', 'restart', 'not_addressed', 'looped') AND src <> '?' AND seq_key IS NOT NULL
  AND hash(seq_key) % getvariable('parts')::UBIGINT = 0
ORDER BY ALL
