-- Ten questions to the tables of the pipeline (docs/pipeline.md), for DuckDB and for Spark. Each ends with a semicolon.

--- Which host loses messages from which sender?
SELECT host, src, sum(lost_here) AS lost_here, sum(lost_everywhere) AS lost_everywhere,
       100e0 * sum(lost_here + lost_everywhere) / nullif(sum(expected - not_listening), 0) AS percent
FROM link_loss
GROUP BY host, src
HAVING sum(lost_here + lost_everywhere) > 0
ORDER BY percent DESC, host, src
LIMIT 20;

--- Which links are bad now?
-- the last ten minutes in the tables
SELECT host, src, sum(lost_here) AS lost, sum(expected - not_listening) AS due
FROM link_loss
WHERE win > (SELECT max(win) FROM link_loss) - INTERVAL 10 MINUTES
GROUP BY host, src
HAVING sum(lost_here) > 0
ORDER BY lost DESC, host, src
LIMIT 20;

--- Was it the sender, the receiver or the segment?
-- in percent. at_all_receivers is high: the sender, or the cable and switch port at its end. on_this_link and
-- from_other_sources are similar: the receiver. Only on_this_link is high: the path between the two. The second statement
-- has the sets of receivers that saw the same messages: if a part of the segment fails, several miss the same ones
WITH links AS (
    SELECT host, src, sum(lost_here) AS lost, sum(lost_everywhere) AS everywhere, sum(expected - not_listening) AS due
    FROM link_loss
    GROUP BY host, src
), receivers AS (
    SELECT host, sum(lost) AS lost, sum(due) AS due FROM links GROUP BY host
)
SELECT links.host, links.src,
       100e0 * links.lost / nullif(links.due, 0) AS on_this_link,
       100e0 * (receivers.lost - links.lost) / nullif(receivers.due - links.due, 0) AS from_other_sources,
       100e0 * links.everywhere / nullif(links.due, 0) AS at_all_receivers
FROM links JOIN receivers ON receivers.host = links.host
WHERE links.lost + links.everywhere > 0
ORDER BY on_this_link DESC, links.host, links.src
LIMIT 20;

SELECT receiver_sets.hosts, sum(delivery.n) AS messages
FROM delivery JOIN receiver_sets ON receiver_sets.day = delivery.day AND receiver_sets.set_id = delivery.set_id
GROUP BY receiver_sets.hosts
ORDER BY messages DESC, receiver_sets.hosts
LIMIT 20;

--- Which channels lose messages?
SELECT chan, sum(lost_here) AS lost_here, sum(lost_everywhere) AS lost_everywhere,
       100e0 * sum(lost_here + lost_everywhere) / nullif(sum(expected), 0) AS percent
FROM channel_loss
GROUP BY chan
ORDER BY percent DESC, chan
LIMIT 20;

--- Which messages of a source did a host miss?
-- those that no receiver saw are only in missed, with host null; only their numbers are known (lo_key to hi_key)
SELECT messages.first_ts, messages.chan, messages.epoch, messages.seq_key
FROM messages JOIN missed
  ON missed.day = messages.day AND missed.src = messages.src AND missed.epoch = messages.epoch
 AND messages.seq_key BETWEEN missed.lo_key AND missed.hi_key
WHERE missed.src = 'relay01/meter' AND missed.host = 'relay02'
ORDER BY messages.epoch, messages.seq_key
LIMIT 100;

--- Which programs restarted, and when?
-- one that restarts with another pid is another source of the same program
SELECT program, src, first_ts, cause
FROM (SELECT *, row_number() OVER (PARTITION BY program ORDER BY first_ts, src) AS nth FROM epochs) AS runs
WHERE nth > 1
ORDER BY first_ts, src
LIMIT 100;

--- Which sources were silent?
-- for all receivers together
SELECT src, from_ts, to_ts, kind
FROM liveness
WHERE host IS NULL
ORDER BY from_ts, src
LIMIT 100;

--- Which sender sent refused datagrams?
SELECT peer_ip, claimed_src, verdict, sum(n) AS datagrams, count(DISTINCT host) AS receivers,
       min(first_ts) AS first_ts, max(last_ts) AS last_ts
FROM integrity
GROUP BY peer_ip, claimed_src, verdict
ORDER BY datagrams DESC, peer_ip, claimed_src, verdict
LIMIT 20;

--- How much traffic has each channel?
SELECT chan, sum(msgs) AS messages, sum(bytes) AS bytes, count(DISTINCT src) AS sources
FROM channel_traffic
GROUP BY chan
ORDER BY bytes DESC, chan
LIMIT 20;

--- How far apart are the clocks?
SELECT day, host, ref_host, p50_us AS ahead_us, p95_us - p05_us AS spread_us
FROM skew
ORDER BY abs(p50_us) DESC, day, host
LIMIT 20;
