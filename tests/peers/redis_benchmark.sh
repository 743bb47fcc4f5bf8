#!/usr/bin/env bash
# redis-benchmark: every command of its own list that is served, many connections, deep pipelines.
set -euo pipefail

cli() { redis-cli -p "$PEER_REDIS" "$@"; }
benchmark() { redis-benchmark -p "$PEER_REDIS" -q "$@"; }
same() { [[ $1 == "$2" ]] || { echo "$3: $2, not $1"; exit 1; }; }

# 200 connections at once; it ends with an error at the first error among the replies.
benchmark -c 200 -n 2000 -t ping_inline,ping_mbulk,set,get,incr,mset
benchmark -3 -c 20 -n 2000 -t set,get
echo "ok connect"

# One key, 200 connections: the first value stays.
benchmark -c 200 -n 2000 set race first-of-all nx ex 60
first=$(cli get race)
same first-of-all "$first" "the winner"
benchmark -c 200 -n 2000 set race too-late nx ex 60
same "$first" "$(cli get race)" "the winner"
echo "ok race"

# Nothing is lost or counted twice under pipelines.
benchmark -c 50 -n 10000 -P 100 incr counter
same 10000 "$(cli get counter)" counter
echo "ok pipeline"
