-- Table delivery: which sets of receivers got how many messages.
SELECT s.src, epoch, set_id, count(*) AS n, min(key) AS example_key
FROM today m JOIN sources s ON s.id = m.src JOIN sets ON set_ = seen
GROUP BY s.src, epoch, set_id ORDER BY src, epoch, set_id
