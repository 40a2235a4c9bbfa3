// The parts of programs that docs/guides/nodejs.md shows. Each sends the id of an order that it inserts.
import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, text } from "drizzle-orm/pg-core";
import createKnex from "knex";
import pg from "pg";
import postgres from "postgres";
import { DataSource, EntitySchema } from "typeorm";

const url = process.env.DATABASE_URL;

async function byPostgresJs() {
  const sql = postgres(url);
  await sql.begin(async (sql) => { // postgres.js
    await sql`insert into orders (id, item) values (${7}, ${"lamp"})`;
    await sql`select posthaste.send('orders', ${sql.json({ order: 7 })})`;
  });
  await sql.end();
}

async function byDrizzle() {
  const orders = pgTable("orders", { id: integer().primaryKey().generatedByDefaultAsIdentity(), item: text().notNull() });
  const db = drizzle(url);
  await db.transaction(async (tx) => {
    const [order] = await tx.insert(orders).values({ item: "lamp" }).returning();
    await tx.execute(sql`select posthaste.send(${"orders"}, ${JSON.stringify({ order: order.id })}::text::jsonb)`);
  });
  await db.$client.end();
}

async function byPrisma() {
  const db = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
  await db.$transaction(async (tx) => {
    const order = await tx.orders.create({ data: { item: "lamp" } });
    await tx.$queryRaw`select posthaste.send(${"orders"}, ${JSON.stringify({ order: order.id })}::text::jsonb)`;
  });
  await db.$disconnect();
}

class Order {}

async function byTypeORM() {
  const entity = new EntitySchema({
    target: Order, name: "order", tableName: "orders",
    columns: { id: { type: "integer", primary: true, generated: "identity", generatedIdentity: "BY DEFAULT" }, item: { type: "text" } },
  });
  const dataSource = new DataSource({ type: "postgres", url, entities: [entity] });
  await dataSource.initialize();
  const order = Object.assign(new Order(), { item: "lamp" });
  await dataSource.transaction(async (manager) => {
    await manager.save(order);
    await manager.query("select posthaste.send($1, $2::text::jsonb)", ["orders", JSON.stringify({ order: order.id })]);
  });
  await dataSource.destroy();
}

async function byKnex() {
  const knex = createKnex({ client: "pg", connection: url });
  await knex.transaction(async (trx) => {
    const [order] = await trx("orders").insert({ item: "lamp" }).returning("*");
    await trx.raw("select posthaste.send(?, ?::text::jsonb)", ["orders", JSON.stringify({ order: order.id })]);
  });
  await knex.destroy();
}

const all = [byPostgresJs, byDrizzle, byPrisma, byTypeORM, byKnex];
for (const by of all) await by();
const db = new pg.Client({ connectionString: url });
await db.connect();
const { rows } = await db.query("select id from orders order by 1");
const sent = await db.query("select (convert_from(payload, 'UTF8')::json->>'order')::int as id from posthaste.messages order by 1");
await db.end();
if (rows.length !== all.length || JSON.stringify(rows) !== JSON.stringify(sent.rows)) {
  throw new Error(`orders ${JSON.stringify(rows)}, sent ${JSON.stringify(sent.rows)}`);
}
console.log("all calls work");
