-- The receivers of the day: hosts that were listening on it, and those with rows of it or of its margins.
SELECT host FROM listened WHERE low < getvariable('day_to') AND high >= getvariable('day_from')
UNION SELECT host FROM segments_of_hosts ORDER BY host
