use super::*;

fn form(text: &str) -> String {
    match canonical(text.as_bytes()) {
        Ok(form) => String::from_utf8(form).unwrap(),
        Err(error) => panic!("{text}: {error}"),
    }
}

/// The text has that form, and the form is its own.
fn check(text: &str, expected: &str) {
    assert_eq!(form(text), expected, "{text}");
    assert_eq!(form(expected), expected, "{text}");
}

#[test]
fn members_stand_in_the_order_of_rfc_8785() {
    // RFC 8785, 3.2.3.
    check(
        r#"{
          "\u20ac": "Euro Sign",
          "\r": "Carriage Return",
          "\ufb33": "Hebrew Letter Dalet With Dagesh",
          "1": "One",
          "\ud83d\ude00": "Emoji: Grinning Face",
          "\u0080": "Control",
          "\u00f6": "Latin Small Letter O With Diaeresis"
        }"#,
        &[
            r#"{"\r":"Carriage Return","1":"One","#,
            "\"\u{80}\":\"Control\",",
            r#""ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","#,
            r#""😀":"Emoji: Grinning Face","#,
            "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        ]
        .concat(),
    );
}

#[test]
fn order_and_spacing() {
    let table = [
        (" \t\r\n1\t\r\n ", "1"),
        ("[ ]", "[]"),
        ("{ }", "{}"),
        ("[ 1 , [ 2 , [ ] ] , { } ]", "[1,[2,[]],{}]"),
        (r#"{ "b" : 1 , "a" : 2 }"#, r#"{"a":2,"b":1}"#),
        // A name goes before those it begins, and the empty one before all.
        (
            r#"{"ab":1,"b":2,"a":3,"":4}"#,
            r#"{"":4,"a":3,"ab":1,"b":2}"#,
        ),
        // By what the name says, not by how it is spelled.
        (r#"{"b":1,"\u0061":2}"#, r#"{"a":2,"b":1}"#),
        // Ordered inside unordered, unordered inside ordered, in arrays and side by side.
        (
            r#"{"b":{"c":1,"d":2},"a":0}"#,
            r#"{"a":0,"b":{"c":1,"d":2}}"#,
        ),
        (
            r#"{"a":{"d":1,"c":2},"b":0}"#,
            r#"{"a":{"c":2,"d":1},"b":0}"#,
        ),
        (
            r#"{"z":[{"b":1,"a":{"y":{},"x":[]}},{"d":1,"c":2}],"m":{"f":1,"e":2}}"#,
            r#"{"m":{"e":2,"f":1},"z":[{"a":{"x":[],"y":{}},"b":1},{"c":2,"d":1}]}"#,
        ),
        // The same name again, but in another object.
        (
            r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#,
            r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#,
        ),
    ];
    for (text, expected) in table {
        check(text, expected);
    }
}

#[test]
fn strings_are_escaped_as_rfc_8785_does() {
    let table = [
        // RFC 8785, 3.2.2.
        (
            r#""\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/""#,
            r#""€$\u000f\nA'B\"\\\\\"/""#,
        ),
        (r#""\b\f\n\r\t\"\\\/""#, r#""\b\f\n\r\t\"\\/""#),
        (r#""\u0008\u000c\u000a\u000d\u0009""#, r#""\b\f\n\r\t""#),
        (r#""\u0000\u001F\u001b""#, r#""\u0000\u001f\u001b""#),
        (r#""\u007f\u2028\ufeff""#, "\"\u{7f}\u{2028}\u{feff}\""),
        (r#""\ud83d\ude00\uD83D\uDE00""#, r#""😀😀""#),
        (r#""\ud800\udc00\udbff\udfff""#, "\"\u{10000}\u{10ffff}\""),
        (r#""\ufffe\uffff""#, "\"\u{fffe}\u{ffff}\""),
        // Nothing is normalised: one character or two stays one or two.
        (r#""\u00e9""#, "\"\u{e9}\""),
        (r#""e\u0301""#, "\"e\u{301}\""),
        (r#""""#, r#""""#),
    ];
    for (text, expected) in table {
        check(text, expected);
    }
}

#[test]
fn the_whole_of_rfc_8785_example_but_for_digits_beyond_a_double() {
    // RFC 8785, 3.2.2, has 333333333.3333333 for the first number: rounding is what SPEC 5 rules out.
    check(
        r#"{
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }"#,
        r#"{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
    );
}

#[test]
fn numbers_have_one_spelling_for_each_decimal_value() {
    let table = [
        // canonical                    other spellings of the same value
        ("0", "-0 0.0 -0.000 0e5 -0E-5 0e999999999999999999999"),
        (
            "1",
            "1.0 10e-1 0.1e1 1e0 1E+0 1e-0 100e-2 0.00001e5 1e0000000000000000000000",
        ),
        ("-1", "-1.0 -10e-1"),
        ("10", "1e1 1e+1 1e0000000000000000000001 10.00"),
        ("0.1", "1e-1 0.10 10e-2"),
        ("0.3", "0.30 3e-1"),
        ("9007199254740993", "9007199254740993.0 9007199254740.993e3"),
        ("9007199254740992", "9.007199254740992e15"),
        (
            "0.1000000000000000055511151231257827",
            "1.000000000000000055511151231257827e-1",
        ),
        (
            "1.234567890123456789012345678905e+28",
            "123456789012345678901234567890.5e-1",
        ),
        // Where plain spelling ends (ECMAScript, Number::toString).
        ("100000000000000000000", "1e20 10e19"),
        ("1e+21", "1000000000000000000000 1E21"),
        ("123456789012345680000", "12345678901234568e4"),
        ("0.000001", "1e-6"),
        ("1e-7", "0.0000001 10E-8"),
        ("1.5e-7", "0.00000015"),
        ("-1.2345e+30", "-12345e26"),
        // The exponent is kept, never written out in zeros.
        ("1e+999999999", "10e999999998 0.1e1000000000 1000e999999996"),
        ("1e-999999999", "0.1e-999999998"),
        ("1e+999999999999999999", "0.01e1000000000000000001"),
        ("1e-999999999999999999", "100e-1000000000000000001"),
    ];
    let mut forms = Vec::new();
    for (expected, others) in table {
        check(expected, expected);
        for other in others.split(' ').filter(|other| !other.is_empty()) {
            check(other, expected);
        }
        forms.push(expected);
    }
    let count = forms.len();
    forms.sort();
    forms.dedup();
    assert_eq!(
        forms.len(),
        count,
        "different values must keep different spellings"
    );
}

#[test]
fn a_request_spelled_otherwise_is_the_same_and_a_changed_one_is_not() {
    // Field case FO-06.
    let request = r#"{"id":9007199254740993,"name":"é","lines":[1,2],"to":{"zip":"1","city":"x"}}"#;
    let same = [
        ("identical", request),
        (
            "members reordered",
            r#"{"lines":[1,2],"to":{"zip":"1","city":"x"},"name":"é","id":9007199254740993}"#,
        ),
        (
            "nested members reordered",
            r#"{"id":9007199254740993,"name":"é","lines":[1,2],"to":{"city":"x","zip":"1"}}"#,
        ),
        (
            "spaced",
            "{\n \"id\": 9007199254740993,\n\t\"name\": \"é\",\r\n \"lines\": [1, 2], \"to\": {\"zip\": \"1\", \"city\": \"x\"} }\n",
        ),
        (
            "1 as 1.0",
            r#"{"id":9007199254740993,"name":"é","lines":[1.0,2],"to":{"zip":"1","city":"x"}}"#,
        ),
        (
            "é escaped",
            r#"{"id":9007199254740993,"name":"\u00e9","lines":[1,2],"to":{"zip":"1","city":"x"}}"#,
        ),
    ];
    for (what, text) in same {
        assert_eq!(form(text), form(request), "{what}");
    }
    let other = [
        ("an array reordered", request.replace("[1,2]", "[2,1]")),
        (
            "a large integer changed",
            request.replace("9007199254740993", "9007199254740992"),
        ),
        ("a number as text", request.replace("[1,2]", "[\"1\",2]")),
        ("é in two characters", request.replace('é', "e\u{301}")),
        ("a member gone", request.replace(r#""zip":"1","#, "")),
    ];
    for (what, text) in other {
        assert_ne!(form(&text), form(request), "{what}");
    }
    let repeated = request.replace(r#""name":"é""#, r#""name":"é","id":1"#);
    let at = repeated.rfind("\"id\"").unwrap();
    assert_eq!(
        canonical(repeated.as_bytes()),
        Err(JsonFault::RepeatedMember.at(at))
    );
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    use JsonFault::*;
    let value = Expected("a value");
    let item = Expected("',' or ']' after an item");
    let member = Expected("',' or '}' after a member");
    let name = Expected("a member name in quotes");
    let colon = Expected("':' after a member name");
    let end = Expected("nothing after the value");
    let word = Expected("true, false, null or another value");
    let table: &[(&[u8], JsonFault, usize)] = &[
        (b"", value, 0),
        (b" \n", value, 2),
        (b"\xef\xbb\xbf1", value, 0), // a byte order mark
        (b"\xc2\xa01", value, 0),     // a space JSON does not know
        (b"\x0c1", value, 0),
        (b"\x0b1", value, 0),
        (b"//\n1", value, 0),
        (b"1 2", end, 2),
        (b"{}}", end, 2),
        (b"1,", end, 1),
        (b"1\0", end, 1),
        (b"\0", value, 0),
        (b"[", value, 1),
        (b"]", value, 0),
        (b"[1", item, 2),
        (b"[1 2]", item, 3),
        (b"[1}", item, 2),
        (b"[,]", value, 1),
        (b"[1,]", value, 3),
        (b"{", name, 1),
        (b"{1:2}", name, 1),
        (b"{a:2}", name, 1),
        (b"{'a':2}", name, 1),
        (b"{,}", name, 1),
        (br#"{"a":1,}"#, name, 7),
        (br#"{"a"}"#, colon, 4),
        (br#"{"a",1}"#, colon, 4),
        (br#"{"a":}"#, value, 5),
        (br#"{"a":1"#, member, 6),
        (br#"{"a":1]"#, member, 6),
        (br#"{"a":1 "b":2}"#, member, 7),
        (br#"{"a":1:2}"#, member, 6),
        (b"tru", word, 0),
        (b"True", value, 0),
        (b"nul]", word, 0),
        (b"truee", end, 4),
        (b"NaN", value, 0),
        (b"Infinity", value, 0),
        (b"-Infinity", Number, 1),
        (b"-", Number, 1),
        (b"+1", value, 0),
        (b".5", value, 0),
        (b"01", Number, 0),
        (b"-01", Number, 0),
        (b"00", Number, 0),
        (b"1.", Number, 2),
        (b"1.e1", Number, 2),
        (b"1e", Number, 2),
        (b"1e+", Number, 3),
        (b"1e1.5", end, 3),
        (b"0x10", end, 1),
        (b"1_000", end, 1),
        (b"--1", Number, 1),
        (b"1e1000000000000000000", Exponent, 0),
        (b"[1e-1000000000000000000]", Exponent, 1),
        (b"1e99999999999999999999999999999999999999999", Exponent, 0),
        (
            b"-1e-99999999999999999999999999999999999999999",
            Exponent,
            0,
        ),
        (b"10e999999999999999999", Exponent, 0),
        (b"\"", OpenString, 1),
        (b"\"abc", OpenString, 4),
        (b"\"a\\\"", OpenString, 4),
        (b"\"a\nb\"", ControlCharacter, 2),
        (b"\"\x1f\"", ControlCharacter, 1),
        (b"\"\0\"", ControlCharacter, 1),
        (br#""\x41""#, Escape, 1),
        (br#""\'""#, Escape, 1),
        (br#""\"#, Escape, 1),
        (br#""\u12""#, Escape, 1),
        (br#""\u+123""#, Escape, 1),
        (br#""\u123g""#, Escape, 1),
        (br#""\U0041""#, Escape, 1),
        (br#""a\ud83d""#, LoneSurrogate, 2),
        (br#""\ud83dx""#, LoneSurrogate, 1),
        (br#""\ud83d\n""#, LoneSurrogate, 1),
        (br#""\ud83d\u0041""#, LoneSurrogate, 1),
        (br#""\ud83d\ud83d\ude00""#, LoneSurrogate, 1),
        (br#""\ud83d\u12""#, Escape, 7),
        (br#""\ude00""#, LoneSurrogate, 1),
        (br#""\ude00\ud83d""#, LoneSurrogate, 1),
        (br#"{"\ud800":1}"#, LoneSurrogate, 2),
        (br#"{"a":1,"a":1}"#, RepeatedMember, 7),
        (br#"{"b":1,"a":1,"b":2}"#, RepeatedMember, 13),
        (br#"{"a":1,"b":2,"\u0061":3}"#, RepeatedMember, 13),
        (br#"{"a":1,"b":2,"b":3,"a":4}"#, RepeatedMember, 13),
        (br#"{"":1,"":2}"#, RepeatedMember, 6),
        (br#"[{"x":{"a":[],"a":{}}}]"#, RepeatedMember, 14),
        (b"\"\xff\"", NotUtf8, 1),
        (b"[\"\xc3\"]", NotUtf8, 2),
        (b"\"\xed\xa0\xbd\xed\xb8\x80\"", NotUtf8, 1), // surrogates in UTF-8's manner
        (b"\"\xc0\x80\"", NotUtf8, 1),
        (b"1 \xfe", NotUtf8, 2),
        (b"{\0}", name, 1),
    ];
    for (text, fault, at) in table {
        assert_eq!(
            canonical(text),
            Err(fault.at(*at)),
            "{}",
            text.escape_ascii()
        );
    }
}

#[test]
fn errors_say_what_and_where_and_limits_say_what_to_do() {
    let table = [
        (
            r#"{"a":1,"a":1}"#.to_owned(),
            "send each name once (at byte 7)",
        ),
        (
            "[1e1000000000000000000]".to_owned(),
            "send it as a string (at byte 1)",
        ),
        (
            "[".repeat(129),
            "at most 128 deep; send a flatter text (at byte 128)",
        ),
        (
            "[1".to_owned(),
            "expected ',' or ']' after an item (at byte 2)",
        ),
    ];
    for (text, expected) in table {
        let error = canonical(text.as_bytes()).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn nesting_ends_at_its_limit() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let nested = |depth: usize| [open.repeat(depth), "1".into(), close.repeat(depth)].concat();
        check(&nested(MAX_DEPTH), &nested(MAX_DEPTH));
        let error = JsonFault::TooDeep.at(MAX_DEPTH * open.len());
        assert_eq!(canonical(nested(MAX_DEPTH + 1).as_bytes()), Err(error));
    }
    // Depth is what is open, not what was.
    let flat = format!("[{}[]]", "[],".repeat(1000));
    check(&flat, &flat);
    assert_eq!(
        canonical("[".repeat(1 << 20).as_bytes()),
        Err(JsonFault::TooDeep.at(MAX_DEPTH))
    );
}

/// Shapes on which careless code takes quadratic time or a gigabyte: then this test does not end.
#[test]
fn a_mebibyte_of_anything_is_soon_done() {
    const SIZE: usize = 1 << 20;
    let members = |names: &mut dyn Iterator<Item = u32>| {
        let members: Vec<String> = names.map(|name| format!("\"{name:06}\":1")).collect();
        format!("{{{}}}", members.join(","))
    };
    let sorted = members(&mut (0..100_000));
    check(&sorted, &sorted);
    check(&members(&mut (0..100_000).rev()), &sorted);
    // 7919 is prime, so every number below 100 000 comes up once.
    check(
        &members(&mut (0..100_000).map(|n| n * 7919 % 100_000)),
        &sorted,
    );
    let repeated = members(&mut (0..100_000).chain([0]));
    assert!(canonical(repeated.as_bytes()).is_err());

    // Names that differ in their last character only.
    let long = "x".repeat(8 << 10);
    let names: Vec<String> = (0..128)
        .rev()
        .map(|n| format!("\"{long}{n:03}\":1"))
        .collect();
    let back: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    check(
        &format!("{{{}}}", names.join(",")),
        &format!("{{{}}}", back.join(",")),
    );

    // Unordered objects in each other as deep as may be, around something large.
    let large = format!("\"{}\"", "y".repeat(SIZE));
    let around = |open: &str, close: &str| {
        [
            open.repeat(MAX_DEPTH),
            large.clone(),
            close.repeat(MAX_DEPTH),
        ]
        .concat()
    };
    check(
        &around(r#"{"b":"#, r#","a":1}"#),
        &around(r#"{"a":1,"b":"#, "}"),
    );

    let ones = format!("[{}1]", "1,".repeat(SIZE / 2));
    check(&ones, &ones);
    let digits = "123456789".repeat(SIZE / 9);
    check(
        &digits,
        &format!("1.{}e+{}", &digits[1..], digits.len() - 1),
    );
    let zeros = "0".repeat(SIZE);
    check(&format!("1{zeros}"), &format!("1e+{SIZE}"));
    check(&format!("1{zeros}e-{SIZE}"), "1");
    check(&format!("0.{zeros}1"), &format!("1e-{}", SIZE + 1));
    check(&format!("0.{zeros}"), "0");
    check(&format!("1e{zeros}1"), "10");
    check(&format!("{}1{0}", " ".repeat(SIZE)), "1");
    check(
        &format!("\"{}\"", "\\u0041".repeat(SIZE / 6)),
        &format!("\"{}\"", "A".repeat(SIZE / 6)),
    );
}
