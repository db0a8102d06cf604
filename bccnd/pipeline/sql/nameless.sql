-- The rows of messages of senders without a name.
CREATE TABLE nameless AS
SELECT us, chan, len, peer_ip, peer_port, seq_key FROM received SEMI JOIN kinds USING (verdict)
WHERE src = '?' AND us >= getvariable('day_from') AND us < getvariable('day_to');
