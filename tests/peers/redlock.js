// redlock for Node over ioredis. Its argument: the name under which the version is installed.
const assert = require("node:assert/strict");
const Redis = require("ioredis5");
const loaded = require(process.argv[2]);
const Redlock = loaded.default ?? loaded;

const clients = [0, 1].map(() => new Redis(Number(process.env.PEER_REDIS)));
const [mine, other] = clients.map((redis) => new Redlock([redis], { retryCount: 0 }));
// Versions 4 and 5 call the same things by other names.
const take = (lock, keys) => (lock.acquire ? lock.acquire(keys, 60_000) : lock.lock(keys, 60_000));
const free = (held) => (held.release ? held.release() : held.unlock());
for (const lock of [mine, other]) lock.on("error", () => {});

(async () => {
  if (process.env.PEER_SCRIPTS === "served") {
    let held = await take(mine, ["a", "b"]);
    await assert.rejects(take(other, ["b"]));
    held = await held.extend(30_000);
    await free(held);
    await free(await take(other, ["a", "b"]));
    console.log("ok lock");
  } else {
    // It takes its locks by script: until those are served, nobody may believe to hold one.
    await assert.rejects(take(mine, ["a"]));
    assert.equal(await clients[0].exists("a"), 0);
    console.log("ok refused");
    console.log("later lock: scripts (it acquires, extends and releases by EVALSHA)");
  }
  clients.forEach((redis) => redis.disconnect());
})();
