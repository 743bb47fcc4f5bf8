//! The table of commands, sorted by name. For Redis's own commands arity, flags and keys are what
//! Redis 7.0.15 tells of them.

use super::{Call, Description, Next, Refusal};
use super::{
    connection, describe, keys, once, pubsub, scan, scripts, server, strings, transactions,
};

/// Every command that is answered.
pub(super) const COMMANDS: &[Description] = &[
    Description::new("auth", -2, connection::auth)
        .flags(
            "noscript loading stale fast no_auth allow_busy",
            "@fast @connection",
        )
        .says("connection", "1.0.0", "Authenticate to the server"),
    Description::new("client", -2, container)
        .flags("", "@slow")
        .says(
            "connection",
            "2.4.0",
            "A container for client connection commands",
        )
        .contains(CLIENT),
    Description::new("cluster", -2, server::no_cluster)
        .flags("", "@slow")
        .says("cluster", "3.0.0", "Refused: there is no cluster"),
    Description::new("command", -1, describe::command)
        .flags("loading stale", "@slow @connection")
        .says("server", "2.8.13", "Get array of Redis command details")
        .contains(COMMAND),
    Description::new("config", -2, container)
        .flags("", "@slow")
        .says(
            "server",
            "2.0.0",
            "A container for server configuration commands",
        )
        .contains(CONFIG),
    Description::new("dbsize", 1, server::dbsize)
        .flags("readonly fast", "@keyspace @read @fast")
        .says(
            "server",
            "1.0.0",
            "Return the number of keys in the selected database",
        ),
    Description::new("decr", 2, strings::decr)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(1, 1, "RW access update")
        .says(
            "string",
            "1.0.0",
            "Decrement the integer value of a key by one",
        ),
    Description::new("decrby", 3, strings::decrby)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(1, 1, "RW access update")
        .says(
            "string",
            "1.0.0",
            "Decrement the integer value of a key by the given number",
        ),
    Description::new("del", -2, keys::del)
        .flags("write", "@keyspace @write @slow")
        .keys(-1, 1, "RM delete")
        .says("generic", "1.0.0", "Delete a key"),
    Description::new("delex", -2, strings::delex)
        .flags("write fast", "@write @string @fast")
        .keys(1, 1, "RW delete variable_flags")
        .says(
            "string",
            "8.4.0",
            "Delete a key, if its value or the digest of it compares so",
        ),
    Description::new("delifeq", 3, strings::delifeq)
        .flags("write fast", "@write @string @fast")
        .keys(1, 1, "RW delete")
        .says(
            "string",
            "9.0.0",
            "Delete a key if its value equals the given one (of Valkey)",
        ),
    Description::new("digest", 2, strings::digest)
        .flags("readonly fast", "@read @string @fast")
        .keys(1, 1, "RO access")
        .says(
            "string",
            "8.4.0",
            "Get the XXH3 digest of the value of a key",
        ),
    Description::new("discard", 1, transactions::discard)
        .flags(
            "noscript loading stale fast allow_busy",
            "@fast @transaction",
        )
        .says("transactions", "2.0.0", "Discard a transaction"),
    Description::new("echo", 2, connection::echo)
        .flags("loading stale fast", "@fast @connection")
        .says("connection", "1.0.0", "Echo the given string"),
    Description::new("eval", -3, scripts::eval)
        .flags(
            "noscript stale skip_monitor no_mandatory_keys movablekeys",
            "@slow @scripting",
        )
        .counted_keys(2, 1, "RW access update")
        .says("scripting", "2.6.0", "Run a script, as one decision"),
    Description::new("eval_ro", -3, scripts::eval_ro)
        .flags(
            "readonly noscript stale skip_monitor no_mandatory_keys movablekeys",
            "@slow @scripting",
        )
        .counted_keys(2, 1, "RO access")
        .says("scripting", "7.0.0", "Run a script that only reads"),
    Description::new("evalsha", -3, scripts::evalsha)
        .flags(
            "noscript stale skip_monitor no_mandatory_keys movablekeys",
            "@slow @scripting",
        )
        .counted_keys(2, 1, "RW access update")
        .says(
            "scripting",
            "2.6.0",
            "Run a remembered script by the SHA-1 of its text",
        ),
    Description::new("evalsha_ro", -3, scripts::evalsha_ro)
        .flags(
            "readonly noscript stale skip_monitor no_mandatory_keys movablekeys",
            "@slow @scripting",
        )
        .counted_keys(2, 1, "RO access")
        .says(
            "scripting",
            "7.0.0",
            "Run a remembered script that only reads",
        ),
    Description::new("exec", 1, transactions::exec)
        .flags("noscript loading stale skip_slowlog", "@slow @transaction")
        .says(
            "transactions",
            "1.2.0",
            "Run all queued commands, as one decision",
        ),
    Description::new("exists", -2, keys::exists)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(-1, 1, "RO")
        .says("generic", "1.0.0", "Determine if a key exists"),
    Description::new("expire", -3, keys::expire)
        .flags("write fast", "@keyspace @write @fast")
        .keys(1, 1, "RW update")
        .says("generic", "1.0.0", "Set a key's time to live in seconds"),
    Description::new("expireat", -3, keys::expireat)
        .flags("write fast", "@keyspace @write @fast")
        .keys(1, 1, "RW update")
        .says(
            "generic",
            "1.2.0",
            "Set the expiration for a key as a UNIX timestamp",
        ),
    Description::new("expiretime", 2, keys::expiretime)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(1, 1, "RO access")
        .says(
            "generic",
            "7.0.0",
            "Get the expiration Unix timestamp for a key",
        ),
    Description::new("flushall", -1, server::flush)
        .flags("write", "@keyspace @write @slow @dangerous")
        .says(
            "server",
            "1.0.0",
            "Remove all string records of all databases",
        ),
    Description::new("flushdb", -1, server::flush)
        .flags("write", "@keyspace @write @slow @dangerous")
        .says(
            "server",
            "1.0.0",
            "Remove all string records of the current database",
        ),
    Description::new("get", 2, strings::get)
        .flags("readonly fast", "@read @string @fast")
        .keys(1, 1, "RO access")
        .says("string", "1.0.0", "Get the value of a key"),
    Description::new("getdel", 2, strings::getdel)
        .flags("write fast", "@write @string @fast")
        .keys(1, 1, "RW access delete")
        .says(
            "string",
            "6.2.0",
            "Get the value of a key and delete the key",
        ),
    Description::new("getex", -2, strings::getex)
        .flags("write fast", "@write @string @fast")
        .keys(1, 1, "RW access update")
        .says(
            "string",
            "6.2.0",
            "Get the value of a key and optionally set its expiration",
        ),
    Description::new("getset", 3, strings::getset)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(1, 1, "RW access update")
        .says(
            "string",
            "1.0.0",
            "Set the string value of a key and return its old value",
        ),
    Description::new("hello", -1, connection::hello)
        .flags(
            "noscript loading stale fast no_auth allow_busy",
            "@fast @connection",
        )
        .says("connection", "6.0.0", "Handshake with Redis"),
    Description::new("incr", 2, strings::incr)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(1, 1, "RW access update")
        .says(
            "string",
            "1.0.0",
            "Increment the integer value of a key by one",
        ),
    Description::new("incrby", 3, strings::incrby)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(1, 1, "RW access update")
        .says(
            "string",
            "1.0.0",
            "Increment the integer value of a key by the given amount",
        ),
    Description::new("info", -1, server::info)
        .flags("loading stale", "@slow @dangerous")
        .says(
            "server",
            "1.0.0",
            "Get information and statistics about the server",
        ),
    Description::new("mget", -2, strings::mget)
        .flags("readonly fast", "@read @string @fast")
        .keys(-1, 1, "RO access")
        .says("string", "1.0.0", "Get the values of all the given keys"),
    Description::new("mset", -3, strings::mset)
        .flags("write denyoom", "@write @string @slow")
        .keys(-1, 2, "OW update")
        .says("string", "1.0.1", "Set multiple keys to multiple values"),
    Description::new("msetex", -4, strings::msetex)
        .flags("write denyoom movablekeys", "@write @string @slow")
        .counted_keys(1, 2, "OW update")
        .says(
            "string",
            "8.4.0",
            "Set several keys with one expiration, all of them or none",
        ),
    Description::new("msetnx", -3, strings::msetnx)
        .flags("write denyoom", "@write @string @slow")
        .keys(-1, 2, "OW insert")
        .says(
            "string",
            "1.0.1",
            "Set multiple keys, only if none of them exists",
        ),
    Description::new("multi", 1, transactions::multi)
        .flags(
            "noscript loading stale fast allow_busy",
            "@fast @transaction",
        )
        .says("transactions", "1.2.0", "Begin a transaction"),
    Description::new("once.claim", -2, once::claim)
        .flags("write denyoom fast", "@write @fast")
        .keys(1, 1, "OW update insert")
        .says("once", "0.1.0", "Claim a key: am I the one who does this?"),
    Description::new("once.complete", -3, once::complete)
        .flags("write fast", "@write @fast")
        .keys(1, 1, "RW update")
        .says(
            "once",
            "0.1.0",
            "Finish the work of a claim and keep its result",
        ),
    Description::new("once.effect", -3, once::effect)
        .flags("write fast", "@write @fast")
        .keys(1, 1, "RW update")
        .says(
            "once",
            "0.1.0",
            "Announce that the side effect is about to happen",
        ),
    Description::new("once.fail", -3, once::fail)
        .flags("write fast", "@write @fast")
        .keys(1, 1, "RW update")
        .says("once", "0.1.0", "Say that an attempt failed"),
    Description::new("once.forget", -2, once::forget)
        .flags("write fast", "@write @fast")
        .keys(1, 1, "RM delete")
        .says("once", "0.1.0", "Remove the record of a key"),
    Description::new("once.get", -2, once::get)
        .flags("readonly fast", "@read @fast")
        .keys(1, 1, "RO access")
        .says("once", "0.1.0", "Get the record of a key"),
    Description::new("once.release", -3, once::release)
        .flags("write fast", "@write @fast")
        .keys(1, 1, "RW update")
        .says("once", "0.1.0", "Give a claim back: nothing happened"),
    Description::new("once.renew", -3, once::renew)
        .flags("write fast", "@write @fast")
        .keys(1, 1, "RW update")
        .says("once", "0.1.0", "Let the lease of a claim run from now"),
    Description::new("once.replay", -3, once::replay)
        .flags("write fast", "@write @fast")
        .keys(1, 1, "RW update")
        .says("once", "0.1.0", "Ask for another round of a key"),
    Description::new("persist", 2, keys::persist)
        .flags("write fast", "@keyspace @write @fast")
        .keys(1, 1, "RW update")
        .says("generic", "2.2.0", "Remove the expiration from a key"),
    Description::new("pexpire", -3, keys::pexpire)
        .flags("write fast", "@keyspace @write @fast")
        .keys(1, 1, "RW update")
        .says(
            "generic",
            "2.6.0",
            "Set a key's time to live in milliseconds",
        ),
    Description::new("pexpireat", -3, keys::pexpireat)
        .flags("write fast", "@keyspace @write @fast")
        .keys(1, 1, "RW update")
        .says(
            "generic",
            "2.6.0",
            "Set the expiration for a key as a UNIX timestamp in milliseconds",
        ),
    Description::new("pexpiretime", 2, keys::pexpiretime)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(1, 1, "RO access")
        .says(
            "generic",
            "7.0.0",
            "Get the expiration Unix timestamp for a key in milliseconds",
        ),
    Description::new("ping", -1, connection::ping)
        .flags("fast", "@fast @connection")
        .says("connection", "1.0.0", "Ping the server"),
    Description::new("psetex", 4, strings::psetex)
        .flags("write denyoom", "@write @string @slow")
        .keys(1, 1, "OW update")
        .says(
            "string",
            "2.6.0",
            "Set the value and expiration in milliseconds of a key",
        ),
    Description::new("psubscribe", -2, pubsub::psubscribe)
        .flags("pubsub noscript loading stale", "@pubsub @slow")
        .says(
            "pubsub",
            "2.0.0",
            "Subscribe to patterns that never carry a message",
        ),
    Description::new("pttl", 2, keys::pttl)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(1, 1, "RO access")
        .says(
            "generic",
            "2.6.0",
            "Get the time to live for a key in milliseconds",
        ),
    Description::new("publish", 3, pubsub::publish)
        .flags("pubsub loading stale fast", "@pubsub @fast")
        .says("pubsub", "2.0.0", "Answers 0: nobody hears it"),
    Description::new("punsubscribe", -1, pubsub::punsubscribe)
        .flags("pubsub noscript loading stale", "@pubsub @slow")
        .says("pubsub", "2.0.0", "Unsubscribe from patterns"),
    Description::new("quit", -1, connection::quit)
        .flags(
            "noscript loading stale fast no_auth allow_busy",
            "@fast @connection",
        )
        .says("connection", "1.0.0", "Close the connection"),
    Description::new("readonly", 1, server::no_cluster)
        .flags("loading stale fast", "@fast @connection")
        .says("cluster", "3.0.0", "Refused: there is no cluster"),
    Description::new("readwrite", 1, server::no_cluster)
        .flags("loading stale fast", "@fast @connection")
        .says("cluster", "3.0.0", "Refused: there is no cluster"),
    Description::new("reset", 1, connection::reset)
        .flags(
            "noscript loading stale fast no_auth allow_busy",
            "@fast @connection",
        )
        .says("connection", "6.2.0", "Reset the connection"),
    Description::new("role", 1, server::role)
        .flags("noscript loading stale fast", "@admin @fast @dangerous")
        .says(
            "server",
            "2.8.12",
            "Return the role of the instance in the context of replication",
        ),
    Description::new("scan", -2, scan::scan)
        .flags("readonly", "@keyspace @read @slow")
        .says("generic", "2.8.0", "Incrementally iterate the keys space"),
    Description::new("script", -2, container)
        .flags("", "@slow")
        .says(
            "scripting",
            "2.6.0",
            "A container for commands about scripts",
        )
        .contains(SCRIPT),
    Description::new("select", 2, connection::select)
        .flags("loading stale fast", "@fast @connection")
        .says(
            "connection",
            "1.0.0",
            "Change the selected database for the current connection",
        ),
    Description::new("set", -3, strings::set)
        .flags("write denyoom", "@write @string @slow")
        .keys(1, 1, "RW access update variable_flags")
        .says("string", "1.0.0", "Set the string value of a key"),
    Description::new("setex", 4, strings::setex)
        .flags("write denyoom", "@write @string @slow")
        .keys(1, 1, "OW update")
        .says("string", "2.0.0", "Set the value and expiration of a key"),
    Description::new("setnx", 3, strings::setnx)
        .flags("write denyoom fast", "@write @string @fast")
        .keys(1, 1, "OW insert")
        .says(
            "string",
            "1.0.0",
            "Set the value of a key, only if the key does not exist",
        ),
    Description::new("spublish", 3, pubsub::publish)
        .flags("pubsub loading stale fast", "@pubsub @fast")
        .keys(1, 1, "not_key")
        .says("pubsub", "7.0.0", "Answers 0: nobody hears it"),
    Description::new("ssubscribe", -2, pubsub::ssubscribe)
        .flags("pubsub noscript loading stale", "@pubsub @slow")
        .keys(-1, 1, "not_key")
        .says(
            "pubsub",
            "7.0.0",
            "Subscribe to shard channels that never carry a message",
        ),
    Description::new("strlen", 2, strings::strlen)
        .flags("readonly fast", "@read @string @fast")
        .keys(1, 1, "RO")
        .says(
            "string",
            "2.2.0",
            "Get the length of the value stored in a key",
        ),
    Description::new("subscribe", -2, pubsub::subscribe)
        .flags("pubsub noscript loading stale", "@pubsub @slow")
        .says(
            "pubsub",
            "2.0.0",
            "Subscribe to channels that never carry a message",
        ),
    Description::new("sunsubscribe", -1, pubsub::sunsubscribe)
        .flags("pubsub noscript loading stale", "@pubsub @slow")
        .keys(-1, 1, "not_key")
        .says("pubsub", "7.0.0", "Unsubscribe from shard channels"),
    Description::new("time", 1, server::time)
        .flags("loading stale fast", "@fast")
        .says("server", "2.6.0", "Return the current server time"),
    Description::new("touch", -2, keys::exists)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(-1, 1, "RO")
        .says(
            "generic",
            "3.2.1",
            "Count the keys that exist; nothing is ever evicted",
        ),
    Description::new("ttl", 2, keys::ttl)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(1, 1, "RO access")
        .says(
            "generic",
            "1.0.0",
            "Get the time to live for a key in seconds",
        ),
    Description::new("type", 2, keys::kind)
        .flags("readonly fast", "@keyspace @read @fast")
        .keys(1, 1, "RO")
        .says("generic", "1.0.0", "Determine the type stored at key"),
    Description::new("unlink", -2, keys::del)
        .flags("write fast", "@keyspace @write @fast")
        .keys(-1, 1, "RM delete")
        .says("generic", "4.0.0", "Delete a key; the same as DEL"),
    Description::new("unsubscribe", -1, pubsub::unsubscribe)
        .flags("pubsub noscript loading stale", "@pubsub @slow")
        .says("pubsub", "2.0.0", "Unsubscribe from channels"),
    Description::new("unwatch", 1, transactions::unwatch)
        .flags(
            "noscript loading stale fast allow_busy",
            "@fast @transaction",
        )
        .says("transactions", "2.2.0", "Forget about all watched keys"),
    Description::new("wait", 3, server::wait)
        .flags("noscript", "@slow @connection")
        .says("generic", "3.0.0", "Answers 0: there are no replicas"),
    Description::new("watch", -2, transactions::watch)
        .flags(
            "noscript loading stale fast allow_busy",
            "@fast @transaction",
        )
        .keys(-1, 1, "RO")
        .says(
            "transactions",
            "2.2.0",
            "Let EXEC run only if none of these keys changed until then",
        ),
];

const CLIENT: &[Description] = &[
    Description::new("client|getname", 2, connection::get_name)
        .flags("noscript loading stale", "@slow @connection")
        .says("connection", "2.6.9", "Get the current connection name"),
    Description::new("client|id", 2, connection::id)
        .flags("noscript loading stale", "@slow @connection")
        .says(
            "connection",
            "5.0.0",
            "Returns the client ID for the current connection",
        ),
    Description::new("client|info", 2, connection::info)
        .flags("noscript loading stale", "@slow @connection")
        .says(
            "connection",
            "6.2.0",
            "Returns information about the current client connection",
        ),
    Description::new("client|list", -2, connection::list)
        .flags(
            "admin noscript loading stale",
            "@admin @slow @dangerous @connection",
        )
        .says("connection", "2.4.0", "Get a line about this connection"),
    Description::new("client|no-evict", 3, connection::on_off)
        .flags(
            "admin noscript loading stale",
            "@admin @slow @dangerous @connection",
        )
        .says(
            "connection",
            "7.0.0",
            "Changes nothing: nothing is ever evicted",
        ),
    Description::new("client|no-touch", 3, connection::on_off)
        .flags("noscript loading stale", "@slow @connection")
        .says(
            "connection",
            "7.2.0",
            "Changes nothing: nothing is ever evicted",
        ),
    Description::new("client|reply", 3, connection::reply)
        .flags("noscript loading stale", "@slow @connection")
        .says(
            "connection",
            "3.2.0",
            "Instruct the server whether to reply to commands",
        ),
    Description::new("client|setinfo", 4, connection::set_info)
        .flags("noscript loading stale", "@slow @connection")
        .says(
            "connection",
            "7.2.0",
            "Sets information specific to the client or connection",
        ),
    Description::new("client|setname", 3, connection::set_name)
        .flags("noscript loading stale", "@slow @connection")
        .says("connection", "2.6.9", "Set the current connection name"),
];

const CONFIG: &[Description] = &[
    Description::new("config|get", -3, server::config_get)
        .flags("admin noscript loading stale", "@admin @slow @dangerous")
        .says(
            "server",
            "2.0.0",
            "Get the values of configuration parameters",
        ),
    Description::new("config|set", -4, server::config_set)
        .flags("admin noscript loading stale", "@admin @slow @dangerous")
        .says(
            "server",
            "2.0.0",
            "Set configuration parameters to the given values",
        ),
];

const SCRIPT: &[Description] = &[
    Description::new("script|exists", -3, scripts::exists)
        .flags("noscript", "@slow @scripting")
        .says("scripting", "2.6.0", "Check which scripts are remembered"),
    Description::new("script|flush", -2, scripts::flush)
        .flags("noscript", "@slow @scripting")
        .says("scripting", "2.6.0", "Forget all scripts"),
    Description::new("script|load", 3, scripts::load)
        .flags("noscript stale", "@slow @scripting")
        .says("scripting", "2.6.0", "Remember a script"),
];

const COMMAND: &[Description] = &[
    Description::new("command|count", 2, describe::count)
        .flags("loading stale", "@slow @connection")
        .says("server", "2.8.13", "Get total number of Redis commands"),
    Description::new("command|docs", -2, describe::docs)
        .flags("loading stale", "@slow @connection")
        .says(
            "server",
            "7.0.0",
            "Get array of specific Redis command documentation",
        ),
    Description::new("command|info", -2, describe::info)
        .flags("loading stale", "@slow @connection")
        .says(
            "server",
            "2.8.13",
            "Get array of specific Redis command details, or all when no argument is given",
        ),
    Description::new("command|list", -2, describe::list)
        .flags("loading stale", "@slow @connection")
        .says("server", "7.0.0", "Get an array of Redis command names"),
];

/// A container by itself is never run: it has at least one argument, and that is looked up.
fn container(_: &mut Call<'_>) -> Result<Next, Refusal> {
    Err(Refusal::SYNTAX)
}
