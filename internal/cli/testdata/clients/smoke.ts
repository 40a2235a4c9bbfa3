// Uses the API through types that openapi-typescript generated. A wrong type is an error of tsc.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2]! });

function must<T>(what: string, answer: { data?: T; error?: components["schemas"]["Problem"] }): T {
  if (answer.error || answer.data === undefined) throw new Error(`${what}: ${JSON.stringify(answer.error)}`);
  return answer.data;
}

function same(what: string, is: unknown, want: unknown) {
  if (JSON.stringify(is) !== JSON.stringify(want)) throw new Error(`${what} is ${JSON.stringify(is)}, want ${JSON.stringify(want)}`);
}

const path = { queue: "typescript" };
must("create", await client.PUT("/v1/queues/{queue}", { params: { path }, body: { max_attempts: 3, backoff: { base: "1s" } } }));
const sent = must("send", await client.POST("/v1/queues/{queue}/messages", { params: { path }, body: { payload: { n: 1 }, kind: "made" } }));
const batch = must("send many", await client.POST("/v1/queues/{queue}/messages/batch", { params: { path }, body: { messages: [{ payload: 2 }, { payload: null, delay: "PT1H" }] } }));

const ids: string[] = [];
for (let cursor: string | undefined; ; ) {
  const page = must("list", await client.GET("/v1/queues/{queue}/messages", { params: { path, query: { limit: 1, ...(cursor ? { cursor } : {}) } } }));
  ids.push(...page.data.map((message) => message.id));
  if (!page.has_more) break;
  cursor = page.next;
}
same("the list", ids, [batch.ids[1], batch.ids[0], sent.id]);

const received = must("receive", await client.POST("/v1/queues/{queue}/receive", { params: { path }, body: { max: 2, lease: "1m" } }));
same("received", received.deliveries.map((delivery) => [delivery.message_id, delivery.attempt, delivery.max_attempts]), [[sent.id, 1, 3], [batch.ids[0], 1, 3]]);
must("ack", await client.POST("/v1/deliveries/{id}/ack", { params: { path: { id: received.deliveries[0]!.id } }, body: { receipt: { ok: true } } }));
must("fail", await client.POST("/v1/deliveries/{id}/fail", { params: { path: { id: received.deliveries[1]!.id } }, body: { error: "no", permanent: true } }));
must("replay", await client.POST("/v1/dead-letters/{id}/replay", { params: { path: { id: batch.ids[0]! } } }));
const replayed = must("show", await client.GET("/v1/messages/{id}", { params: { path: { id: batch.ids[0]! } } }));
same("the replayed message", [replayed.subscriptions[0]?.state, typeof replayed.subscriptions[0]?.replayed_at], ["ready", "string"]);

const gone = await client.POST("/v1/deliveries/{id}/ack", { params: { path: { id: received.deliveries[0]!.id } } });
same("an error", [gone.error?.code, gone.error?.status], ["conflict", 409]);
console.log("ok");
