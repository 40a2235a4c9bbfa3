# Calls with each value that the table in docs/guides/sql-from-your-language.md names.
require "active_record"
require "json"
require "pg"

URL = ENV.fetch("DATABASE_URL")
LATER = Time.utc(2999, 1, 1)
PAYLOAD = { a: 1 }.to_json
OPTIONS = { delay: "1 hour", key: "k" }.to_json

def by_pg
  db = PG.connect(URL)
  id = db.exec_params("select posthaste.send('orders', $1, $2)", [PAYLOAD, OPTIONS]).getvalue(0, 0)
  [5, "5", PG::TextEncoder::Array.new.encode([5, 6])].each { |ids| db.exec_params("select posthaste.ack($1)", [ids]) }
  db.exec_params("select posthaste.reschedule($1, $2)", [id, LATER])
  db.exec_params("select posthaste.receive($1, $2, $3)", ["orders", 10, "1 minute"])
  db.close
end

def by_activerecord
  ActiveRecord::Base.establish_connection(URL)
  query = ->(statement, *values) { ActiveRecord::Base.connection.exec_query(statement, "Posthaste", values) }
  id = query.call("select posthaste.send('orders', $1, $2)", PAYLOAD, OPTIONS).rows[0][0]
  [5, "5", PG::TextEncoder::Array.new.encode([5, 6])].each { |ids| query.call("select * from posthaste.ack($1)", ids) }
  query.call("select * from posthaste.reschedule($1, $2)", id, LATER)
  query.call("select * from posthaste.receive($1, $2, $3)", "orders", 10, "1 minute")
end

by_pg
by_activerecord
puts "all calls work"
