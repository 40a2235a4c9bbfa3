import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, text } from "drizzle-orm/pg-core";

const orders = pgTable("orders", { id: integer().primaryKey(), item: text().notNull() });
const shipments = pgTable("shipments", { order_id: integer().primaryKey() });

// Outside of db.transaction() each statement is a transaction of its own.
const db = drizzle(process.env.DATABASE_URL);

// The order and its message commit together.
await db.transaction(async (tx) => {
  await tx.insert(orders).values({ id: 7, item: "lamp" });
  await tx.execute(sql`select posthaste.send('orders', ${{ order: 7 }}, ${{ reference: "order-7" }})`);
});

for (;;) {
  const { rows } = await db.execute(sql`select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')`);
  if (rows.length === 0) break;
  for (const { delivery_id, payload_json } of rows) {
    try {
      // The shipment and the acknowledgment commit together.
      await db.transaction(async (tx) => {
        await tx.insert(shipments).values({ order_id: payload_json.order });
        await tx.execute(sql`select posthaste.ack(${delivery_id}, ${{ strict: true }})`);
      });
      console.log("shipped order", payload_json.order);
    } catch (error) {
      await db.execute(sql`select posthaste.fail(${delivery_id}, ${String(error)})`);
    }
  }
}
await db.$client.end();
