// node-redis with its default settings. Its argument: the name under which the version is installed.
const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { promisify } = require("node:util");
const { createClient } = require(process.argv[2]);

const url = `redis://127.0.0.1:${process.env.PEER_REDIS}`;
// It requires somebody who listens for errors.
const heard = [];
const connected = async () => {
  const redis = createClient({ url }).on("error", (error) => heard.push(error));
  await redis.connect();
  return redis;
};

async function connect() {
  for (let n = 0; n < 1000; n++) {
    const redis = await connected();
    assert.equal(await redis.ping(), "PONG");
    await redis.quit();
  }
}

async function race() {
  const clients = await Promise.all(Array.from({ length: 20 }, connected));
  const answers = await Promise.all(
    clients.map((redis, n) => redis.set("race", `client-${n}`, { NX: true, EX: 60 })),
  );
  assert.deepEqual(answers.filter((answer) => answer !== null), ["OK"]);
  assert.equal(await clients[0].get("race"), `client-${answers.indexOf("OK")}`);
  await Promise.all(clients.map((redis) => redis.quit()));
}

async function release(redis) {
  assert.equal(await redis.set("release", "a", { NX: true, EX: 60 }), "OK");
  assert.equal(await redis.set("release", "b", { NX: true, EX: 60 }), null);
  assert.equal(await redis.del("release"), 1);
  assert.equal(await redis.set("release", "b", { NX: true, EX: 60 }), "OK");
}

async function expire(redis) {
  const start = performance.now();
  assert.equal(await redis.set("expire", "a", { NX: true, PX: 200 }), "OK");
  while ((await redis.get("expire")) !== null) {
    assert(performance.now() - start < 10_000, "it never expired");
  }
  assert(performance.now() - start >= 190, "it expired early");
  assert.equal(await redis.set("expire", "b", { NX: true, PX: 200 }), "OK");
}

// A map with RESP3, names and values in turn with RESP2.
function named(reply) {
  if (reply instanceof Map) return Object.fromEntries(reply);
  if (!Array.isArray(reply)) return reply;
  const names = reply.filter((_, at) => at % 2 === 0);
  return Object.fromEntries(names.map((name, at) => [name, reply[2 * at + 1]]));
}

async function once(redis) {
  const ask = async (...words) => named(await redis.sendCommand(words));
  const first = await ask("ONCE.CLAIM", "evt", "LEASE", "30000", "OWNER", "worker-1");
  assert.equal(first.outcome, "acquired");
  assert.equal(typeof first.token, "number");
  assert.equal((await ask("ONCE.CLAIM", "evt")).outcome, "busy");
  const done = await ask("ONCE.COMPLETE", "evt", String(first.token), "RESULT", "paid");
  assert.equal(done.outcome, "completed");
  assert.equal((await ask("ONCE.CLAIM", "evt")).outcome, "done");
  assert.equal(await redis.get("evt"), "paid");
}

// A script by its hash, a lock that is released by its value, and a transaction.
async function transaction(redis) {
  const sha = await redis.scriptLoad("return redis.call('incrby',KEYS[1],ARGV[1])");
  assert.equal(await redis.evalSha(sha, { keys: ["x"], arguments: ["4"] }), 4);
  assert.equal(await redis.eval("return redis.call('get',KEYS[1])", { keys: ["x"] }), "4");
  assert.equal(await redis.set("lock", "me", { NX: true, PX: 60_000 }), "OK");
  assert.equal(await redis.sendCommand(["DELEX", "lock", "IFEQ", "you"]), 0);
  assert.equal(await redis.sendCommand(["DELEX", "lock", "IFEQ", "me"]), 1);
  assert.deepEqual(await redis.multi().set("n", "1").incr("n").get("n").exec(), ["OK", 2, "2"]);
}

async function restart(redis) {
  assert.equal(await redis.set("restart", "a", { NX: true, EX: 600 }), "OK");
  assert.deepEqual(heard, []);
  await promisify(execFile)(process.env.PEER_SERVER, ["restart"]);
  // It reconnects by itself, and tells of nothing but the connection it lost.
  assert.equal(await redis.set("restart", "b", { NX: true, EX: 600 }), null);
  assert.equal(await redis.get("restart"), "a");
  for (const error of heard) {
    const known = ["ECONNREFUSED", "ECONNRESET"].includes(error.code) || error.message === "Socket closed unexpectedly";
    assert(known, error);
  }
}

(async () => {
  const redis = await connected();
  for (const check of [connect, race, release, expire, once, transaction, restart]) {
    await check(redis);
    console.log(`ok ${check.name}`);
  }
  await redis.quit();
})();
