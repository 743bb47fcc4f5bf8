// ioredis with its default settings. Its argument: the name under which the version is installed.
const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { promisify } = require("node:util");
const Redis = require(process.argv[2]);

const port = Number(process.env.PEER_REDIS);
const client = () => new Redis(port);

async function connect() {
  for (let n = 0; n < 1000; n++) {
    const redis = client();
    assert.equal(await redis.ping(), "PONG");
    assert.equal(await redis.quit(), "OK");
  }
}

async function race() {
  const clients = Array.from({ length: 20 }, client);
  const answers = await Promise.all(
    clients.map((redis, n) => redis.set("race", `client-${n}`, "EX", 60, "NX")),
  );
  assert.deepEqual(answers.filter((answer) => answer !== null), ["OK"]);
  assert.equal(await clients[0].get("race"), `client-${answers.indexOf("OK")}`);
  clients.forEach((redis) => redis.disconnect());
}

async function release(redis) {
  assert.equal(await redis.set("release", "a", "EX", 60, "NX"), "OK");
  assert.equal(await redis.set("release", "b", "EX", 60, "NX"), null);
  assert.equal(await redis.del("release"), 1);
  assert.equal(await redis.set("release", "b", "EX", 60, "NX"), "OK");
}

async function expire(redis) {
  const start = performance.now();
  assert.equal(await redis.set("expire", "a", "PX", 200, "NX"), "OK");
  while ((await redis.get("expire")) !== null) {
    assert(performance.now() - start < 10_000, "it never expired");
  }
  assert(performance.now() - start >= 190, "it expired early");
  assert.equal(await redis.set("expire", "b", "PX", 200, "NX"), "OK");
}

// A map with RESP3, names and values in turn with RESP2.
function named(reply) {
  if (reply instanceof Map) return Object.fromEntries(reply);
  if (!Array.isArray(reply)) return reply;
  const names = reply.filter((_, at) => at % 2 === 0);
  return Object.fromEntries(names.map((name, at) => [name, reply[2 * at + 1]]));
}

async function once(redis) {
  const ask = async (...words) => named(await redis.call(...words));
  const first = await ask("ONCE.CLAIM", "evt", "LEASE", 30000, "OWNER", "worker-1");
  assert.equal(first.outcome, "acquired");
  assert.equal(typeof first.token, "number");
  assert.equal((await ask("ONCE.CLAIM", "evt")).outcome, "busy");
  const done = await ask("ONCE.COMPLETE", "evt", first.token, "RESULT", "paid");
  assert.equal(done.outcome, "completed");
  assert.equal((await ask("ONCE.CLAIM", "evt")).outcome, "done");
  assert.equal(await redis.get("evt"), "paid");
}

// A lock that is released by a script, sent by its hash first; a lost WATCH; a transaction whose command fails.
async function transaction(redis) {
  const release = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
  redis.defineCommand("release", { numberOfKeys: 1, lua: release });
  assert.equal(await redis.set("lock", "me", "PX", 60_000, "NX"), "OK");
  assert.equal(await redis.release("lock", "you"), 0);
  assert.equal(await redis.release("lock", "me"), 1);
  assert.deepEqual(await redis.multi().set("n", 1).incr("n").get("n").exec(), [[null, "OK"], [null, 2], [null, "2"]]);
  const other = redis.duplicate();
  await redis.watch("n");
  await other.set("n", 5);
  assert.equal(await redis.multi().set("n", 6).exec(), null);
  other.disconnect();
  assert.equal(await redis.get("n"), "5");
  await assert.rejects(redis.multi().call("nosuch").set("n", 7).exec());
  assert.equal(await redis.get("n"), "5");
}

async function restart(redis) {
  assert.equal(await redis.set("restart", "a", "EX", 600, "NX"), "OK");
  // It reconnects by itself, and tells of nothing but the connection it lost.
  const heard = [];
  redis.on("error", (error) => heard.push(error.code));
  await promisify(execFile)(process.env.PEER_SERVER, ["restart"]);
  assert.equal(await redis.set("restart", "b", "EX", 600, "NX"), null);
  assert.equal(await redis.get("restart"), "a");
  for (const code of heard) assert(["ECONNREFUSED", "ECONNRESET"].includes(code), code);
}

(async () => {
  const redis = client();
  for (const check of [connect, race, release, expire, once, transaction, restart]) {
    await check(redis);
    console.log(`ok ${check.name}`);
  }
  redis.disconnect();
})();
