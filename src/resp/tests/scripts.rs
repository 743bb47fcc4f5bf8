//! Scripts: what they cannot do, what they may take, and that each is one decision.

use super::{Desk, request};

fn eval(desk: &mut Desk, script: &str, keys: &[&str], args: &[&str]) -> String {
    let count = keys.len().to_string();
    let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
    words.extend(keys.iter().chain(args).map(|word| word.as_bytes()));
    let (answer, closed) = desk.talk(&request(&words), usize::MAX);
    assert!(!closed);
    String::from_utf8_lossy(&answer)
        .replace("\r\n", " ")
        .trim_end()
        .to_owned()
}

#[test]
fn a_script_is_one_decision_and_durable() {
    let mut desk = Desk::new();
    let script = "redis.call('set', KEYS[1], 'a') redis.call('set', KEYS[2], redis.call('get', KEYS[1]) .. 'b') \
                  return redis.call('mget', KEYS[1], KEYS[2])";
    assert_eq!(eval(&mut desk, script, &["x", "y"], &[]), "*2 $1 a $2 ab");
    desk.restart();
    desk.check(&[("MGET x y", "*2 $1 a $2 ab")]);
}

#[test]
fn a_script_that_ends_in_an_error_has_done_nothing() {
    for fault in [
        "error('no')",
        "redis.call('incr', KEYS[1])",
        "redis.call('nosuch')",
        "redis.call('set', 'undeclared', 1)",
        "while true do end",
        "local t = {} t[1] = t return t",
        "local s = 'x' while true do s = s .. s end",
    ] {
        let mut desk = Desk::new();
        desk.say("SET k v");
        let script = format!("redis.call('set', KEYS[1], 'w') {fault}");
        let answer = eval(&mut desk, &script, &["k"], &[]);
        assert!(answer.starts_with("-ERR "), "{fault}: {answer}");
        assert_eq!(desk.say("GET k"), "$1 v", "{fault}");
        // In a transaction it undoes its own alone.
        let words = request(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
        desk.say("MULTI\nSET before 1");
        desk.talk(&words, usize::MAX);
        desk.say("SET after 1");
        let answer = desk.say("EXEC");
        assert!(
            answer.starts_with("*3 +OK -ERR") && answer.ends_with("+OK"),
            "{answer}"
        );
        assert_eq!(
            desk.say("MGET before k after"),
            "*3 $1 1 $1 v $1 1",
            "{fault}"
        );
    }
}

#[test]
fn what_is_not_declared_is_not_touched() {
    let mut desk = Desk::new();
    desk.say("SET other secret");
    for script in [
        "return redis.call('get', 'other')",
        "return redis.call('del', KEYS[1], 'other')",
        "return redis.call('mget', KEYS[1], 'other')",
        "redis.call('select', 1) return redis.call('get', KEYS[1])",
    ] {
        let answer = eval(&mut desk, script, &["k"], &[]);
        assert!(
            answer.contains("give all keys of a script as KEYS"),
            "{script}: {answer}"
        );
    }
    assert_eq!(desk.say("GET other"), "$6 secret");
    // A selection of a script is its own.
    eval(&mut desk, "return redis.call('select', 3)", &[], &[]);
    assert_eq!(desk.say("GET other"), "$6 secret");
}

#[test]
fn claims_are_left_alone_by_scripts() {
    let mut desk = Desk::new();
    desk.say("ONCE.CLAIM k");
    let wrong = eval(&mut desk, "return redis.call('del', KEYS[1])", &["k"], &[]);
    assert!(wrong.starts_with("-WRONGTYPE"), "{wrong}");
    let refused = eval(
        &mut desk,
        "return redis.call('once.claim', KEYS[1])",
        &["n"],
        &[],
    );
    assert!(refused.starts_with("-ERR This Redis command is not allowed from script"));
    assert_eq!(desk.say("EXISTS k n"), ":1");
}

#[test]
fn nothing_outside_the_sandbox_is_in_reach() {
    let mut desk = Desk::new();
    for name in [
        "os",
        "io",
        "debug",
        "package",
        "require",
        "dofile",
        "loadfile",
        "load",
        "print",
        "module",
        "coroutine",
        "setfenv",
        "getfenv",
        "newproxy",
        "string_dump",
    ] {
        let answer = eval(&mut desk, &format!("return {name}"), &[], &[]);
        assert!(
            answer.contains("nonexistent global variable"),
            "{name}: {answer}"
        );
    }
    for (script, expected) in [
        ("return tostring(string.dump)", "$3 nil"),
        ("return tostring(('').dump)", "$3 nil"),
        ("return tostring(getmetatable('').__index.dump)", "$3 nil"),
        ("return tostring(_G.os) == 'nil'", "-ERR"),
        (
            "local f, e = loadstring('\\27Lua') return tostring(f)",
            "$3 nil",
        ),
        ("return loadstring('return tostring(KEYS[1])')()", "$3 nil"),
        ("return loadstring('return os')()", "-ERR"),
        ("rawset(_G, 'kept', 1) return kept", ":1"),
        ("return kept", "-ERR"),
        ("string.kept = 1 return string.kept", ":1"),
        ("return tostring(string.kept)", "$3 nil"),
    ] {
        let answer = eval(&mut desk, script, &[], &[]);
        assert!(answer.starts_with(expected), "{script}: {answer}");
    }
    let (code, _) = desk.talk(
        &request(&[b"EVAL", b"\x1bLuaQ\0\x01\x04", b"0"]),
        usize::MAX,
    );
    assert!(code.starts_with(b"-ERR "), "{}", code.escape_ascii());
}

#[test]
fn what_takes_too_long_ends_and_no_pcall_saves_it() {
    const LONG: &str = "-ERR the script takes too long: at most 200000 instructions and 5 ms";
    const MEMORY: &str = "-ERR the script needs too much memory";
    const PATTERNS: &str = "texts this long take too much time here";
    let mut desk = Desk::new();
    for (script, expected) in [
        ("while true do end", LONG),
        (
            "while true do pcall(function() while true do end end) end",
            LONG,
        ),
        ("pcall(function() while true do end end) return 1", LONG),
        (
            "xpcall(function() while true do end end, function() return 1 end) return 1",
            LONG,
        ),
        ("local function f() return f() end f()", LONG),
        (
            "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
            "-ERR",
        ),
        ("for i = 1, 1e9 do redis.call('ping') end", LONG),
        ("local s = ('x'):rep(1e9) return 1", PATTERNS),
        ("local s = 'x' while true do s = s .. s end", MEMORY),
        (
            "pcall(function() local s = 'x' while true do s = s .. s end end) while true do end",
            LONG,
        ),
        ("while true do pcall(string.rep, 'x', 4e6) end", LONG),
        (
            "local s = ('x'):rep(1e6) while true do local t = s .. 'y' end",
            LONG,
        ),
        ("return ('a'):rep(1000):find('.-.-.-b')", PATTERNS),
        ("return ('a'):rep(100000):gsub('a-b', '')", PATTERNS),
    ] {
        let answer = eval(&mut desk, script, &[], &[]);
        assert!(answer.contains(expected), "{script}: {answer}");
    }
    // What scripts do with patterns goes.
    for (script, expected) in [
        (
            "return ('2026-01-02'):match('(%d+)-(%d+)-(%d+)')",
            "$4 2026",
        ),
        ("return ('a,b,c'):gsub(',', ';')", "$5 a;b;c"),
        (
            "local n = 0 for w in ('one two three'):gmatch('%a+') do n = n + 1 end return n",
            ":3",
        ),
        ("return ('x'):rep(100000):find('y', 1, true) == nil", ":1"),
    ] {
        assert_eq!(eval(&mut desk, script, &[], &[]), expected, "{script}");
    }
    assert_eq!(desk.say("PING"), "+PONG");
}

#[test]
fn scripts_have_limits_each_with_its_own_error() {
    let mut desk = Desk::new();
    let long = format!("return 1 --{}", "x".repeat(256 << 10));
    assert_eq!(
        eval(&mut desk, &long, &[], &[]),
        "-ERR a script has at most 256 KiB"
    );
    let many = vec!["x"; 10_001];
    assert_eq!(
        eval(&mut desk, "return 1", &[], &many),
        "-ERR a script has at most 10000 keys and arguments"
    );
    let large = "x".repeat(3 << 20);
    assert_eq!(
        eval(&mut desk, "return 1", &[], &[&large, &large]),
        "-ERR the keys and arguments of a script have at most 4194304 bytes together"
    );
    assert_eq!(
        eval(&mut desk, "return #ARGV[1]", &[], &[&large]),
        ":3145728"
    );
    for script in [
        "return redis.sha1hex(ARGV[1])",
        "return loadstring('return 1 --' .. ARGV[1])",
        "return cjson.decode('\"' .. ARGV[1] .. '\"')",
        "local t = {} for i = 1, 3 do t[i] = ARGV[1]:sub(1, 100000) end return cjson.encode(t)",
        "return ('%q%q'):format(ARGV[1], ARGV[1])",
    ] {
        let answer = eval(&mut desk, script, &["k"], &[&large]);
        let why = ["over texts this long", "more than a script may build"];
        assert!(
            why.iter().any(|why| answer.contains(why)),
            "{script}: {answer}"
        );
    }
    // Each step copies or compares megabytes, and is looked at alone.
    for script in [
        "for i = 1, 1000 do local a = ARGV[1] .. i end return 1",
        "local a, b = ARGV[1] .. 'a', ARGV[1] .. 'b' for i = 1, 1e6 do local c = a < b end return 1",
    ] {
        let answer = eval(&mut desk, script, &["k"], &[&large]);
        // Or Lua has not collected what it needs no more by then.
        let why = ["takes too long", "needs too much memory"];
        assert!(
            why.iter().any(|why| answer.contains(why)),
            "{script}: {answer}"
        );
    }
    for (script, expected) in [
        (
            "local t, u = {}, {} for i = 1, 1000 do u[i] = i end for i = 1, 101 do t[i] = u end return t",
            "more than 100000 values",
        ),
        (
            "local t = 1 for i = 1, 40 do t = {t} end return t",
            "more than 32 levels",
        ),
    ] {
        let answer = eval(&mut desk, script, &["k"], &[]);
        assert!(answer.contains(expected), "{script}: {answer}");
    }
    assert_eq!(desk.say("EXISTS k"), ":0");
}

#[test]
fn scripts_are_remembered_and_the_oldest_makes_room() {
    let mut desk = Desk::new();
    let sha = |desk: &mut Desk, script: &str| {
        let (answer, _) = desk.talk(
            &request(&[b"SCRIPT", b"LOAD", script.as_bytes()]),
            usize::MAX,
        );
        String::from_utf8(answer)
            .expect("digits")
            .split("\r\n")
            .nth(1)
            .expect("it")
            .to_owned()
    };
    let first = sha(&mut desk, "return 'first'");
    desk.reconnect();
    desk.check(&[
        (&format!("EVALSHA {first} 0"), "$5 first"),
        (
            &format!("evalsha {} 0", first.to_ascii_uppercase()),
            "$5 first",
        ),
        (&format!("SCRIPT EXISTS {first} 00"), "*2 :1 :0"),
        ("EVAL 'return ARGV[1]' 0 x", "$1 x"),
        (
            "EVALSHA 098e0f0d1448c0a81dafe820f66d460eb09263da 0 y",
            "$1 y",
        ),
    ]);
    for number in 0..1000 {
        eval(&mut desk, &format!("return {number}"), &[], &[]);
    }
    desk.check(&[
        (
            &format!("EVALSHA {first} 0"),
            "-NOSCRIPT No matching script. Please use EVAL.",
        ),
        ("EVAL 'return 1' 0\nSCRIPT FLUSH", ":1 +OK"),
        (
            "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
            "-NOSCRIPT No matching script. Please use EVAL.",
        ),
    ]);
}

#[test]
fn a_script_reads_large_values_that_are_in_the_store_alone() {
    let mut desk = Desk::new();
    let value = vec![b'v'; 300_000];
    desk.talk(&request(&[b"SET", b"k", &value]), usize::MAX);
    desk.restart();
    assert_eq!(
        eval(&mut desk, "return #redis.call('get', KEYS[1])", &["k"], &[]),
        ":300000"
    );
    assert_eq!(
        eval(
            &mut desk,
            "redis.call('pexpire', KEYS[1], 5000) return #redis.call('get', KEYS[1])",
            &["k"],
            &[]
        ),
        ":300000"
    );
    desk.restart();
    assert_eq!(desk.say("STRLEN k\nPTTL k"), ":300000 :5000");
}

#[test]
fn no_function_of_the_library_crashes_or_escapes_its_bounds() {
    let mut desk = Desk::new();
    for script in [
        // Counts that overflow an int of Lua's.
        "return unpack({},-2147483648,2147483647)",
        "return unpack({1,2,3},0,2147483647)",
        "return unpack({},-2,2147483646)",
        "return unpack({},0/0,3)",
        "return unpack({},1e300,3)",
        "return unpack({},'0','2147483647')",
        // Loops inside of one function.
        "return string.rep('', '2000000000')",
        "return string.rep('', '0x7fffffff')",
        "return table.insert({}, -2000000000, 1)",
        "return table.insert({}, '-2000000000', 1)",
        // A handler that nothing would interrupt.
        "return xpcall(function() while true do end end, function() while true do end end)",
        // Memory outside of Lua's.
        "local t={1,1} for i=1,26 do t={t,t} end return #cjson.encode(t)",
        "local x=string.rep('a',1000000) local t={} for i=1,1500 do t[i]=x end return #cjson.encode(t)",
        "local x=string.rep('a',1000000) local t={} for i=1,2500 do t[i]=x end return redis.call('MGET',unpack(t))",
    ] {
        let answer = eval(&mut desk, script, &[], &[]);
        assert!(answer.starts_with("-ERR "), "{script}: {answer}");
    }
    for (script, answer) in [
        ("return {unpack({1,2,3})}", "*3 :1 :2 :3"),
        ("return {unpack({1,2,3},2)}", "*2 :2 :3"),
        ("return {unpack({1,2,3},'2','2')}", "*1 :2"),
        ("return string.rep('ab', '3')", "$6 ababab"),
        (
            "local t={1,3} table.insert(t,2,2) table.insert(t,4) return t",
            "*4 :1 :2 :3 :4",
        ),
        (
            "local ok, told = xpcall(function() error('x', 0) end, function(e) return e .. 'y' end) return told",
            "$2 xy",
        ),
        (
            "return {xpcall(function() return 1, 2 end, tostring)}",
            "*3 :1 :1 :2",
        ),
        ("return cjson.encode({[2]=1})", "$7 {\"2\":1}"),
    ] {
        assert_eq!(eval(&mut desk, script, &[], &[]), answer, "{script}");
    }
}
