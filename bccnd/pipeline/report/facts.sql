-- The facts of a report: a view for each class of facts.py, with its columns in their order behind `rank`. The lower the
-- rank, the sooner a row is listed. Times are microseconds since 1970. Variables: start, stop (not included), and step.

CREATE TABLE IF NOT EXISTS sessions (
    host VARCHAR, start_ts TIMESTAMPTZ, end_ts TIMESTAMPTZ, socket_drops BIGINT, tap_gaps BIGINT, version VARCHAR
);
CREATE TABLE IF NOT EXISTS missing (
    host VARCHAR, journal_id VARCHAR, first_rec BIGINT, last_rec BIGINT, low_us BIGINT, high_us BIGINT
);
CREATE TABLE IF NOT EXISTS damaged (path VARCHAR, why VARCHAR, host VARCHAR);

CREATE MACRO program_of(src) AS regexp_replace(src, '^([^/]*/[^/]*)/.*$', '\1', 's');
CREATE MACRO host_of(src) AS split_part(src, '/', 1);
CREATE MACRO is_inside(moment) AS epoch_us(moment) >= getvariable('start') AND epoch_us(moment) < getvariable('stop');
CREATE MACRO is_of_bus(chan) AS starts_with(chan, 'heartbeat/') OR starts_with(chan, 'bccn/report/');

CREATE VIEW period AS
    SELECT epoch_us(min(win)), epoch_us(max(win))
    FROM (SELECT win FROM link_loss UNION ALL SELECT win FROM channel_traffic UNION ALL SELECT win FROM integrity)
    WHERE is_inside(win);

CREATE VIEW loss AS
    SELECT *, lost_here + lost_everywhere AS lost FROM link_loss WHERE is_inside(win);

CREATE VIEW links AS
    SELECT -sum(lost) * 1000 - sum(expected) AS rank, host, program_of(src) AS program, sum(expected), sum(any_seen),
           sum(seen), sum(lost_here), sum(lost_everywhere), sum(not_listening), sum(dup), sum(late)
    FROM loss
    GROUP BY host, program;

CREATE VIEW all_links AS
    SELECT sum(expected), sum(any_seen), sum(seen), sum(lost_here), sum(lost_everywhere), sum(not_listening), sum(dup),
           sum(late)
    FROM loss;

-- Of receiving hosts (sender is null) and of sending hosts (host is null), without a host's own messages.
CREATE VIEW courses AS
    SELECT host, host_of(src) AS sender, (epoch_us(win) - getvariable('start')) // getvariable('step') AS step,
           sum(expected - not_listening), sum(lost), sum(not_listening)
    FROM loss
    WHERE sender <> host
    GROUP BY GROUPING SETS ((host, step), (sender, step));

-- Runs of all sources, also of those that ended before the period.
CREATE VIEW runs AS
    SELECT program, src, min(epoch_us(first_ts)) AS first, max(epoch_us(last_ts)) AS last FROM epochs GROUP BY program, src;

-- A source is one process (host/program/pid). A program is silent only while none of its sources sends. The other
-- sources count that were received until the silence ended or, if it did not end, after it began.
CREATE VIEW source_silences AS
    WITH silent AS (
        SELECT DISTINCT src, program_of(src) AS program, epoch_us(from_ts) AS since, epoch_us(to_ts) AS until, kind, basis
        FROM liveness
        WHERE host IS NULL AND epoch_us(from_ts) < getvariable('stop')
          AND (to_ts IS NULL OR epoch_us(to_ts) > getvariable('start'))
    )
    SELECT silent.program, since, until, kind, basis, min(first) FILTER (first > since) AS successor
    FROM silent LEFT JOIN runs ON runs.program = silent.program AND runs.src <> silent.src
    GROUP BY silent.src, silent.program, since, until, kind, basis
    HAVING NOT coalesce(bool_or(first <= since AND since < last AND last >= coalesce(until, last)), false);

-- Processes of a program that end together are one silence; of those that end for good, the last counts. A program that
-- is back within two minutes was restarted; one that was away for longer was silent as well.
CREATE VIEW silences AS
    SELECT -max(since) AS rank, program, max(since), coalesce(until, successor) AS until,
           if(kind = 'open' AND successor IS NOT NULL, 'gap', kind) AS kind, basis
    FROM source_silences
    WHERE source_silences.kind <> 'open' OR successor IS NULL
       OR (basis = 'heartbeat' AND successor >= since + 120_000_000)
    GROUP BY program, coalesce(until, successor), if(kind = 'open' AND successor IS NOT NULL, 'gap', kind), basis;

CREATE VIEW unordered AS
    SELECT 0 AS rank, program, count(DISTINCT src), max(epoch_us(first_ts))
    FROM epochs
    WHERE cause = 'unordered' AND is_inside(first_ts)
    GROUP BY program;

-- Numbers that were skipped are not known of sources that number by the clock, in microseconds: a day is the limit.
CREATE VIEW starts AS
    SELECT epoch_us(first_ts) AS rank, program, epoch_us(first_ts), cause,
           if(abs(first_key::HUGEINT + 9223372036854775808 - epoch_us(first_ts)) < 86_400_000_000, 0, coalesce(skipped, 0))
    FROM epochs
    WHERE cause <> 'first' AND is_inside(first_ts) AND src NOT IN (SELECT src FROM epochs WHERE cause = 'unordered')
    UNION
    SELECT successor, program, successor, 'replaced', 0
    FROM source_silences
    WHERE until IS NULL AND successor IS NOT NULL AND (basis = 'heartbeat' OR kind = 'host_down');

CREATE VIEW delivery_sets AS
    SELECT -messages AS rank, hosts, messages
    FROM (SELECT set_id, sum(n) AS messages FROM delivery GROUP BY set_id)
    JOIN (SELECT set_id, any_value(list_sort(hosts)) AS hosts FROM receiver_sets GROUP BY set_id) USING (set_id);

CREATE VIEW traffic AS
    SELECT *, is_of_bus(chan) AS of_bus FROM channel_traffic WHERE is_inside(win);

CREATE VIEW channels AS
    WITH programs AS (
        SELECT chan, program_of(src) AS program, sum(msgs) AS n, sum(bytes) AS octets, max(p99_len) AS longest
        FROM traffic
        WHERE NOT of_bus
        GROUP BY chan, program
    ), peaks AS (
        SELECT chan, max(n) AS peak FROM (SELECT chan, sum(msgs) AS n FROM traffic GROUP BY chan, win) GROUP BY chan
    ), losses AS (
        SELECT chan, sum(seen + lost_here + lost_everywhere) AS due, sum(lost_here + lost_everywhere) AS lost
        FROM channel_loss
        WHERE is_inside(win)
        GROUP BY chan
    )
    SELECT -sum(n) AS rank, chan, sum(n), sum(octets), max(longest), any_value(peak),
           first(program ORDER BY n DESC, program), max(n), coalesce(any_value(due), 0), coalesce(any_value(lost), 0)
    FROM programs JOIN peaks USING (chan) LEFT JOIN losses USING (chan)
    GROUP BY chan;

CREATE VIEW all_traffic AS
    SELECT coalesce(sum(msgs), 0), count(DISTINCT chan) FILTER (of_bus), coalesce(sum(msgs) FILTER (of_bus), 0),
           coalesce(sum(bytes) FILTER (of_bus), 0)
    FROM traffic;

-- A datagram that many hosts refuse counts once: the host that refused most of them counts.
CREATE VIEW refusals AS
    WITH refused AS (
        SELECT *, coalesce(peer_ip, '') AS peer FROM integrity WHERE is_inside(win)
    ), hosts AS (
        SELECT peer, verdict, host, sum(n) AS n, min(first_ts) AS first, max(last_ts) AS last
        FROM refused
        GROUP BY peer, verdict, host
    ), names AS (
        SELECT peer, verdict, claimed_src, sum(n) AS n
        FROM refused
        WHERE claimed_src IS NOT NULL
        GROUP BY peer, verdict, claimed_src
    ), claims AS (
        SELECT peer, verdict, list(claimed_src ORDER BY n DESC, claimed_src)[:3] AS claimed, count(*) AS names
        FROM names
        GROUP BY peer, verdict
    )
    SELECT -max(n) AS rank, peer, verdict, max(n), count(*), coalesce(any_value(claimed), []), coalesce(any_value(names), 0),
           epoch_us(min(first)), epoch_us(max(last))
    FROM hosts LEFT JOIN claims USING (peer, verdict)
    GROUP BY peer, verdict;

-- Over several days the middle is their weighted mean.
CREATE VIEW clocks AS
    SELECT -abs(sum(p50_us * n)) / sum(n) AS rank, host, ref_host, min(p05_us), round(sum(p50_us * n) / sum(n))::BIGINT,
           max(p95_us), sum(n)
    FROM skew
    WHERE host <> ref_host AND n > 0
    GROUP BY host, ref_host;

CREATE VIEW recordings AS
    SELECT 0 AS rank, host, epoch_us(min(start_ts)), epoch_us(max(end_ts)), coalesce(arg_max(version, end_ts), ''),
           coalesce(sum(socket_drops), 0), coalesce(sum(tap_gaps), 0)
    FROM sessions
    WHERE epoch_us(start_ts) < getvariable('stop') AND epoch_us(end_ts) >= getvariable('start')
    GROUP BY host;

CREATE VIEW missing_records AS
    SELECT first_rec - last_rec AS rank, host, journal_id, first_rec, last_rec, low_us, high_us
    FROM missing
    WHERE coalesce(low_us < getvariable('stop'), true) AND coalesce(high_us >= getvariable('start'), true);

CREATE VIEW unusable_files AS SELECT 0 AS rank, coalesce(host, ''), path, why FROM damaged;
