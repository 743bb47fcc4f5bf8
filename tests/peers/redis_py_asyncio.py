"""redis-py's asyncio client with its default settings, and its Lock."""

import asyncio
import os
import time

import redis.asyncio as redis
from redis.exceptions import ResponseError

PORT = int(os.environ["PEER_REDIS"])
SCRIPTS = os.environ["PEER_SCRIPTS"] == "served"


def client():
    return redis.Redis(port=PORT)


async def connect():
    for _ in range(1000):
        async with client() as r:
            assert await r.ping() is True


async def race():
    async def run(name):
        async with client() as r:
            return name if await r.set("race", name, nx=True, ex=60) else None

    names = await asyncio.gather(*(run(f"client-{n}") for n in range(20)))
    won = [name for name in names if name]
    assert len(won) == 1, won
    async with client() as r:
        assert (await r.get("race")).decode() == won[0]


async def release():
    async with client() as r:
        assert await r.set("release", "a", nx=True, ex=60) is True
        assert await r.set("release", "b", nx=True, ex=60) is None
        assert await r.delete("release") == 1
        assert await r.set("release", "b", nx=True, ex=60) is True


async def expire():
    async with client() as r:
        start = time.monotonic()
        assert await r.set("expire", "a", nx=True, px=200) is True
        while await r.get("expire") is not None:
            assert time.monotonic() - start < 10, "it never expired"
        assert time.monotonic() - start >= 0.19, "it expired early"
        assert await r.set("expire", "b", nx=True, px=200) is True


async def once():
    async with client() as r:

        async def ask(*words):
            """A map with RESP3, names and values in turn with RESP2."""
            reply = await r.execute_command(*words)
            if isinstance(reply, list):
                reply = dict(zip(reply[::2], reply[1::2]))
            return {name.decode(): value for name, value in reply.items()}

        first = await ask("ONCE.CLAIM", "evt", "LEASE", 30000, "OWNER", "worker-1")
        assert first["outcome"] == b"acquired", first
        # Held until the holder is done, on a connection of its own.
        waiting = asyncio.create_task(ask("ONCE.CLAIM", "evt", "WAIT", 30000))
        done = await ask("ONCE.COMPLETE", "evt", first["token"], "RESULT", "paid")
        assert done["outcome"] == b"completed", done
        assert (await waiting)["outcome"] == b"done"


async def lock():
    async with client() as r:
        mine = r.lock("lock", timeout=60)
        other = r.lock("lock", timeout=60, blocking=False)
        assert await mine.acquire() and await mine.owned() and not await other.acquire()
        if SCRIPTS:
            assert await mine.extend(10) and await mine.reacquire()
            await mine.release()
            assert await other.acquire()
            return "ok lock"
        # Until then it has to fail loudly, and must not free what it could not compare.
        try:
            await mine.release()
        except ResponseError:
            pass
        else:
            raise AssertionError("released without a script")
        assert not await other.acquire()
    return "later lock: scripts (Lock takes and loses; release, extend and reacquire are EVALSHA)"


async def restart():
    async with client() as r:
        assert await r.set("restart", "a", nx=True, ex=600) is True
        server = await asyncio.create_subprocess_exec(os.environ["PEER_SERVER"], "restart")
        assert await server.wait() == 0
        # The same client: its connection is gone, what it was told is not.
        assert await r.set("restart", "b", nx=True, ex=600) is None
        assert await r.get("restart") == b"a"


async def main():
    for check in (connect, race, release, expire, once, lock, restart):
        print(await check() or f"ok {check.__name__}", flush=True)


asyncio.run(main())
