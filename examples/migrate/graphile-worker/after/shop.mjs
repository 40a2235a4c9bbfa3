import pg from "pg";

const db = new pg.Client({ connectionString: process.env.DATABASE_URL });
await db.connect();
// The messages of one key run one after the other.
await db.query("select posthaste.create_queue('default', $1)", [{ key_concurrency: 1 }]);

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
  const send = "select posthaste.send('default', $1, $2)";
  await db.query("insert into orders (id) values ($1)", [8]);
  await db.query(send, [{ order: 8 }, { kind: "ship", key: "ada", max_attempts: 5 }]);
  await db.query(send, [{ order: 8 }, { kind: "review", delay: "1h", unique: { key: "review-8", exists: "replace" } }]);
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
  const { rows } = await db.query("select delivery_id, kind, attempt, payload_json from posthaste.receive('default', 10, '1 minute')");
  for (const message of rows) {
    try {
      await handlers[message.kind](message);
    } catch (error) {
      await db.query("select posthaste.fail($1, $2)", [message.delivery_id, String(error)]);
    }
  }
  if (rows.length === 0) await new Promise((resolve) => setTimeout(resolve, 500));
}
await db.end();
