-- Table channel_loss: the sums of all shares. (`channel_loss`: their parts.)
SELECT host, chan, win, least(sum(expected::HUGEINT), 9223372036854775807) AS expected, sum(seen) AS seen,
  sum(lost_here) AS lost_here, least(sum(lost_everywhere::HUGEINT), 9223372036854775807) AS lost_everywhere
FROM channel_loss GROUP BY host, chan, win ORDER BY chan, win, host
