//! Keys and namespaces: any bytes, decoded exactly once, the same from every side (FO-07, FO-08, FO-20).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::House;

/// Every byte escaped: what a careful client sends.
fn escaped(key: &[u8]) -> String {
    key.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// The key an answer shows.
fn shown(json: &serde_json::Value) -> Vec<u8> {
    match json.get("key").and_then(|key| key.as_str()) {
        Some(key) => key.as_bytes().to_vec(),
        None => STANDARD
            .decode(json["key_base64"].as_str().unwrap())
            .unwrap(),
    }
}

const ODD: &[&[u8]] = &[
    b"a/b",
    b"a%2Fb",
    b"a%252Fb",
    b"a%2fb",
    b".",
    b"..",
    b"a//b",
    b"a?b#c",
    b"a b",
    b"a+b",
    b"%",
    b"-",
    b"complete",
    "é".as_bytes(),
    "🦀".as_bytes(),
    b"a\nb",
    b"\0",
    b"\xff",
    b"\xc3",
    b"a",
    b"A",
    b" a",
    b"\"\\",
];

#[tokio::test]
async fn every_key_is_one_record_by_path_and_by_query() {
    let house = House::new();
    let mut tokens = BTreeSet::new();
    for key in ODD {
        let path = format!("/v1/claims/ns/{}", escaped(key));
        let query = format!("/v1/claims/ns/-?key={}", escaped(key));
        let claimed = house.ask("POST", &path).await;
        assert_eq!(claimed.status, 201, "{}", key.escape_ascii());
        assert_eq!(shown(&claimed.json()), *key);
        assert!(tokens.insert(claimed.token()), "no two keys merge");
        for target in [&path, &query] {
            let got = house.ask("GET", target).await;
            assert_eq!(got.token(), claimed.token(), "{target}");
            assert_eq!(shown(&got.json()), *key, "{target}");
        }
        assert_eq!(house.ask("POST", &query).await.status, 409);
    }
    assert_eq!(tokens.len(), ODD.len());
    let listed = house.ask("GET", "/v1/claims/ns").await.json();
    let listed: BTreeSet<_> = listed["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(shown)
        .collect();
    assert_eq!(listed, ODD.iter().map(|key| key.to_vec()).collect());
}

#[tokio::test]
async fn a_key_that_is_not_utf_8_is_shown_as_base64() {
    let house = House::new();
    let json = house.ask("POST", "/v1/claims/ns/%FF%00").await.json();
    assert_eq!(json["key_base64"], "/wA=");
    assert!(json.get("key").is_none());
}

#[tokio::test]
async fn what_needs_no_escape_may_stand_as_it_is() {
    let house = House::new();
    // (written by one client, by another, the key)
    let table: &[(&str, &str, &[u8])] = &[
        ("/v1/claims/ns/..", "/v1/claims/ns/%2E%2e", b".."),
        ("/v1/claims/ns/.", "/v1/claims/ns/-?key=.", b"."),
        ("/v1/claims/ns/a+b", "/v1/claims/ns/-?key=a%2Bb", b"a+b"),
        ("/v1/claims/ns/a%20b", "/v1/claims/ns/-?key=a+b", b"a b"),
        ("/v1/claims/ns/a%2Fb", "/v1/claims/ns/-?key=a/b", b"a/b"),
        ("/v1/claims/ns/-", "/v1/claims/ns/%2D", b"-"),
        ("/v1/claims/ns/a=b&c", "/v1/claims/ns/a%3Db%26c", b"a=b&c"),
        (
            "/v1/claims/ns/a;b,c:d@e!",
            "/v1/claims/ns/-?key=a;b,c:d@e!",
            b"a;b,c:d@e!",
        ),
    ];
    for (one, other, key) in table {
        let claimed = house.ask("POST", one).await;
        assert_eq!(shown(&claimed.json()), *key, "{one}");
        let again = house.ask("POST", other).await;
        assert_eq!(again.outcome(), "busy", "{other}");
        assert_eq!(shown(&again.json()), *key, "{other}");
    }
}

#[tokio::test]
async fn keys_work_up_to_the_limit_and_are_never_cut() {
    let house = House::new();
    for size in [1, 40, 255, 256, 511, 512, 1023, 1024] {
        let key = "k".repeat(size);
        for target in [
            format!("/v1/claims/long/{key}"),
            format!("/v1/claims/query/-?key={key}"),
        ] {
            let reply = house.ask("POST", &target).await;
            assert_eq!((reply.status, shown(&reply.json()).len()), (201, size));
        }
    }
    for size in [1025, 4096, 12_000] {
        let key = "k".repeat(size);
        let reply = house.ask("POST", &format!("/v1/claims/long/{key}")).await;
        reply.assert_problem(400, "bad_input");
        let detail = reply.detail();
        assert!(detail.contains("1024") && detail.contains(&size.to_string()));
    }
    for shared in [40, 255, 512, 1023] {
        for end in ["x", "y"] {
            let key = format!("{}{end}", "p".repeat(shared));
            let reply = house.ask("POST", &format!("/v1/claims/pairs/{key}")).await;
            assert_eq!(reply.status, 201, "{shared} bytes in common are two keys");
        }
    }
}

#[tokio::test]
async fn bad_escapes_empty_keys_and_foreign_namespaces_are_bad_input() {
    let house = House::new();
    let table = [
        ("/v1/claims/ns/a%", "two hex digits"),
        ("/v1/claims/ns/%zz", "two hex digits"),
        ("/v1/claims/ns/%2", "two hex digits"),
        ("/v1/claims/n%zz/k", "two hex digits"),
        ("/v1/claims/ns/-?key=%", "two hex digits"),
        ("/v1/claims/ns/", "at least 1 byte"),
        ("/v1/claims/ns/-?key=", "key is empty"),
        ("/v1/claims/ns/k?key=other", "where the path says `-`"),
        ("/v1/claims//k", "a namespace is"),
        ("/v1/claims/NS/k", "a namespace is"),
        ("/v1/claims/n%00s/k", "a namespace is"),
        ("/v1/claims/n%FFs/k", "a namespace is"),
        ("/v1/claims/../k", "a namespace is"),
    ];
    for (target, expected) in table {
        let reply = house.ask("POST", target).await;
        reply.assert_problem(400, "bad_input");
        assert!(
            reply.detail().contains(expected),
            "{target}: {}",
            reply.detail()
        );
    }
    let records = house.ask("GET", "/v1/claims/ns").await.json();
    assert_eq!(
        records["records"].as_array().unwrap().len(),
        0,
        "nothing was stored"
    );
}

#[tokio::test]
async fn namespaces_never_meet() {
    let house = House::new();
    for target in [
        "/v1/claims/a/b-c",
        "/v1/claims/a-b/c",
        "/v1/claims/a/b%00c",
        "/v1/claims/b/c",
    ] {
        assert_eq!(house.ask("POST", target).await.status, 201, "{target}");
    }
}

#[tokio::test]
async fn a_listing_goes_through_all_keys_in_order() {
    let house = House::new();
    let keys: &[&[u8]] = &[b"\0", b"a", b"a/1", b"a/2", b"a\xff", b"b"];
    for key in keys {
        let target = format!("/v1/claims/ns/{}?mode=once&result=r", escaped(key));
        house.ask("POST", &target).await;
    }
    for limit in 1..=7 {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let target = format!("/v1/claims/ns?limit={limit}{cursor}");
            let page = house.ask("GET", &target).await.json();
            let records = page["records"].as_array().unwrap();
            assert!(records.len() <= limit);
            assert!(
                records
                    .iter()
                    .all(|record| record["result"].get("body").is_none())
            );
            seen.extend(records.iter().map(shown));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, keys, "by {limit}");
    }
    let table = [
        ("prefix=a", 4),
        ("prefix=a/", 2),
        ("prefix=a%FF", 1),
        ("state=done", 6),
        ("state=pending", 0),
        ("due=true", 0),
        ("due=false&limit=1000", 6),
    ];
    for (query, count) in table {
        let page = house
            .ask("GET", &format!("/v1/claims/ns?{query}"))
            .await
            .json();
        assert_eq!(page["records"].as_array().unwrap().len(), count, "{query}");
        assert!(page["next"].is_null());
    }
}
