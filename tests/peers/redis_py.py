"""redis-py with its default settings, and its Lock."""

import os
import subprocess
import threading
import time

import redis

PORT = int(os.environ["PEER_REDIS"])
SCRIPTS = os.environ["PEER_SCRIPTS"] == "served"


def client():
    return redis.Redis(port=PORT)


def connect():
    for _ in range(1000):
        r = client()
        assert r.ping() is True
        r.close()


def race():
    won = []

    def run(name):
        if client().set("race", name, nx=True, ex=60):
            won.append(name)

    threads = [threading.Thread(target=run, args=(f"client-{n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1, won
    assert client().get("race").decode() == won[0]


def release():
    r = client()
    assert r.set("release", "a", nx=True, ex=60) is True
    assert r.set("release", "b", nx=True, ex=60) is None
    assert r.delete("release") == 1
    assert r.delete("release") == 0
    assert r.set("release", "b", nx=True, ex=60) is True


def expire():
    r = client()
    start = time.monotonic()
    assert r.set("expire", "a", nx=True, px=200) is True
    assert 0 < r.pttl("expire") <= 200
    while r.get("expire") is not None:
        assert time.monotonic() - start < 10, "it never expired"
    assert time.monotonic() - start >= 0.19, "it expired early"
    assert r.set("expire", "b", nx=True, px=200) is True


def once():
    r = client()

    def ask(*words):
        """A map with RESP3, names and values in turn with RESP2."""
        reply = r.execute_command(*words)
        if isinstance(reply, list):
            reply = dict(zip(reply[::2], reply[1::2]))
        return {name.decode(): value for name, value in reply.items()}

    first = ask("ONCE.CLAIM", "evt", "LEASE", 30000, "OWNER", "worker-1")
    assert (first["outcome"], first["reason"]) == (b"acquired", b"new"), first
    assert ask("ONCE.CLAIM", "evt")["outcome"] == b"busy"
    done = ask("ONCE.COMPLETE", "evt", first["token"], "RESULT", b"\x00\xff\r\n")
    assert done["outcome"] == b"completed", done
    second = ask("ONCE.CLAIM", "evt")
    assert second["outcome"] == b"done", second
    assert r.get("evt") == b"\x00\xff\r\n"
    assert ask("ONCE.COMPLETE", "evt", first["token"] + 1)["outcome"] == b"stale"


def lock():
    r = client()
    mine, other = r.lock("lock", timeout=60), r.lock("lock", timeout=60, blocking=False)
    assert mine.acquire() and mine.owned() and not other.acquire()
    if SCRIPTS:
        assert mine.extend(10) and mine.reacquire()
        mine.release()
        assert other.acquire()
        return "ok lock"
    # Until then it has to fail loudly, and must not free what it could not compare.
    try:
        mine.release()
    except redis.exceptions.ResponseError:
        pass
    else:
        raise AssertionError("released without a script")
    assert not other.acquire()
    return "later lock: scripts (Lock takes and loses; release, extend and reacquire are EVALSHA)"


def restart():
    r = client()
    assert r.set("restart", "a", nx=True, ex=600) is True
    subprocess.run([os.environ["PEER_SERVER"], "restart"], check=True)
    # The same client: its connection is gone, what it was told is not.
    assert r.set("restart", "b", nx=True, ex=600) is None
    assert r.get("restart") == b"a"


for check in (connect, race, release, expire, once, lock, restart):
    print(check() or f"ok {check.__name__}", flush=True)
