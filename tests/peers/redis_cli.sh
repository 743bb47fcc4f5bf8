#!/usr/bin/env bash
# redis-cli, as people type it and as scripts pipe it.
set -euo pipefail

cli() { redis-cli -p "$PEER_REDIS" "$@"; }
same() { [[ $1 == "$2" ]] || { echo "$3: $2, not $1"; exit 1; }; }

for _ in {1..100}; do
    same PONG "$(cli ping)" ping
    same PONG "$(cli -3 ping)" "ping with RESP3"
done
echo "ok connect"

winners=$(for n in {1..20}; do cli set race "client-$n" nx ex 60 & done | grep -c OK)
same 1 "$winners" winners
echo "ok race"

same OK "$(cli set release a nx ex 60)" taken
same "" "$(cli set release b nx ex 60)" lost
same 1 "$(cli del release)" del
same OK "$(cli set release b nx ex 60)" "taken again"
echo "ok release"

same OK "$(cli set expire a nx px 200)" taken
end=$((SECONDS + 10))
while [[ $(cli exists expire) == 1 ]]; do
    ((SECONDS < end)) || { echo "it never expired"; exit 1; }
done
same OK "$(cli set expire b nx px 200)" "taken again"
echo "ok expire"

# With --json the reply is a map of RESP3.
same '"outcome":"acquired"' "$(cli --json once.claim evt lease 30000 | grep -o '"outcome":"[a-z]*"')" claim
token=$(cli once.get evt | grep -x -A1 token | tail -n 1)
same completed "$(cli once.complete evt "$token" result paid | sed -n 2p)" complete
same "done" "$(cli once.claim evt | sed -n 2p)" "second claim"
same paid "$(cli get evt)" result
echo "ok once"

# One piped session, and a server that dies under it: redis-cli tells of it once, then connects again.
coproc session { redis-cli -p "$PEER_REDIS" 2>&1; }
ask() { echo "$1" >&"${session[1]}"; read -r -t 30 answer <&"${session[0]}"; }
ask "set restart a nx ex 600"; same OK "$answer" taken
"$PEER_SERVER" restart
ask "ping"; same "Error: Server closed the connection" "$answer" "a dead connection"
ask "get restart"; same a "$answer" kept
ask "set restart b nx ex 600"; same "" "$answer" lost
echo "ok restart"
