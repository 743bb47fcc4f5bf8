<?php
// Predis with its default settings.

require __DIR__ . '/php.inc';
require 'Predis/Autoloader.php';
Predis\Autoloader::register();

function client(): Predis\Client
{
    return new Predis\Client(['host' => '127.0.0.1', 'port' => (int) getenv('PEER_REDIS')]);
}

/** `OK` or null. */
function take(Predis\Client $redis, string $key, string $value, string $unit, int $time): ?string
{
    $answer = $redis->set($key, $value, $unit, $time, 'NX');
    return $answer === null ? null : (string) $answer;
}

for ($n = 0; $n < 1000; $n++) {
    $redis = client();
    same('PONG', (string) $redis->ping(), 'ping');
    $redis->disconnect();
}
ok('connect');

$won = processes(fn ($n) => take(client(), 'race', "client-$n", 'EX', 60) === 'OK');
same(1, count($won), 'winners');
$redis = client();
same("client-{$won[0]}", $redis->get('race'), 'the winner');
ok('race');

same('OK', take($redis, 'release', 'a', 'EX', 60), 'taken');
same(null, take($redis, 'release', 'b', 'EX', 60), 'lost');
same(1, $redis->del('release'), 'del');
same('OK', take($redis, 'release', 'b', 'EX', 60), 'taken again');
ok('release');

$start = microtime(true);
same('OK', take($redis, 'expire', 'a', 'PX', 200), 'taken');
expires($start, fn () => $redis->get('expire'));
same('OK', take($redis, 'expire', 'b', 'PX', 200), 'taken again');
ok('expire');

$ask = fn (...$words) => named($redis->executeRaw($words));
$first = $ask('ONCE.CLAIM', 'evt', 'LEASE', '30000', 'OWNER', 'worker-1');
same('acquired', $first['outcome'], 'claim');
same('busy', $ask('ONCE.CLAIM', 'evt')['outcome'], 'second claim');
$done = $ask('ONCE.COMPLETE', 'evt', $first['token'], 'RESULT', 'paid');
same('completed', $done['outcome'], 'complete');
same('done', $ask('ONCE.CLAIM', 'evt')['outcome'], 'third claim');
same('paid', $redis->get('evt'), 'result');
ok('once');

// Laravel's lock over Predis, and a transaction that loses its WATCH.
$release = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
same('OK', take($redis, 'lock', 'me', 'EX', 60), 'lock');
same(0, $redis->eval($release, 1, 'lock', 'you'), 'release by another');
same(1, $redis->eval($release, 1, 'lock', 'me'), 'release');
$replies = $redis->transaction(fn ($tx) => $tx->set('n', 1) && $tx->incr('n') && $tx->get('n'));
same('2', end($replies), 'exec');
$redis->watch('n');
client()->set('n', 5);
$redis->multi();
$redis->set('n', 6);
same(null, $redis->exec(), 'a lost watch');
same('5', $redis->get('n'), 'kept');
ok('transaction');

same('OK', take($redis, 'restart', 'a', 'EX', 600), 'taken');
restart();
// Predis tells of the connection it lost and opens another at the next call; what it was told is kept.
try {
    $redis->ping();
} catch (Predis\Connection\ConnectionException) {
}
same(null, take($redis, 'restart', 'b', 'EX', 600), 'lost');
same('a', $redis->get('restart'), 'kept');
ok('restart');
