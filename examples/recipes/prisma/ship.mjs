import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client";

// Outside of $transaction() each statement is a transaction of its own.
const db = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });

// The order and its message commit together.
await db.$transaction(async (tx) => {
  await tx.orders.create({ data: { id: 7, item: "lamp" } });
  await tx.$queryRaw`select posthaste.send('orders', ${{ order: 7 }}, ${{ reference: "order-7" }})`;
});

for (;;) {
  const messages = await db.$queryRaw`select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')`;
  if (messages.length === 0) break;
  for (const { delivery_id, payload_json } of messages) {
    try {
      // The shipment and the acknowledgment commit together.
      await db.$transaction(async (tx) => {
        await tx.shipments.create({ data: { order_id: payload_json.order } });
        await tx.$queryRaw`select * from posthaste.ack(${delivery_id}, ${{ strict: true }})`;
      });
      console.log("shipped order", payload_json.order);
    } catch (error) {
      await db.$queryRaw`select * from posthaste.fail(${delivery_id}, ${String(error)})`;
    }
  }
}
await db.$disconnect();
