<?php
// phpredis with its default settings, and what Laravel's cache sends through it.

require __DIR__ . '/php.inc';

function client(): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', (int) getenv('PEER_REDIS'));
    return $redis;
}

for ($n = 0; $n < 1000; $n++) {
    $redis = client();
    same(true, $redis->ping(), 'ping');
    $redis->close();
}
// A persistent connection is taken again after an ECHO.
for ($n = 0; $n < 3; $n++) {
    $redis = new Redis();
    $redis->pconnect('127.0.0.1', (int) getenv('PEER_REDIS'), 5, 'peers');
    same(true, $redis->ping(), 'ping');
    unset($redis);
}
ok('connect');

$won = processes(fn ($n) => client()->set('race', "client-$n", ['nx', 'ex' => 60]) === true);
same(1, count($won), 'winners');
$redis = client();
same("client-{$won[0]}", $redis->get('race'), 'the winner');
ok('race');

same(true, $redis->set('release', 'a', ['nx', 'ex' => 60]), 'taken');
same(false, $redis->set('release', 'b', ['nx', 'ex' => 60]), 'lost');
same(1, $redis->del('release'), 'del');
same(true, $redis->set('release', 'b', ['nx', 'ex' => 60]), 'taken again');
ok('release');

$start = microtime(true);
same(true, $redis->set('expire', 'a', ['nx', 'px' => 200]), 'taken');
expires($start, fn () => $redis->get('expire') === false ? null : 'there');
same(true, $redis->set('expire', 'b', ['nx', 'px' => 200]), 'taken again');
ok('expire');

$ask = fn (...$words) => named($redis->rawCommand(...$words));
$first = $ask('ONCE.CLAIM', 'evt', 'LEASE', '30000', 'OWNER', 'worker-1');
same('acquired', $first['outcome'], 'claim');
same('busy', $ask('ONCE.CLAIM', 'evt')['outcome'], 'second claim');
$done = $ask('ONCE.COMPLETE', 'evt', $first['token'], 'RESULT', 'paid');
same('completed', $done['outcome'], 'complete');
same('done', $ask('ONCE.CLAIM', 'evt')['outcome'], 'third claim');
same('paid', $redis->get('evt'), 'result');
ok('once');

// Laravel: Cache::lock()->get(), a loser, its owner, forceRelease(); release() and Cache::add() are scripts.
same(true, $redis->set('lock', 'me', ['EX' => 60, 'NX']), 'lock');
same(false, $redis->set('lock', 'you', ['EX' => 60, 'NX']), 'lost lock');
same('me', $redis->get('lock'), 'owner');
$release = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
$add = "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])";
if (getenv('PEER_SCRIPTS') === 'served') {
    same(0, $redis->eval($release, ['lock', 'you'], 1), 'release by another');
    same(1, $redis->eval($release, ['lock', 'me'], 1), 'release');
    same(true, $redis->eval($add, ['add', 'v', 60], 1), 'add');
    same(false, $redis->eval($add, ['add', 'v', 60], 1), 'second add');
    ok('lock');
} else {
    same(false, $redis->eval($release, ['lock', 'me'], 1), 'release without scripts');
    check(str_contains($redis->getLastError(), "unknown command 'EVAL'"), (string) $redis->getLastError());
    same('me', $redis->get('lock'), 'owner');
    same(1, $redis->del('lock'), 'forceRelease');
    echo "later lock: scripts (Laravel's lock takes, loses, forceReleases; release and Cache::add are EVAL)\n";
}

// A refused MULTI refuses what was meant to happen with it, on the same connection: phpredis connects again by
// itself after a close, and an application that does not look at the `false` would run the rest alone.
same(true, $redis->set('multi', 'mine', ['ex' => 60]), 'set');
if ($redis->multi() === false) {
    same(false, $redis->del('multi'), 'what belongs to a refused MULTI');
    same(true, $redis->rawCommand('DISCARD'), 'the end of it');
    same('mine', $redis->get('multi'), 'kept');
    echo "later transaction: MULTI (refused, and with it everything up to DISCARD)\n";
} else {
    same($redis, $redis->del('multi'), 'queued');
    same([1, false], $redis->get('multi')->exec(), 'exec');
    ok('transaction');
}

same(true, $redis->set('restart', 'a', ['nx', 'ex' => 600]), 'taken');
restart();
// The same client: its connection is gone, what it was told is not.
same(false, $redis->set('restart', 'b', ['nx', 'ex' => 600]), 'lost');
same('a', $redis->get('restart'), 'kept');
ok('restart');
