-- posthaste.key_tokens: the number of tokens in a bucket now.
-- Arguments: the number of tokens and their time (null: the bucket is full), the rate per
-- second, the capacity, the time.
create or replace function posthaste.key_tokens(p_tokens float8, p_at timestamptz, p_rate float8, p_burst float8, t timestamptz)
returns float8 language sql immutable set search_path = pg_catalog, pg_temp as
$$ select least(p_burst, coalesce(p_tokens + greatest(extract(epoch from t - p_at)::float8, 0) * p_rate, p_burst)) $$;
