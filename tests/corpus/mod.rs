//! One corpus of text scripts (`tests/scripts`), run on everything that answers: same questions, same answers.

mod answer;
mod command;
mod engine;
mod expected;
mod http;
mod model;
mod resp;
mod runner;
mod script;
mod strings;
mod words;

use std::path::Path;

use runner::{Count, Kind, run};
use script::Script;

/// Everything that answers.
const DRIVERS: &[Kind] = &[
    Kind {
        name: "model",
        create: || Box::new(model::Model::new()),
    },
    Kind {
        name: "swept",
        create: || Box::new(model::Model::swept()),
    },
    Kind {
        name: "engine",
        create: || Box::new(engine::Direct::new()),
    },
    Kind {
        name: "restart",
        create: || Box::new(engine::Direct::restarting()),
    },
    Kind {
        name: "http",
        create: || Box::new(http::Http::new()),
    },
    Kind {
        name: "resp2",
        create: || Box::new(resp::Resp::new(2)),
    },
    Kind {
        name: "resp3",
        create: || Box::new(resp::Resp::new(3)),
    },
];

fn scripts() -> Vec<Script> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let names: Vec<&str> = DRIVERS.iter().map(|kind| kind.name).collect();
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    files.sort();
    assert!(!files.is_empty(), "no scripts in {}", folder.display());
    let parse = |path: &std::path::PathBuf| {
        let name = format!(
            "tests/scripts/{}",
            path.file_name().unwrap().to_string_lossy()
        );
        let text = std::fs::read_to_string(path).unwrap();
        Script::parse(&name, &text, &names).unwrap_or_else(|problem| panic!("{problem}"))
    };
    files.iter().map(parse).collect()
}

/// Runs all scripts on a driver; what did not hold, as text.
fn run_all(name: &str) -> (Count, Vec<String>) {
    let kind = DRIVERS.iter().find(|kind| kind.name == name).unwrap();
    let (count, failures) = run(&scripts(), kind);
    (count, failures.iter().map(ToString::to_string).collect())
}

/// A test for each driver, so that they run side by side.
macro_rules! every_script_holds {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            let (count, reports) = run_all($name);
            println!("{}: {count}, {} failed", $name, reports.len());
            assert!(count.ran > 0, "no script ran on {}", $name);
            assert!(reports.is_empty(), "{} failed\n\n{}", reports.len(), reports.join("\n\n"));
        })*

        #[test]
        fn every_driver_has_its_test() {
            assert_eq!(DRIVERS.iter().map(|kind| kind.name).collect::<Vec<_>>(), [$($name),*]);
        }
    };
}

every_script_holds! {
    every_script_holds_on_the_model "model"
    every_script_holds_on_the_model_with_a_sweeper "swept"
    every_script_holds_on_the_engine "engine"
    every_script_holds_on_an_engine_that_restarts "restart"
    every_script_holds_over_http "http"
    every_script_holds_over_resp2 "resp2"
    every_script_holds_over_resp3 "resp3"
}
