import pg from "pg";

// A client runs each statement as a transaction of its own, unless it begins one.
const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
await db.connect();

async function transaction(work) {
  await db.query("begin");
  try {
    await work();
    await db.query("commit");
  } catch (error) {
    await db.query("rollback");
    throw error;
  }
}

// The order and its message commit together.
await transaction(async () => {
  await db.query("insert into orders (id, item) values ($1, $2)", [7, "lamp"]);
  await db.query("select posthaste.send('orders', $1, $2)", [{ order: 7 }, { reference: "order-7" }]);
});

for (;;) {
  const { rows } = await db.query("select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')");
  if (rows.length === 0) break;
  for (const { delivery_id, payload_json } of rows) {
    try {
      // The shipment and the acknowledgment commit together.
      await transaction(async () => {
        await db.query("insert into shipments (order_id) values ($1)", [payload_json.order]);
        await db.query("select posthaste.ack($1, $2)", [delivery_id, { strict: true }]);
      });
      console.log("shipped order", payload_json.order);
    } catch (error) {
      await db.query("select posthaste.fail($1, $2)", [delivery_id, String(error)]);
    }
  }
}
await db.end();
