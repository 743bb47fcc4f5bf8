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
  200.times do
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

def restart
  redis = client
  same true, redis.set("restart", "a", nx: true, ex: 600)
  system(ENV.fetch("PEER_SERVER"), "restart", exception: true)
  # The same client: its connection is gone, what it was told is not.
  same false, redis.set("restart", "b", nx: true, ex: 600)
  same "a", redis.get("restart")
end

$stdout.sync = true
%i[connect race release expire once restart].each do |check|
  send(check)
  puts "ok #{check}"
end
