-- Table messages: each message once, by whom it was received (set_id) and by whom it could have been.
SELECT s.src, epoch, key AS seq_key, make_timestamptz(first_us) AS first_ts, a.set_id, b.set_id AS listening_set_id,
  copies, least(gap, 9223372036854775807) AS gap_before, chan.chan
FROM today m JOIN sources s ON s.id = m.src JOIN sets a ON a.set_ = seen JOIN sets b ON b.set_ = listening
LEFT JOIN channels chan ON chan.id = m.chan
ORDER BY src, epoch, seq_key
