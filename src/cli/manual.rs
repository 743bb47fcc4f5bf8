//! `onced manual`.

use clap::Args;

use super::{Exit, Failure, show};
use crate::manual::{chapter, contents, nearest};

/// Read the manual
#[derive(Args, Debug)]
pub(super) struct Manual {
    /// The chapter; without one, the list of chapters
    #[arg(value_name = "CHAPTER")]
    chapter: Option<String>,
}

impl Manual {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let Some(name) = self.chapter else {
            show::page(contents().as_bytes())?;
            return Ok(Exit::Success);
        };
        let Some(chapter) = chapter(&name) else {
            let next = match nearest(&name) {
                Some(name) => format!("did you mean `onced manual {name}`?"),
                None => "`onced manual` lists them".to_owned(),
            };
            let attempt = format!("cannot show the chapter {name}");
            let failure = Failure::new(Exit::Usage, attempt, "there is no such chapter", next);
            return Err(failure);
        };
        show::page(chapter.text.as_bytes())?;
        Ok(Exit::Success)
    }
}

#[cfg(test)]
mod tests;
