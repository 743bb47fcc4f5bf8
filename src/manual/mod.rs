//! The manual: its chapters are part of the binary, so that they are those of the version that runs. Faces show
//! them; the tests play their transcripts and keep their tables current.

/// A chapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// What it is asked for by.
    pub name: &'static str,
    /// Markdown; the first line is its title.
    pub text: &'static str,
}

macro_rules! chapters {
    ($($name:literal),+ $(,)?) => {
        &[$(Chapter { name: $name, text: include_str!(concat!($name, ".md")) }),+]
    };
}

/// Every chapter, in reading order.
pub const CHAPTERS: &[Chapter] = chapters![
    "start",
    "http",
    "redis",
    "from-redis",
    "recipes",
    "cli",
    "run",
    "events",
    "problems",
    "limits",
    "service",
    "operating",
    "access",
    "guarantees",
    "upgrading",
    "testing",
];

impl Chapter {
    /// Its title.
    #[must_use]
    pub fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or(self.name);
        first.trim_start_matches(['#', ' '])
    }
}

/// The chapter of that name.
#[must_use]
pub fn chapter(name: &str) -> Option<&'static Chapter> {
    CHAPTERS.iter().find(|chapter| chapter.name == name)
}

/// The name of a chapter that is most like `name`, if one is.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let likeness = |known: &'static str| (strsim::jaro_winkler(&name, known), known);
    let all = CHAPTERS.iter().map(|chapter| likeness(chapter.name));
    all.filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// What the chapter on problems says of an outcome, heading included: where the `type` of a problem document
/// (RFC 9457) leads.
#[must_use]
pub fn problem(outcome: &str) -> Option<&'static str> {
    let text = chapter("problems")?.text;
    let starts = text.match_indices("\n## ").map(|(at, _)| at + 1);
    let ends = starts.clone().skip(1).chain([text.len()]);
    for (start, end) in starts.zip(ends) {
        let section = text.get(start..end)?;
        let name = section.strip_prefix("## ")?.lines().next()?;
        if name == outcome {
            return Some(section.trim_end());
        }
    }
    None
}

/// The list of chapters, a line for each.
#[must_use]
pub fn contents() -> String {
    let width = CHAPTERS.iter().map(|chapter| chapter.name.len()).max();
    let width = width.unwrap_or(0);
    let line = |chapter: &Chapter| format!("{:<width$}  {}\n", chapter.name, chapter.title());
    CHAPTERS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_chapter_with_a_title_of_its_own() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual");
        let files = std::fs::read_dir(folder).expect("the folder");
        let mut files: Vec<String> = files
            .map(|file| {
                let name = file.expect("a file").file_name();
                name.to_string_lossy().into_owned()
            })
            .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
            .collect();
        let mut names: Vec<&str> = CHAPTERS.iter().map(|chapter| chapter.name).collect();
        names.sort_unstable();
        files.sort_unstable();
        assert_eq!(files, names);
        for chapter in CHAPTERS {
            assert!(chapter.text.starts_with("# "), "{}", chapter.name);
            let twins = CHAPTERS
                .iter()
                .filter(|twin| twin.title() == chapter.title());
            assert_eq!(twins.count(), 1, "{}", chapter.title());
        }
    }

    #[test]
    fn a_typo_finds_its_chapter_and_nonsense_finds_none() {
        for (typed, meant) in [
            ("garantees", Some("guarantees")),
            ("Redis", Some("redis")),
            ("fromredis", Some("from-redis")),
            ("limit", Some("limits")),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed), meant, "{typed}");
        }
    }

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let busy = problem("busy").expect("a section");
        assert!(busy.starts_with("## busy\n"), "{busy}");
        assert_eq!(busy.matches("## ").count(), 1, "{busy}");
        assert_eq!(problem("Busy"), None);
        assert_eq!(problem(""), None);
    }
}
