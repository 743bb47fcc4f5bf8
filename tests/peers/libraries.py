"""Libraries that dedupe over Redis, as their manuals use them."""

import os
import warnings

PORT = int(os.environ["PEER_REDIS"])
URL = f"redis://127.0.0.1:{PORT}/0"

import redis


def celery_once():
    from celery import Celery
    from celery_once import AlreadyQueued, QueueOnce

    app = Celery("tasks", broker="memory://")
    app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": URL, "default_timeout": 3600}}

    @app.task(base=QueueOnce, once={"graceful": False})
    def report(day):
        return day

    report.apply_async(args=["monday"])
    try:
        report.apply_async(args=["monday"])
    except AlreadyQueued as error:
        assert 3590 <= error.countdown <= 3600, error.countdown
    else:
        raise AssertionError("queued twice")
    report.apply_async(args=["tuesday"])
    report.once_backend.clear_lock(report.get_key(["monday"], {}))
    report.apply_async(args=["monday"])


def celery_singleton():
    from celery import Celery
    from celery_singleton import Singleton

    app = Celery("single", broker="memory://")
    app.conf.singleton_backend_url = URL

    @app.task(base=Singleton, lock_expiry=600)
    def report(day):
        return day

    first = report.delay("monday")
    second = report.delay("monday")
    assert first.id == second.id, (first.id, second.id)
    assert report.delay("tuesday").id != first.id


def powertools():
    os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "peers")
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function

    try:
        from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer as Layer
    except ImportError:
        from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer as Layer

    layer = Layer(client=redis.Redis(port=PORT, decode_responses=True))
    runs = []
    config = IdempotencyConfig(expires_after_seconds=600)

    @idempotent_function(data_keyword_argument="order", persistence_store=layer, config=config)
    def pay(order):
        runs.append(order["id"])
        if order["id"] == "fails" and runs.count("fails") == 1:
            raise ValueError("card refused")
        return {"paid": order["id"]}

    assert pay(order={"id": "1"}) == {"paid": "1"}
    assert pay(order={"id": "1"}) == {"paid": "1"}
    assert runs == ["1"], runs
    try:
        pay(order={"id": "fails"})
    except ValueError:
        pass
    assert pay(order={"id": "fails"}) == {"paid": "fails"}


def django_cache():
    from django.conf import settings

    settings.configure(
        CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": URL}}
    )
    from django.core.cache import cache

    assert cache.add("evt", 1, timeout=300) is True
    assert cache.add("evt", 1, timeout=300) is False
    assert cache.get("evt") == 1
    cache.set_many({"a": 1, "b": 2}, timeout=60)
    assert cache.get_many(["a", "b", "c"]) == {"a": 1, "b": 2}
    assert cache.incr("a") == 2
    assert cache.delete("evt") is True
    assert cache.add("evt", 2, timeout=300) is True


def limits():
    import limits as library

    storage = library.storage.storage_from_string(f"redis://127.0.0.1:{PORT}")
    limiter = library.strategies.FixedWindowRateLimiter(storage)
    three = library.parse("3/minute")
    assert [limiter.hit(three, "user") for _ in range(5)] == [True, True, True, False, False]
    assert limiter.get_window_stats(three, "user").remaining == 0


def transaction():
    r = redis.Redis(port=PORT)
    r.set("n", 1)

    def double(pipe):
        value = int(pipe.get("n"))
        if value == 1:
            # Somebody else is faster, once.
            redis.Redis(port=PORT).set("n", 5)
        pipe.multi()
        pipe.set("n", value * 2)

    r.transaction(double, "n")
    assert r.get("n") == b"10", r.get("n")
    with r.pipeline() as pipe:
        pipe.set("x", 1).incr("x").incr("x").get("x")
        assert pipe.execute() == [True, 2, 3, b"3"]
    script = r.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    with r.pipeline() as pipe:
        script(keys=["x"], args=[4], client=pipe)
        pipe.get("x")
        assert pipe.execute() == [7, b"7"]
    with r.pipeline() as pipe:
        pipe.set("y", "text").incr("y").set("z", 1)
        try:
            pipe.execute()
        except redis.exceptions.ResponseError as error:
            assert "value is not an integer" in str(error), error
    assert r.mget("y", "z") == [b"text", b"1"]


warnings.simplefilter("ignore")
for check in (celery_once, celery_singleton, powertools, django_cache, limits, transaction):
    check()
    print(f"ok {check.__name__}", flush=True)
