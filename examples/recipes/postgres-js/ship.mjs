import postgres from "postgres";

// Outside of sql.begin() each statement is a transaction of its own.
const sql = postgres(process.env.DATABASE_URL);

// The order and its message commit together. sql.json() sends JSON.
await sql.begin(async (sql) => {
  await sql`insert into orders (id, item) values (${7}, ${"lamp"})`;
  await sql`select posthaste.send('orders', ${sql.json({ order: 7 })}, ${sql.json({ reference: "order-7" })})`;
});

for (;;) {
  const messages = await sql`select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')`;
  if (messages.length === 0) break;
  for (const { delivery_id, payload_json } of messages) {
    try {
      // The shipment and the acknowledgment commit together. An id is a string in JavaScript.
      await sql.begin(async (sql) => {
        await sql`insert into shipments (order_id) values (${payload_json.order})`;
        await sql`select posthaste.ack(${delivery_id}, '{"strict": true}')`;
      });
      console.log("shipped order", payload_json.order);
    } catch (error) {
      await sql`select posthaste.fail(${delivery_id}, ${String(error)})`;
    }
  }
}
await sql.end();
