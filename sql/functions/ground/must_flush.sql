-- posthaste.must_flush: makes this transaction's commit wait until it is flushed, whatever
-- the settings are and whatever claims follow in it.
create or replace function posthaste.must_flush()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform set_config('posthaste.must_flush', 'yes', true);
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
end $$;
