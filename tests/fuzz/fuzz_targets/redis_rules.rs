//! String commands against the rules of Redis, written here once more from its documentation: the same replies,
//! byte for byte, also as time passes.

#![no_main]

mod house;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use onced::model::time::Span;
use onced::resp::{Face, Flow, NxWithoutExpiry, Options, Session};

use house::House;

/// Strings with their ends, as the documentation of Redis has them.
#[derive(Default)]
struct Rules {
    now: u64,
    strings: BTreeMap<u8, (Vec<u8>, Option<u64>)>,
}

const OK: &str = "+OK\r\n";
const NULL: &str = "$-1\r\n";
const NOT_A_NUMBER: &str = "-ERR value is not an integer or out of range\r\n";
const OVERFLOW: &str = "-ERR increment or decrement would overflow\r\n";

fn bulk(bytes: &[u8]) -> String {
    format!("${}\r\n{}\r\n", bytes.len(), String::from_utf8_lossy(bytes))
}

fn number(number: i64) -> String {
    format!(":{number}\r\n")
}

impl Rules {
    fn get(&mut self, key: u8) -> Option<&(Vec<u8>, Option<u64>)> {
        let now = self.now;
        let over = |(_, end): &(Vec<u8>, Option<u64>)| end.is_some_and(|end| end <= now);
        if self.strings.get(&key).is_some_and(over) {
            self.strings.remove(&key);
        }
        self.strings.get(&key)
    }

    fn value(&mut self, key: u8) -> Option<Vec<u8>> {
        self.get(key).map(|(value, _)| value.clone())
    }

    fn show(&mut self, key: u8) -> String {
        self.value(key)
            .map_or(NULL.to_owned(), |value| bulk(&value))
    }

    fn add(&mut self, key: u8, by: i64) -> String {
        let (value, end) = self.get(key).cloned().unwrap_or((b"0".to_vec(), None));
        // Redis takes a number as it would write it itself, and no other spelling.
        let text = String::from_utf8_lossy(&value).into_owned();
        let Some(now) = text
            .parse::<i64>()
            .ok()
            .filter(|now| now.to_string() == text)
        else {
            return NOT_A_NUMBER.to_owned();
        };
        let Some(sum) = now.checked_add(by) else {
            return OVERFLOW.to_owned();
        };
        self.strings
            .insert(key, (sum.to_string().into_bytes(), end));
        number(sum)
    }

    fn expire(&mut self, key: u8, milliseconds: i64, when: Option<&str>) -> String {
        let now = self.now;
        let Some((_, end)) = self.get(key).cloned() else {
            return number(0);
        };
        let new = i128::from(now) + i128::from(milliseconds);
        let later = |end: u64| new > i128::from(end);
        // No end at all is later than any.
        let may = match when {
            None => true,
            Some("NX") => end.is_none(),
            Some("XX") => end.is_some(),
            Some("GT") => end.is_some_and(later),
            Some(_) => end.is_none_or(|end| new < i128::from(end)),
        };
        if !may {
            return number(0);
        }
        if milliseconds <= 0 {
            self.strings.remove(&key);
        } else if let Some((_, end)) = self.strings.get_mut(&key) {
            *end = u64::try_from(new).ok();
        }
        number(1)
    }

    fn left(&mut self, key: u8, unit: u64) -> String {
        let now = self.now;
        number(match self.get(key) {
            None => -2,
            Some((_, None)) => -1,
            Some((_, Some(end))) => ((end - now + unit / 2) / unit) as i64,
        })
    }

    fn set(
        &mut self,
        key: u8,
        value: &[u8],
        how: u8,
        get: bool,
        end: Option<u64>,
        keep: bool,
    ) -> String {
        let before = self.get(key).cloned();
        let may = match how {
            1 => before.is_none(),
            2 => before.is_some(),
            _ => true,
        };
        let shown = before
            .as_ref()
            .map_or(NULL.to_owned(), |(value, _)| bulk(value));
        if may {
            let end = if keep {
                before.and_then(|(_, end)| end)
            } else {
                end
            };
            self.strings.insert(key, (value.to_vec(), end));
        }
        match (get, may) {
            (true, _) => shown,
            (false, true) => OK.to_owned(),
            (false, false) => NULL.to_owned(),
        }
    }
}

/// Chance from the input.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

const VALUES: [&str; 10] = [
    "v",
    "",
    "0",
    "41",
    "-7",
    "9223372036854775807",
    "-9223372036854775808",
    "007",
    "1.5",
    "+3",
];
/// Ends in milliseconds. Whole seconds where a command takes those.
const ENDS: [i64; 6] = [1000, 2000, 60_000, 1, 1500, 86_400_000];

thread_local! {
    static HOUSE: RefCell<(Option<House>, u64)> = const { RefCell::new((None, 0)) };
}

fuzz_target!(|data: &[u8]| {
    HOUSE.with_borrow_mut(|(house, run)| {
        let house = house.get_or_insert_with(House::new);
        house.visit();
        *run += 1;
        compare(house, *run, data);
    });
});

fn compare(house: &House, run: u64, data: &[u8]) {
    let face = Arc::new(Face::new(Options {
        nx_without_expiry: NxWithoutExpiry::Forever,
        ..Options::default()
    }));
    let mut session = Session::new(face, "peer".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let mut rules = Rules::default();
    let mut input = Bytes(data);
    while let Some((words, expected)) = step(&mut input, &mut rules, house) {
        // Keys of this run alone.
        let words: Vec<String> = words
            .into_iter()
            .map(|word| match word.strip_prefix("key") {
                Some(key) => format!("{run}-{key}"),
                None => word,
            })
            .collect();
        let mut wire = BytesMut::from(format!("*{}\r\n", words.len()).as_bytes());
        for word in &words {
            wire.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        let mut output = BytesMut::new();
        let flow = runtime.block_on(session.serve(&house.engine, &mut wire, &mut output));
        assert_eq!(flow, Flow::Continue, "{words:?}");
        let got = String::from_utf8_lossy(&output);
        assert_eq!(got, expected, "{words:?} at {}", rules.now);
    }
}

/// The next command and the reply that Redis gives; time may pass before it.
fn step(input: &mut Bytes<'_>, rules: &mut Rules, house: &House) -> Option<(Vec<String>, String)> {
    let command = input.next()?;
    let key = input.next()? % 3;
    let value = input.next()?;
    let option = input.next()?;
    let text = VALUES[usize::from(value) % VALUES.len()];
    let end = ENDS[usize::from(option) % ENDS.len()];
    let name = format!("key{key}");
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let other = (key + 1) % 3;
    let other_name = format!("key{other}");
    let after = |rules: &Rules, end: i64| Some(rules.now + end as u64);
    Some(match command % 20 {
        0 => {
            let passed = [1, 999, 1000, 70_000][usize::from(value) % 4];
            house.clock.advance(Span::from_millis(passed));
            rules.now += passed;
            (words(&["GET", &name]), rules.show(key))
        }
        1 | 2 => {
            let mut line = words(&["SET", &name, text]);
            let how = option % 3;
            match how {
                1 => line.push("NX".to_owned()),
                2 => line.push("xx".to_owned()),
                _ => {}
            }
            let get = option & 0x10 != 0;
            if get {
                line.push("GET".to_owned());
            }
            let (expiry, keep) = match option >> 6 {
                1 => {
                    line.extend(words(&["PX", &end.to_string()]));
                    (after(rules, end), false)
                }
                2 => {
                    line.extend(words(&["EX", &(end / 1000 + 1).to_string()]));
                    (after(rules, (end / 1000 + 1) * 1000), false)
                }
                3 => {
                    line.push("KEEPTTL".to_owned());
                    (None, true)
                }
                _ => (None, false),
            };
            (
                line,
                rules.set(key, text.as_bytes(), how, get, expiry, keep),
            )
        }
        3 => (words(&["GET", &name]), rules.show(key)),
        4 => {
            let set = rules.value(key).is_none();
            if set {
                rules.set(key, text.as_bytes(), 0, false, None, false);
            }
            (words(&["SETNX", &name, text]), number(i64::from(set)))
        }
        5 => {
            let shown = rules.show(key);
            rules.set(key, text.as_bytes(), 0, false, None, false);
            (words(&["GETSET", &name, text]), shown)
        }
        6 => {
            let shown = rules.show(key);
            rules.strings.remove(&key);
            (words(&["GETDEL", &name]), shown)
        }
        7 => (words(&["INCR", &name]), rules.add(key, 1)),
        8 => (words(&["DECR", &name]), rules.add(key, -1)),
        9 => {
            let by = i64::from(value) * i64::from(option) - 7000;
            (
                words(&["INCRBY", &name, &by.to_string()]),
                rules.add(key, by),
            )
        }
        10 => {
            let length = rules.value(key).map_or(0, |value| value.len());
            (words(&["STRLEN", &name]), number(length as i64))
        }
        11 => {
            let mut gone = 0;
            for key in [key, other] {
                gone += i64::from(rules.value(key).is_some());
                rules.strings.remove(&key);
            }
            (words(&["DEL", &name, &other_name]), number(gone))
        }
        12 => {
            let there = i64::from(rules.value(key).is_some());
            let both = 2 * there + i64::from(rules.value(other).is_some());
            (words(&["EXISTS", &name, &name, &other_name]), number(both))
        }
        13 | 14 => {
            let when =
                [None, Some("NX"), Some("XX"), Some("GT"), Some("LT")][usize::from(value) % 5];
            let milliseconds = if value > 200 { -end } else { end };
            let mut line = words(&["PEXPIRE", &name, &milliseconds.to_string()]);
            line.extend(when.map(str::to_owned));
            (line, rules.expire(key, milliseconds, when))
        }
        15 => (words(&["TTL", &name]), rules.left(key, 1000)),
        16 => (words(&["PTTL", &name]), rules.left(key, 1)),
        17 => {
            rules.get(key);
            let persists = match rules.strings.get_mut(&key) {
                Some((_, end)) => end.take().is_some(),
                None => false,
            };
            (words(&["PERSIST", &name]), number(i64::from(persists)))
        }
        18 => {
            let kind = if rules.value(key).is_some() {
                "string"
            } else {
                "none"
            };
            (words(&["TYPE", &name]), format!("+{kind}\r\n"))
        }
        _ => {
            let line = words(&["MSETNX", &name, text, &other_name, "w"]);
            let free = rules.value(key).is_none() && rules.value(other).is_none();
            if free {
                rules.set(key, text.as_bytes(), 0, false, None, false);
                rules.set(other, b"w", 0, false, None, false);
            }
            (line, number(i64::from(free)))
        }
    })
}
