-- Table epochs: the runs of all sources. (`kept`: schema.EPOCHS of days in a row, each with what was known before.)
SELECT src, epoch, regexp_replace(src, '^([^/]*/[^/]*)/.*$', '\1') AS program, make_timestamptz(first_us) AS first_ts,
  make_timestamptz(last_us) AS last_ts, first_key, last_key, len(hosts)::INTEGER AS hosts, cause, skipped,
  strftime(make_timestamp(first_us), '%Y-%m-%d') AS day
FROM kept WHERE first_us IS NOT NULL QUALIFY row_number() OVER (PARTITION BY src, epoch ORDER BY kept_day DESC) = 1
