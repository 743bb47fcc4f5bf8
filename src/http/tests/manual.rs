//! The manual over HTTP, and that every problem document leads into it.

use super::House;
use crate::http::problem::{PROBLEMS, Problem};
use crate::manual::{CHAPTERS, problem};

fn header<'r>(reply: &'r super::Reply, name: &str) -> &'r str {
    reply
        .headers
        .get(name)
        .map_or("", |value| value.to_str().expect("text"))
}

#[tokio::test]
async fn every_chapter_is_there_and_the_list_leads_to_it() {
    let house = House::new();
    let list = house.ask("GET", "/manual").await;
    let text = String::from_utf8(list.body.to_vec()).expect("text");
    assert_eq!(list.status, 200);
    for chapter in CHAPTERS {
        let path = format!("/manual/{}", chapter.name);
        assert!(
            text.contains(&format!("[{}]({path})", chapter.title())),
            "{path}"
        );
        let reply = house.ask("GET", &path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.body, chapter.text.as_bytes(), "{path}");
        assert_eq!(
            header(&reply, "content-type"),
            "text/markdown; charset=utf-8"
        );
    }
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let reply = house.send("GET", "/manual/start", &browser, "").await;
    assert_eq!(header(&reply, "content-type"), "text/plain; charset=utf-8");
}

#[tokio::test]
async fn a_typo_is_told_the_nearest_chapter() {
    let house = House::new();
    let reply = house.ask("GET", "/manual/garantees").await;
    assert_eq!(reply.status, 404);
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(text.contains("/manual/guarantees"), "{text}");
    let reply = house.ask("GET", "/manual/problems/nonsense").await;
    assert_eq!(reply.status, 404);
    let reply = house.ask("GET", "/manual/..%2Fstart").await;
    assert_eq!(reply.status, 404);
}

#[tokio::test]
async fn the_type_of_every_problem_resolves() {
    let house = House::new();
    for Problem { outcome, .. } in PROBLEMS {
        let section = problem(outcome).unwrap_or_else(|| panic!("no section on {outcome}"));
        let reply = house
            .ask("GET", &format!("/manual/problems/{outcome}"))
            .await;
        assert_eq!((reply.status, &reply.body[..]), (200, section.as_bytes()));
        assert!(section.lines().count() > 2, "{outcome}: it says what to do");
    }
    let refused = house.ask("GET", "/v1/claims/ns/none").await;
    let json: serde_json::Value = serde_json::from_slice(&refused.body).expect("JSON");
    let path = json["type"].as_str().expect("a type");
    assert_eq!(house.ask("GET", path).await.status, 200);
}
