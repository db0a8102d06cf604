-- Table receiver_sets: the sets of all shares. (`receiver_sets`: their parts.)
SELECT DISTINCT set_id, hosts FROM receiver_sets ORDER BY set_id
