# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_onced_global_optspecs
    string join \n h/help V/version
end

function __fish_onced_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_onced_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_onced_using_subcommand
    set -l cmd (__fish_onced_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c onced -n "__fish_onced_needs_command" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_needs_command" -s V -l version -d 'Print version'
complete -c onced -n "__fish_onced_needs_command" -f -a "serve" -d 'Serve HTTP and the Redis protocol'
complete -c onced -n "__fish_onced_needs_command" -f -a "claim" -d 'Ask: am I the one who does this, or was it done already?'
complete -c onced -n "__fish_onced_needs_command" -f -a "complete" -d 'It is done; keep the result'
complete -c onced -n "__fish_onced_needs_command" -f -a "renew" -d 'Let the lease run from now'
complete -c onced -n "__fish_onced_needs_command" -f -a "effect" -d 'Announce that the side effect is about to happen'
complete -c onced -n "__fish_onced_needs_command" -f -a "fail" -d 'This attempt failed'
complete -c onced -n "__fish_onced_needs_command" -f -a "release" -d 'Nothing happened: give the claim back'
complete -c onced -n "__fish_onced_needs_command" -f -a "get" -d 'Show the record'
complete -c onced -n "__fish_onced_needs_command" -f -a "list" -d 'Show the records of a namespace, in key order'
complete -c onced -n "__fish_onced_needs_command" -f -a "explain" -d 'Tell what happened to a key: who, when, which decision, and why'
complete -c onced -n "__fish_onced_needs_command" -f -a "events" -d 'Show the audit trail: who decided what, and when'
complete -c onced -n "__fish_onced_needs_command" -f -a "stats" -d 'Show what the server counts: answers, times, sizes'
complete -c onced -n "__fish_onced_needs_command" -f -a "replay" -d 'Another round, in a new generation'
complete -c onced -n "__fish_onced_needs_command" -f -a "forget" -d 'Remove the record'
complete -c onced -n "__fish_onced_needs_command" -f -a "run" -d 'Run a command once per key'
complete -c onced -n "__fish_onced_needs_command" -f -a "check" -d 'Check a data directory that no server has open: every record, body, frame and entry'
complete -c onced -n "__fish_onced_needs_command" -f -a "compact" -d 'Give the space of what is gone back to the file system: copies the store of a data directory that no server has open, and puts the copy in its place'
complete -c onced -n "__fish_onced_needs_command" -f -a "config" -d 'Print what `onced serve` with these arguments would have in force, and where each value comes from'
complete -c onced -n "__fish_onced_needs_command" -f -a "token" -d 'Make secrets for clients'
complete -c onced -n "__fish_onced_needs_command" -f -a "backup" -d 'Take a backup of the running server: a new file, read back before it gets its name'
complete -c onced -n "__fish_onced_needs_command" -f -a "restore" -d 'Make the store of an empty data directory from a backup'
complete -c onced -n "__fish_onced_needs_command" -f -a "export" -d 'Write all records of the running server as lines of JSON, with their payloads and results'
complete -c onced -n "__fish_onced_needs_command" -f -a "import" -d 'Store the records of an export in the running server: each once, and none over another one'
complete -c onced -n "__fish_onced_needs_command" -f -a "selftest" -d 'Try on this machine what onced promises: syncs, one winner, kill -9, a full disk, the clock, the ports'
complete -c onced -n "__fish_onced_needs_command" -f -a "bench" -d 'Measure durable claims per second on this machine, with a server of its own or against one that runs'
complete -c onced -n "__fish_onced_needs_command" -f -a "manual" -d 'Read the manual'
complete -c onced -n "__fish_onced_needs_command" -f -a "man" -d 'Write a man page for onced and for each of its verbs'
complete -c onced -n "__fish_onced_needs_command" -f -a "completions" -d 'Print the completions of a shell'
complete -c onced -n "__fish_onced_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onced -n "__fish_onced_using_subcommand serve" -l config -d 'The configuration file [default: /etc/onced/onced.toml, if there is one]' -r -F
complete -c onced -n "__fish_onced_using_subcommand serve" -l data-dir -d 'Where everything is kept [default: $STATE_DIRECTORY, $XDG_STATE_HOME/onced or ~/.local/state/onced]' -r -F
complete -c onced -n "__fish_onced_using_subcommand serve" -l trust-network -d 'Allow addresses that other machines reach without tokens; whoever reaches them may do everything' -r -f -a "true\t''
false\t''"
complete -c onced -n "__fish_onced_using_subcommand serve" -l threads -d 'Threads that serve [default: 1 below 4 cores, else one less than cores, at most 8]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l log -d 'Log lines to write: error, warn, info, debug, trace [default: info]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l http -d 'Where to serve HTTP; may be repeated [default: localhost:6623]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l unix -d 'Serve HTTP on this Unix socket too' -r -F
complete -c onced -n "__fish_onced_using_subcommand serve" -l unix-mode -d 'Who may connect to the Unix socket, as chmod(1) writes it [default: 0660]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l unix-group -d 'The group of the Unix socket, by name or number [default: that of the process]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l host -d 'A Host name that clients may use beside the loopback ones; may be repeated' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l redis -d 'Where to serve the Redis protocol; may be repeated [default: localhost:6624]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l nx-without-expiry -d 'What SET NX without expiry means: retention, forever or error [default: retention]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l allow-flush -d 'Let FLUSHALL and FLUSHDB delete' -r -f -a "true\t''
false\t''"
complete -c onced -n "__fish_onced_using_subcommand serve" -l max-payload -d 'The longest payload of a claim, up to 32MiB [default: 1MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l max-result -d 'The longest result, and value of a string, up to 32MiB [default: 1MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l max-connections -d 'Connections over all faces [default: 10000]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l max-pipeline -d 'Commands of one Redis connection that are decided together [default: 10000]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l max-in-flight -d 'Bytes in flight over all connections, then reading pauses [default: 256MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l recent-memory -d 'Memory for recent writes [default: 32MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l cache -d 'Memory for pages of the store [default: 32MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l header-timeout -d 'How long the header of an HTTP request may take [default: 10s]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l body-timeout -d 'How long the body of an HTTP request may take [default: 30s]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -l idle-timeout -d 'How long an HTTP connection may be idle [default: 75s]' -r
complete -c onced -n "__fish_onced_using_subcommand serve" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand claim" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l lease -d 'How long the holder may work' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l retention -d 'How long the finished record is remembered, or forever' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l on-lease-end -d 'What the end of the lease means: retry or hold' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l max-attempts -d 'Attempts before the record is dead; 0 is no limit' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l claim-id -d 'Fresh for each attempt: lets a claim whose answer was lost be repeated' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l owner -d 'Who claims; for people only' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l fingerprint -d 'Identity of the request, in place of the payload\'s own' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l payload -d 'The payload' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l payload-file -d 'A file with the payload; - is standard input' -r -F
complete -c onced -n "__fish_onced_using_subcommand claim" -l content-type -d 'The payload\'s content type' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l result -d 'With --once: kept as the result' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l wait -d 'How long to wait where the answer would be busy or backoff' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand claim" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand claim" -l store -d 'Keep the payload and hand it to every later holder'
complete -c onced -n "__fish_onced_using_subcommand claim" -l once -d 'Done in the step that acquires'
complete -c onced -n "__fish_onced_using_subcommand claim" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand claim" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand complete" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand complete" -l token -d 'The token that the claim was granted; without one the record is resolved by hand' -r
complete -c onced -n "__fish_onced_using_subcommand complete" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand complete" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand complete" -l result -d 'The result' -r
complete -c onced -n "__fish_onced_using_subcommand complete" -l result-file -d 'A file with the result; - is standard input' -r -F
complete -c onced -n "__fish_onced_using_subcommand complete" -l content-type -d 'The result\'s content type' -r
complete -c onced -n "__fish_onced_using_subcommand complete" -l status -d 'An HTTP-like status kept beside the result' -r
complete -c onced -n "__fish_onced_using_subcommand complete" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand complete" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand renew" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand renew" -l token -d 'The token that the claim was granted' -r
complete -c onced -n "__fish_onced_using_subcommand renew" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand renew" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand renew" -l lease -d 'Replaces the record\'s lease' -r
complete -c onced -n "__fish_onced_using_subcommand renew" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand renew" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand effect" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand effect" -l token -d 'The token that the claim was granted' -r
complete -c onced -n "__fish_onced_using_subcommand effect" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand effect" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand effect" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand effect" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand fail" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand fail" -l token -d 'The token that the claim was granted; without one the record is resolved by hand' -r
complete -c onced -n "__fish_onced_using_subcommand fail" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand fail" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand fail" -l error -d 'Why, for people' -r
complete -c onced -n "__fish_onced_using_subcommand fail" -l retry-in -d 'When the next attempt may start; 0 is at once' -r
complete -c onced -n "__fish_onced_using_subcommand fail" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand fail" -l bury -d 'No further attempt: the record is dead'
complete -c onced -n "__fish_onced_using_subcommand fail" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand release" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand release" -l token -d 'The token that the claim was granted' -r
complete -c onced -n "__fish_onced_using_subcommand release" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand release" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand release" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand release" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand get" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand get" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand get" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand get" -l result -d 'Only the result\'s bytes'
complete -c onced -n "__fish_onced_using_subcommand get" -l payload -d 'Only the payload\'s bytes'
complete -c onced -n "__fish_onced_using_subcommand get" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand get" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand list" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand list" -l state -d 'Only records that show in this state: pending, retry, done, in_doubt, dead' -r
complete -c onced -n "__fish_onced_using_subcommand list" -l prefix -d 'Only keys that begin so' -r
complete -c onced -n "__fish_onced_using_subcommand list" -l cursor -d 'Where to go on, as the page before told' -r
complete -c onced -n "__fish_onced_using_subcommand list" -l limit -d 'Records on a page, 1 to 1000 [default: 100]' -r
complete -c onced -n "__fish_onced_using_subcommand list" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand list" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand list" -l due -d 'Only what a claim would get: orphans and due retries'
complete -c onced -n "__fish_onced_using_subcommand list" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand list" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand explain" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand explain" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand explain" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand explain" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand explain" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand events" -l ns -d 'Only those of this namespace' -r
complete -c onced -n "__fish_onced_using_subcommand events" -l key -d 'Only those of this key' -r
complete -c onced -n "__fish_onced_using_subcommand events" -l after -d 'Only those behind this LSN' -r
complete -c onced -n "__fish_onced_using_subcommand events" -l limit -d 'At most so many' -r
complete -c onced -n "__fish_onced_using_subcommand events" -l to -d 'Append them to this file, durably, behind its last whole line' -r -F
complete -c onced -n "__fish_onced_using_subcommand events" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand events" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand events" -l follow -d 'Go on with those to come'
complete -c onced -n "__fish_onced_using_subcommand events" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand events" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand stats" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand stats" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand stats" -l watch -d 'Look again every two seconds'
complete -c onced -n "__fish_onced_using_subcommand stats" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand stats" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand replay" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand replay" -l generation -d 'The generation that was seen: the record is left alone if there is another by now' -r
complete -c onced -n "__fish_onced_using_subcommand replay" -l state -d 'The records that show in this state: dead, in_doubt, retry, or done with --force' -r
complete -c onced -n "__fish_onced_using_subcommand replay" -l prefix -d 'Of them only keys that begin so' -r
complete -c onced -n "__fish_onced_using_subcommand replay" -l cursor -d 'Where to go on, as the page before told' -r
complete -c onced -n "__fish_onced_using_subcommand replay" -l limit -d 'Records of a page, 1 to 1000 [default: 100]' -r
complete -c onced -n "__fish_onced_using_subcommand replay" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand replay" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand replay" -l force -d 'Also a record that is done'
complete -c onced -n "__fish_onced_using_subcommand replay" -l all -d 'Page after page, up to the last'
complete -c onced -n "__fish_onced_using_subcommand replay" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand replay" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand forget" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand forget" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand forget" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand forget" -l force -d 'Also while a lease runs'
complete -c onced -n "__fish_onced_using_subcommand forget" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand forget" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand run" -l key -d 'The key: any bytes' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l ns -d 'The namespace' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l lease -d 'How long the claim holds without a renewal; it is renewed at a third of it' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l retention -d 'How long the finished record is remembered, or forever' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l max-attempts -d 'Attempts before the record is dead; 0 is no limit' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l owner -d 'Who claims; for people only [default: the host\'s name and the process]' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l fingerprint -d 'Identity of what is asked for: the key with another one is refused' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l wait -d 'How long to wait where the key is busy or backs off' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l on-failure -d 'What a failed command means [default: retry; bury with --at-most-once]' -r -f -a "retry\t''
bury\t''"
complete -c onced -n "__fish_onced_using_subcommand run" -l retry-in -d 'When the next attempt after a failure may start, in place of the policy\'s backoff' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l grace -d 'Between TERM and KILL, for a command that has to stop' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l if-unavailable -d 'Where the server cannot be reached: fail, run without a claim, or skip' -r -f -a "fail\t''
run\t''
skip\t''"
complete -c onced -n "__fish_onced_using_subcommand run" -l exit-codes -d 'Whose exit code: the command\'s where it ran, or onced\'s own' -r -f -a "command\t''
onced\t''"
complete -c onced -n "__fish_onced_using_subcommand run" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand run" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand run" -l capture -d 'Keep the last 64 KiB of the command\'s standard output as the result'
complete -c onced -n "__fish_onced_using_subcommand run" -l at-most-once -d 'Announce the side effect first: after a crash a person decides, nobody runs it again'
complete -c onced -n "__fish_onced_using_subcommand run" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand run" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand check" -l data-dir -d 'The data directory' -r -F
complete -c onced -n "__fish_onced_using_subcommand check" -l repair -d 'Drop what is damaged, so that the server starts: says first what goes, and asks'
complete -c onced -n "__fish_onced_using_subcommand check" -l yes -d 'Repair without asking'
complete -c onced -n "__fish_onced_using_subcommand check" -l json -d 'Print JSON'
complete -c onced -n "__fish_onced_using_subcommand check" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand compact" -l data-dir -d 'The data directory' -r -F
complete -c onced -n "__fish_onced_using_subcommand compact" -l json -d 'Print JSON'
complete -c onced -n "__fish_onced_using_subcommand compact" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand config" -l config -d 'The configuration file [default: /etc/onced/onced.toml, if there is one]' -r -F
complete -c onced -n "__fish_onced_using_subcommand config" -l data-dir -d 'Where everything is kept [default: $STATE_DIRECTORY, $XDG_STATE_HOME/onced or ~/.local/state/onced]' -r -F
complete -c onced -n "__fish_onced_using_subcommand config" -l trust-network -d 'Allow addresses that other machines reach without tokens; whoever reaches them may do everything' -r -f -a "true\t''
false\t''"
complete -c onced -n "__fish_onced_using_subcommand config" -l threads -d 'Threads that serve [default: 1 below 4 cores, else one less than cores, at most 8]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l log -d 'Log lines to write: error, warn, info, debug, trace [default: info]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l http -d 'Where to serve HTTP; may be repeated [default: localhost:6623]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l unix -d 'Serve HTTP on this Unix socket too' -r -F
complete -c onced -n "__fish_onced_using_subcommand config" -l unix-mode -d 'Who may connect to the Unix socket, as chmod(1) writes it [default: 0660]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l unix-group -d 'The group of the Unix socket, by name or number [default: that of the process]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l host -d 'A Host name that clients may use beside the loopback ones; may be repeated' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l redis -d 'Where to serve the Redis protocol; may be repeated [default: localhost:6624]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l nx-without-expiry -d 'What SET NX without expiry means: retention, forever or error [default: retention]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l allow-flush -d 'Let FLUSHALL and FLUSHDB delete' -r -f -a "true\t''
false\t''"
complete -c onced -n "__fish_onced_using_subcommand config" -l max-payload -d 'The longest payload of a claim, up to 32MiB [default: 1MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l max-result -d 'The longest result, and value of a string, up to 32MiB [default: 1MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l max-connections -d 'Connections over all faces [default: 10000]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l max-pipeline -d 'Commands of one Redis connection that are decided together [default: 10000]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l max-in-flight -d 'Bytes in flight over all connections, then reading pauses [default: 256MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l recent-memory -d 'Memory for recent writes [default: 32MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l cache -d 'Memory for pages of the store [default: 32MiB]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l header-timeout -d 'How long the header of an HTTP request may take [default: 10s]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l body-timeout -d 'How long the body of an HTTP request may take [default: 30s]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l idle-timeout -d 'How long an HTTP connection may be idle [default: 75s]' -r
complete -c onced -n "__fish_onced_using_subcommand config" -l json -d 'Print JSON'
complete -c onced -n "__fish_onced_using_subcommand config" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand token; and not __fish_seen_subcommand_from new help" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand token; and not __fish_seen_subcommand_from new help" -f -a "new" -d 'Make a secret, shown once on standard error, and the lines of the configuration that let it in'
complete -c onced -n "__fish_onced_using_subcommand token; and not __fish_seen_subcommand_from new help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from new" -l name -d 'What histories and the audit trail call its holder' -r
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from new" -l rights -d 'What it allows: claim, read, operate, admin' -r
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from new" -l ns -d 'A namespace it is good for; may be repeated [default: all]' -r
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from new" -l out -d 'Write the secret to this new file, readable for this user only, instead of showing it' -r -F
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from new" -l json -d 'Print JSON'
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from new" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "new" -d 'Make a secret, shown once on standard error, and the lines of the configuration that let it in'
complete -c onced -n "__fish_onced_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onced -n "__fish_onced_using_subcommand backup" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand backup" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand backup" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand backup" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand restore" -l data-dir -d 'The data directory: empty, or not there yet' -r -F
complete -c onced -n "__fish_onced_using_subcommand restore" -l after -d 'A token that is known to have been granted: new ones are above it' -r
complete -c onced -n "__fish_onced_using_subcommand restore" -l json -d 'Print JSON'
complete -c onced -n "__fish_onced_using_subcommand restore" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand export" -l ns -d 'Only this namespace' -r
complete -c onced -n "__fish_onced_using_subcommand export" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand export" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand export" -l continue -d 'Go on with a file that was cut, behind its last whole line'
complete -c onced -n "__fish_onced_using_subcommand export" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand export" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand import" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand import" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand import" -l partial -d 'Also a file without its end: one that was cut, up to its last whole line, or made by hand'
complete -c onced -n "__fish_onced_using_subcommand import" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand import" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand selftest" -l dir -d 'A folder on the file system to try, such as that of the data directory [default: the folder for temporary files]' -r -F
complete -c onced -n "__fish_onced_using_subcommand selftest" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand selftest" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand selftest" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand selftest" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand bench" -l dir -d 'A folder on the file system to measure [default: the folder for temporary files]' -r -F
complete -c onced -n "__fish_onced_using_subcommand bench" -l redis -d 'Its Redis face, HOST:PORT; without it, only HTTP is measured there' -r
complete -c onced -n "__fish_onced_using_subcommand bench" -l ns -d 'The namespace; one that has records is refused' -r
complete -c onced -n "__fish_onced_using_subcommand bench" -l seconds -d 'How long all of it takes' -r
complete -c onced -n "__fish_onced_using_subcommand bench" -l url -d 'The server: http://HOST:PORT, or unix:PATH' -r
complete -c onced -n "__fish_onced_using_subcommand bench" -l secret-file -d 'A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET' -r -F
complete -c onced -n "__fish_onced_using_subcommand bench" -l running -d 'Against the server of --url, in a namespace of its own'
complete -c onced -n "__fish_onced_using_subcommand bench" -l json -d 'Print the body of the answer as it is'
complete -c onced -n "__fish_onced_using_subcommand bench" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand manual" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand man" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand completions" -s h -l help -d 'Print help'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "serve" -d 'Serve HTTP and the Redis protocol'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "claim" -d 'Ask: am I the one who does this, or was it done already?'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "complete" -d 'It is done; keep the result'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "renew" -d 'Let the lease run from now'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "effect" -d 'Announce that the side effect is about to happen'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "fail" -d 'This attempt failed'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "release" -d 'Nothing happened: give the claim back'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "get" -d 'Show the record'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "list" -d 'Show the records of a namespace, in key order'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "explain" -d 'Tell what happened to a key: who, when, which decision, and why'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "events" -d 'Show the audit trail: who decided what, and when'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "stats" -d 'Show what the server counts: answers, times, sizes'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "replay" -d 'Another round, in a new generation'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "forget" -d 'Remove the record'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "run" -d 'Run a command once per key'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "check" -d 'Check a data directory that no server has open: every record, body, frame and entry'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "compact" -d 'Give the space of what is gone back to the file system: copies the store of a data directory that no server has open, and puts the copy in its place'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "config" -d 'Print what `onced serve` with these arguments would have in force, and where each value comes from'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "token" -d 'Make secrets for clients'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "backup" -d 'Take a backup of the running server: a new file, read back before it gets its name'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "restore" -d 'Make the store of an empty data directory from a backup'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "export" -d 'Write all records of the running server as lines of JSON, with their payloads and results'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "import" -d 'Store the records of an export in the running server: each once, and none over another one'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "selftest" -d 'Try on this machine what onced promises: syncs, one winner, kill -9, a full disk, the clock, the ports'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "bench" -d 'Measure durable claims per second on this machine, with a server of its own or against one that runs'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "manual" -d 'Read the manual'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "man" -d 'Write a man page for onced and for each of its verbs'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "completions" -d 'Print the completions of a shell'
complete -c onced -n "__fish_onced_using_subcommand help; and not __fish_seen_subcommand_from serve claim complete renew effect fail release get list explain events stats replay forget run check compact config token backup restore export import selftest bench manual man completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c onced -n "__fish_onced_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "new" -d 'Make a secret, shown once on standard error, and the lines of the configuration that let it in'
