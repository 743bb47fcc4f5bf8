//! Canonical JSON against a library's reader, over mutated texts.

use onced::model::json::{JsonFault, canonical};
use serde_json::Value;

const SEEDS: &[&str] = &[
    r#"{"b":[1,-2.5e-3,{"z":null,"\u0061":true}],"a":{"y":"\ud83d\ude00","x":"\\\"\/\n"},"":false}"#,
    r#"[[],{},"",0,-0,1e5,0.1E+10,[[{"k":[{"k":{}}]}]],"é€😀"]"#,
    " {\t\"one\" :\r\n 1 , \"two\" : [ true , false ] } ",
    "123456789012345678901234567890.5e-1",
];
/// What mutations insert: all that the grammar knows, and what it does not.
const BYTES: &[u8] = b"{}[]:,\"\\/ \t\n0129-+.eEtrufalsnbdcABD\x00\x1f\x7f\x80\xbf\xc3\xed\xf0\xff";

/// Whatever the bytes: no panic; accepted exactly where the library accepts, but for what is refused on
/// purpose; and a form keeps its meaning and is its own form.
#[test]
fn mutated_texts_are_read_as_a_library_reads_them() {
    let seed: u64 = std::env::var("SEED").map_or(20_260_102, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut random = Random(seed);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let mut text = SEEDS[random.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            mutate(&mut text, &mut random);
        }
        if check(&text) {
            accepted += 1
        } else {
            refused += 1
        }
    }
    assert!(
        accepted > 1000 && refused > 1000,
        "{accepted} accepted, {refused} refused"
    );
}

fn check(text: &[u8]) -> bool {
    let shown = text.escape_ascii();
    match (canonical(text), serde_json::from_slice::<Value>(text)) {
        (Ok(form), library) => {
            assert_eq!(canonical(&form).as_ref(), Ok(&form), "{shown}");
            match (library, serde_json::from_slice(&form)) {
                (Ok(said), Ok(says)) => assert!(same(&said, &says), "{shown}: {says}"),
                // The library reads numbers into floats, which end at about 1e308.
                (library, _) => {
                    let error = library.expect_err(&shown.to_string()).to_string();
                    assert!(error.contains("out of range"), "{shown}: {error}");
                }
            }
            true
        }
        (Err(error), library) => {
            assert!(error.at <= text.len(), "{shown}: {error}");
            let on_purpose = matches!(error.fault, JsonFault::RepeatedMember | JsonFault::Exponent);
            assert!(on_purpose || library.is_err(), "{shown}: {error}");
            false
        }
    }
}

/// Equal, numbers but for what floats lose.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= a.abs() * 1e-14,
            _ => false,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
        }
        _ => a == b,
    }
}

fn mutate(text: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(text.len() + 1);
    let end = (at + random.below(8)).min(text.len());
    match random.below(4) {
        0 => drop(text.drain(at..end)),
        1 => text.insert(at, BYTES[random.below(BYTES.len())]),
        2 => {
            if let Some(byte) = text.get_mut(at) {
                *byte = BYTES[random.below(BYTES.len())];
            }
        }
        _ => {
            let piece = text[at..end].to_vec();
            let to = random.below(text.len() + 1);
            text.splice(to..to, piece);
        }
    }
}

/// xorshift64*: repeatable from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.max(1);
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}
