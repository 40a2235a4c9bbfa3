// What child.go and traffic.go are in Go: the life of a process that installs, sends or
// works, told and telling lines of JSON (see protocol.go).

import { createInterface } from 'node:readline';
import pg from 'pg';

const now = () => Number(process.hrtime.bigint()); // the clock of monotonic() in Go
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const tell = (report) => process.stdout.write(JSON.stringify(report) + '\n');

function cpu() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

export function openPool(url, max) {
  const pool = new pg.Pool({ connectionString: url, max });
  // Without it, an idle connection that the server ends would end the process.
  pool.on('error', (error) => process.stderr.write(`idle connection: ${error.message}\n`));
  pool.on('connect', (client) => client.on('error', () => {})); // its query fails with the same
  return pool;
}

// Counts what a handler is called with.
class Tally {
  count = 0;
  samples = [];

  constructor(timed) {
    this.timed = timed;
  }

  handled(message) {
    if (this.timed) {
      this.samples.push(now() - message.sent);
    }
    this.count++;
  }

  take() {
    const all = this.samples;
    this.samples = [];
    return all;
  }
}

// Sends what a scenario sends.
class Traffic {
  handled = 0;
  begun = 0;
  waiting = [];

  constructor(order, sender) {
    this.order = order;
    this.sender = sender;
    this.batch = Array.from({ length: order.batch }, () => ({ text: order.text }));
    if (order.scenario === 'transactional') {
      this.pool = openPool(order.url, order.senders);
    }
  }

  heard(handled) {
    if (handled > this.handled) {
      this.handled = handled;
      this.wake();
    }
  }

  wake() {
    const all = this.waiting;
    this.waiting = [];
    all.forEach((resolve) => resolve());
  }

  run(ms) {
    switch (this.order.scenario) {
      case 'flow':
        return this.loops(ms, (until) => this.sendBatch(until));
      case 'single':
        return this.loops(ms, async () => {
          await this.sender.one({ text: this.order.text });
          return 1;
        });
      case 'transactional':
        return this.loops(ms, () => this.transaction());
      case 'latency':
        return this.atRandom(ms);
    }
    throw new Error(`scenario "${this.order.scenario}" has no sender`);
  }

  async loops(ms, once) {
    const until = performance.now() + ms;
    const timer = setTimeout(() => this.wake(), ms + 1);
    let sent = 0;
    const loop = async () => {
      while (performance.now() < until) {
        const n = await once(until); // before sent is read: other loops add to it meanwhile
        sent += n;
      }
    };
    await Promise.all(Array.from({ length: this.order.senders }, loop));
    clearTimeout(timer);
    return sent;
  }

  async sendBatch(until) {
    while (this.begun - this.handled > this.order.limit - this.batch.length) {
      if (performance.now() >= until) {
        return 0;
      }
      await new Promise((resolve) => this.waiting.push(resolve));
    }
    this.begun += this.batch.length;
    await this.sender.batch(this.batch);
    return this.batch.length;
  }

  async transaction() {
    const client = await this.pool.connect();
    try {
      await client.query('begin');
      await client.query({
        name: 'business',
        text: 'insert into public.peers_business (body) values ($1)',
        values: [this.order.text],
      });
      await this.sender.within(client, { text: this.order.text });
      await client.query('commit');
    } finally {
      client.release();
    }
    return 1;
  }

  async atRandom(ms) {
    const gap = 1000 / this.order.rate;
    const begun = performance.now();
    const calls = [];
    for (let next = begun; ; ) {
      next += gap * 2 * Math.random();
      if (next > begun + ms) {
        break;
      }
      await sleep(next - performance.now());
      calls.push(this.sender.one({ text: this.order.text, sent: now() }));
    }
    await Promise.all(calls);
    return calls.length;
  }
}

async function send(order, product, lines) {
  const traffic = new Traffic(order, await product.sender(order));
  tell({ ready: true });
  for await (const text of lines) {
    const line = JSON.parse(text);
    traffic.heard(line.handled ?? 0);
    if (line.report) {
      tell({ cpu: cpu() });
    }
    if (line.run > 0) {
      traffic.run(line.run).then((sent) => tell({ sent }), fail);
    }
  }
}

async function work(order, product, lines) {
  const tally = new Tally(order.scenario === 'latency');
  await product.work(order, tally);
  tell({ ready: true });
  let told = 0;
  if (!['latency', 'idle'].includes(order.scenario)) {
    setInterval(() => {
      if (tally.count !== told) {
        told = tally.count;
        tell({ handled: told });
      }
    }, 20);
  }
  for await (const text of lines) {
    if (JSON.parse(text).report) {
      tell({ handled: tally.count, cpu: cpu(), samples: tally.take() });
    }
  }
}

function fail(error) {
  tell({ error: String(error.stack ?? error) });
  process.exit(1);
}

// Does what the parent says with a product: { install(order), sender(order),
// work(order, tally) }. A sender has batch(messages), one(message) and
// within(client, message).
export async function serve(product) {
  try {
    const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    const order = JSON.parse((await lines.next()).value);
    if (order.role === 'install') {
      await product.install(order);
      tell({ ready: true });
    } else {
      await (order.role === 'send' ? send : work)(order, product, lines);
    }
    process.exit(0); // the product may still hold connections
  } catch (error) {
    fail(error);
  }
}
