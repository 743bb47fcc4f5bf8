//! The manual over HTTP: the text as it is, Markdown.

use hyper::header::{ACCEPT, HeaderValue};
use hyper::http::request::Parts;

use super::answer::Answer;
use super::problem::Refusal;
use super::routes::Action;
use crate::manual::{CHAPTERS, chapter, nearest, problem};

/// Answers what `action` asks, `name` being what the path names.
pub(super) fn answer(action: Action, name: &str, parts: &Parts) -> Result<Answer, Refusal> {
    let text = match action {
        Action::Chapter => chapter(name)
            .map(|chapter| chapter.text.to_owned())
            .ok_or_else(|| unknown(name))?,
        Action::Problem => problem(name).map(str::to_owned).ok_or_else(|| {
            Refusal::not_found("there is no such outcome; /manual/problems describes all of them")
        })?,
        _ => contents(),
    };
    Ok(Answer::text(text, media(parts)))
}

fn contents() -> String {
    let line = |chapter: &crate::manual::Chapter| {
        format!("- [{}](/manual/{})\n", chapter.title(), chapter.name)
    };
    let lines: String = CHAPTERS.iter().map(line).collect();
    format!(
        "# The manual of onced {}\n\n{lines}",
        env!("CARGO_PKG_VERSION")
    )
}

fn unknown(name: &str) -> Refusal {
    Refusal::not_found(match nearest(name) {
        Some(name) => format!("there is no such chapter; did you mean /manual/{name}?"),
        None => "there is no such chapter; /manual lists all of them".to_owned(),
    })
}

/// Browsers offer Markdown for download, and show the same text when it is called plain.
fn media(parts: &Parts) -> HeaderValue {
    let accept = parts.headers.get(ACCEPT).map(HeaderValue::as_bytes);
    let browser = accept.is_some_and(|accept| {
        accept
            .windows(b"text/html".len())
            .any(|part| part.eq_ignore_ascii_case(b"text/html"))
    });
    HeaderValue::from_static(if browser {
        "text/plain; charset=utf-8"
    } else {
        "text/markdown; charset=utf-8"
    })
}
