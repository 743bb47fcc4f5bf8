//! `/openapi.json`: the route table, whole, and nothing that leads nowhere.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::House;
use crate::http::openapi::answers;
use crate::http::problem::{PROBLEMS, status};
use crate::http::routes::ROUTES;
use crate::model::outcome::{Conflict, Reason, Verdict};

fn document() -> Value {
    serde_json::from_slice(&crate::http::openapi::document()).unwrap()
}

#[tokio::test]
async fn the_document_is_served_and_the_file_beside_the_packages_is_the_same() {
    let house = House::new();
    let reply = house.ask("GET", "/openapi.json").await;
    assert_eq!((reply.status, reply.outcome()), (200, "ok"));
    assert_eq!(reply.header("content-type"), "application/json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/openapi.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &reply.body).unwrap();
    } else {
        let kept = std::fs::read(path).unwrap();
        assert!(kept == reply.body, "UPDATE=1 cargo test writes it anew");
    }
}

#[test]
fn every_route_is_there_with_its_parameters_and_every_answer_with_a_body_that_is_described() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut operations = 0;
    for route in ROUTES {
        let method = route.method.as_str().to_ascii_lowercase();
        let operation = &document["paths"][route.pattern()][&method];
        let what = format!("{} {}", route.method, route.pattern());
        operations += 1;
        let listed = operation["parameters"].as_array().expect(&what);
        for param in route.params {
            let found = listed
                .iter()
                .find(|it| it["name"] == param.name && it["in"] == "query");
            let found = found.unwrap_or_else(|| panic!("{what}: {}", param.name));
            assert_eq!(found["required"], param.required, "{what}");
        }
        let in_path = route.pattern().matches('{').count();
        assert_eq!(listed.len(), route.params.len() + in_path, "{what}");
        for told in answers::of(route) {
            let response = &operation["responses"][told.status.to_string()];
            let outcomes = &response["headers"]["Onced-Outcome"]["schema"]["enum"];
            let outcomes = outcomes.as_array().expect(&what);
            assert!(outcomes.contains(&told.outcome.into()), "{what}: {told:?}");
            for media in told.shape.media() {
                assert!(response["content"].get(media).is_some(), "{what}: {told:?}");
            }
        }
    }
    let paths = document["paths"].as_object().unwrap().values();
    let all: usize = paths.map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(all, operations, "two routes of one path and method");
    let ids: BTreeSet<String> = (document["paths"].as_object().unwrap().values())
        .flat_map(|path| path.as_object().unwrap().values())
        .map(|operation| operation["operationId"].to_string())
        .collect();
    assert_eq!(ids.len(), operations, "operations are told apart");
}

#[test]
fn every_reference_leads_somewhere_and_no_schema_is_left_over() {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(name)) = members.get("$ref") {
                    found.insert(name.clone());
                }
                members.values().for_each(|value| walk(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    walk(&document, &mut found);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let there = schemas
        .keys()
        .map(|name| format!("#/components/schemas/{name}"));
    assert_eq!(found, there.collect());
}

#[tokio::test]
async fn what_a_problem_is_leads_into_the_manual() {
    let house = House::new();
    let document = document();
    let types = &document["components"]["schemas"]["Problem"]["properties"]["type"]["enum"];
    for path in types.as_array().unwrap() {
        let reply = house.ask("GET", path.as_str().unwrap()).await;
        assert_eq!(reply.status, 200, "{path}");
    }
}

#[test]
fn every_refusal_of_a_decision_has_a_status_of_its_kind() {
    let table = [
        Verdict::Busy,
        Verdict::Backoff,
        Verdict::InDoubt,
        Verdict::Dead,
        Verdict::Mismatch,
        Verdict::Conflict(Conflict::OtherResult),
        Verdict::Stale,
        Verdict::NotFound,
        Verdict::OutOfTokens,
    ];
    for verdict in table {
        let problem = PROBLEMS.iter().find(|it| it.outcome == verdict.name());
        let statuses = problem.map_or(&[][..], |problem| problem.statuses);
        assert!(
            statuses.contains(&status(&verdict).as_u16()),
            "{verdict:?}: {statuses:?}"
        );
    }
    assert_eq!(status(&Verdict::Acquired(Reason::New)).as_u16(), 201);
}
