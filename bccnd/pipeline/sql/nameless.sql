-- The rows of messages of senders without a name.
CREATE TABLE nameless AS
SELECT epoch_us(ts) - shift AS us, chan, len, peer_ip, peer_port, seq_key
FROM obs o JOIN hearers h ON o.host = h.host AND o.journal_id = h.journal_id AND o.rec_no BETWEEN h.from_rec AND h.to_rec
WHERE src = '?'
  AND verdict IN ('accepted', 'reordered', 'restart', 'duplicate', 'stale', 'looped', 'not_addressed')
  AND epoch_us(ts) - shift >= getvariable('day_from') AND epoch_us(ts) - shift < getvariable('day_to');
