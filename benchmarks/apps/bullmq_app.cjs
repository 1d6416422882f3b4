// BullMQ: `enqueue` does what each line of stdin says (how, first, end) and answers; `work` runs jobs, 50 at once.
'use strict';

const fs = require('fs');
const path = require('path');
const readline = require('readline');
const { Queue, Worker } = require('bullmq');

const address = new URL(process.env.DAYBREAK_BENCH_URL);
const connection = { host: address.hostname, port: Number(address.port), maxRetriesPerRequest: null };
const BULK_OF = 1000;

async function one(queue, first, end) {
  for (let n = first; n < end; n++) await queue.add('noop', { n });
}

async function bulk(queue, first, end) {
  for (let from = first; from < end; from += BULK_OF) {
    const many = [];
    for (let n = from; n < Math.min(end, from + BULK_OF); n++) many.push({ name: 'noop', data: { n } });
    await queue.addBulk(many);
  }
}

async function enqueue() {
  const queue = new Queue('bench', { connection, defaultJobOptions: { removeOnComplete: true } });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [how, first, end] = line.split(' ');
    await (how === 'bulk' ? bulk : one)(queue, Number(first), Number(end));
    process.stdout.write('done\n');
  }
  await queue.close();
}

function work() {
  const file = fs.openSync(path.join(process.env.DAYBREAK_BENCH_PLACE, 'starts'), 'a');
  const record = Buffer.alloc(16);
  const noop = async (job) => {
    record.writeBigInt64LE(process.hrtime.bigint(), 0);
    record.writeBigInt64LE(BigInt(job.data.n), 8);
    fs.writeSync(file, record);
    return job.data.n;
  };
  const worker = new Worker('bench', noop, { connection, concurrency: 50 });
  worker.on('error', (trouble) => console.error(trouble.message));
}

if (process.argv[2] === 'work') work();
else enqueue();
