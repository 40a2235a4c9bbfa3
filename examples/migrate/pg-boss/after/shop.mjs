import pg from "pg";

const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
await db.connect();
await db.query("select posthaste.create_queue('ship', $1)", [{ max_attempts: 5 }]);
await db.query("select posthaste.create_queue('review')");

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

// The order and its messages commit together.
await transaction(async () => {
  await db.query("insert into orders (id) values ($1)", [8]);
  await db.query("select posthaste.send('ship', $1, $2)", [{ order: 8 }, { kind: "ship" }]);
  await db.query("select posthaste.send('review', $1, $2)", [{ order: 8 }, { kind: "review", delay: "1h" }]);
});

let shipped = false;

const handlers = {
  // The shipment and the acknowledgement commit together.
  ship: ({ delivery_id, attempt, payload_json: { order } }) =>
    transaction(async () => {
      if (attempt === 1) {
        console.log(`order ${order}: the carrier is busy`);
        throw new Error("the carrier is busy");
      }
      await db.query("update orders set shipped = true where id = $1", [order]);
      await db.query("select posthaste.ack($1, $2)", [delivery_id, { strict: true }]);
      console.log(`shipped order ${order}`);
      shipped = true;
    }),
  async review({ delivery_id, payload_json: { order } }) {
    console.log(`asked for a review of order ${order}`);
    await db.query("select posthaste.ack($1)", [delivery_id]);
  },
};

// A service would go on. This program ends with the order.
while (!shipped) {
  let received = 0;
  for (const [queue, handler] of Object.entries(handlers)) {
    const { rows } = await db.query("select delivery_id, attempt, payload_json from posthaste.receive($1, 10, '1 minute')", [queue]);
    for (const message of rows) {
      received++;
      try {
        await handler(message);
      } catch (error) {
        await db.query("select posthaste.fail($1, $2)", [message.delivery_id, String(error)]);
      }
    }
  }
  if (received === 0) await new Promise((resolve) => setTimeout(resolve, 500));
}
await db.end();
