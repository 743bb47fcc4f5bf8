# redis-rb with its default settings.
require "redis"

def client
  Redis.new(port: Integer(ENV.fetch("PEER_REDIS")))
end

def same(expected, actual)
  raise "#{actual.inspect}, not #{expected.inspect}" unless expected == actual
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

def connect
  1000.times do
    redis = client
    same "PONG", redis.ping
    redis.close
  end
end

def race
  answers = Array.new(20) { |n| Thread.new { client.set("race", "client-#{n}", nx: true, ex: 60) } }.map(&:value)
  same 1, answers.count(true)
  same 19, answers.count(false)
  same "client-#{answers.index(true)}", client.get("race")
end

def release
  redis = client
  same true, redis.set("release", "a", nx: true, ex: 60)
  same false, redis.set("release", "b", nx: true, ex: 60)
  same 1, redis.del("release")
  same true, redis.set("release", "b", nx: true, ex: 60)
end

def expire
  redis = client
  start = now
  same true, redis.set("expire", "a", nx: true, px: 200)
  raise "it never expired" if now - start > 10 until redis.get("expire").nil?
  raise "it expired early" if now - start < 0.19
  same true, redis.set("expire", "b", nx: true, px: 200)
end

def once
  redis = client
  ask = ->(*words) { Hash[*redis.call(*words)] }
  first = ask.("ONCE.CLAIM", "evt", "LEASE", 30_000, "OWNER", "worker-1")
  same "acquired", first["outcome"]
  same "busy", ask.("ONCE.CLAIM", "evt")["outcome"]
  same "completed", ask.("ONCE.COMPLETE", "evt", first["token"], "RESULT", "paid")["outcome"]
  same "done", ask.("ONCE.CLAIM", "evt")["outcome"]
  same "paid", redis.get("evt")
end

# What redis-semaphore and Rails' locks do: taken by SET NX, released by a script that looks first.
def lock
  redis = client
  release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
  same true, redis.set("lock", "me", nx: true, px: 60_000)
  sha = redis.script(:load, release)
  same 0, redis.evalsha(sha, ["lock"], ["you"])
  same 1, redis.eval(release, ["lock"], ["me"])
  same true, redis.set("lock", "me", nx: true, px: 60_000)
  redis.script(:flush)
  begin
    redis.evalsha(sha, ["lock"], ["me"])
    raise "it knew a script that was flushed"
  rescue Redis::CommandError => error
    raise error unless error.message.start_with?("NOSCRIPT")
  end
end

def transaction
  redis = client
  same ["OK", 2, "2"], (redis.multi { |m| m.set("m", "1"); m.incr("m"); m.get("m") })
  other = client
  lost = redis.watch("m") do
    other.set("m", "2")
    redis.multi { |m| m.set("m", "3") }
  end
  same nil, lost
  same "2", redis.get("m")
end

def restart
  redis = client
  same true, redis.set("restart", "a", nx: true, ex: 600)
  system(ENV.fetch("PEER_SERVER"), "restart", exception: true)
  # The same client: its connection is gone, what it was told is not.
  same false, redis.set("restart", "b", nx: true, ex: 600)
  same "a", redis.get("restart")
end

$stdout.sync = true
%i[connect race release expire once lock transaction restart].each do |check|
  send(check)
  puts "ok #{check}"
end
