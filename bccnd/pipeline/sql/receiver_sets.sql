-- Table receiver_sets, of a share: which receivers the ids in messages and delivery stand for.
SELECT set_id, hosts FROM sets ORDER BY set_id
