//! `onced config`: what would be in force, and who said so.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use serde_json::{Value, json};

use super::{Exit, Failure, show};
use crate::config::shown::{Line, Said, Token, lines, tokens};
use crate::config::{self, Settings};

/// Print what `onced serve` with these arguments would have in force, and where each value comes from
#[derive(Args, Debug)]
pub(super) struct Config {
    /// The configuration file [default: /etc/onced/onced.toml, if there is one]
    #[arg(long, env = "ONCED_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: Settings,
}

impl Config {
    pub(super) fn run(self, matches: &ArgMatches) -> Result<Exit, Failure> {
        let config = config::resolve(self.settings, self.config.as_deref())?;
        let file = config::file_in_use(self.config.as_deref());
        // It was read a moment ago; if it has gone meanwhile, its lines are not told.
        let file = file.and_then(|path| {
            let text = std::fs::read_to_string(path).ok()?;
            Some((path.to_owned(), text))
        });
        let said = |id: &str| {
            let (_, own) = matches.subcommand()?;
            match own.value_source(id)? {
                ValueSource::CommandLine => Some(Said::Flag),
                ValueSource::EnvVariable => Some(Said::Environment),
                _ => None,
            }
        };
        let name = file.as_ref().map(|(path, _)| path.display().to_string());
        let lines = lines(&config, said, file);
        let tokens = tokens(&config);
        let text = match self.json {
            true => as_json(name, &lines, &tokens),
            false => as_toml(&lines, &tokens),
        };
        show::print(text.as_bytes())?;
        Ok(Exit::Success)
    }
}

/// The file that would say the same, tokens apart: their hashes are in the file that has them.
fn as_toml(lines: &[Line], tokens: &[Token]) -> String {
    let mut out = String::new();
    for Line { key, value, source } in lines {
        match value {
            Some(value) => out.push_str(&format!("{key} = {value}  # {source}\n")),
            None => out.push_str(&format!("# {key} is not set  # {source}\n")),
        }
    }
    for token in tokens {
        let namespaces = match &token.namespaces {
            Some(names) => names.join(", "),
            None => "all namespaces".to_owned(),
        };
        let (name, rights) = (&token.name, token.rights.join(", "));
        out.push_str(&format!("# token {name}: {rights}; {namespaces}\n"));
    }
    out
}

fn as_json(file: Option<String>, lines: &[Line], tokens: &[Token]) -> String {
    let value = |text: &Option<String>| match text {
        // Values of the file are values of JSON.
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str())),
        None => Value::Null,
    };
    let settings: Vec<Value> = (lines.iter())
        .map(|line| {
            json!({
                "key": line.key,
                "value": value(&line.value),
                "from": line.source.kind(),
                "where": line.source.to_string(),
            })
        })
        .collect();
    let tokens: Vec<Value> = (tokens.iter())
        .map(|it| json!({"name": it.name, "rights": it.rights, "namespaces": it.namespaces}))
        .collect();
    let all = json!({"file": file, "settings": settings, "tokens": tokens});
    format!("{all}\n")
}
