//! The canonical text in the making: first in the order of the input, then with members in theirs.
//!
//! An object whose members came in order is finished where it stands. The others are noted, and the text is
//! rearranged once at the end, each byte copied once, however deep such objects lie in each other.

use super::error::{JsonError, JsonFault};
use super::string;
use std::cmp::Ordering;
use std::ops::Range;

/// The text so far, and what is known of objects.
#[derive(Default)]
pub(super) struct Draft {
    /// Canonical but for the order of members.
    pub(super) text: String,
    /// What the names of members of open objects say, unescaped, one after the other.
    pub(super) names: String,
    /// The members of open objects, those of the innermost last.
    members: Vec<Member>,
    /// Objects to rearrange, innermost first.
    unordered: Vec<Unordered>,
}

struct Member {
    /// Its name, in `names`.
    name: Range<usize>,
    /// Where the name stands in the input.
    at: usize,
    /// Name, colon and value, in `text`.
    span: Range<usize>,
}

struct Unordered {
    /// From its opening brace to the end of its last member, in `text`.
    span: Range<usize>,
    /// Its members as they are to stand.
    members: Vec<Range<usize>>,
}

/// How things stood when an object began.
pub(super) struct Opened {
    text: usize,
    names: usize,
    members: usize,
}

impl Draft {
    /// To be kept until the object whose opening brace is next ends.
    pub(super) fn mark(&self) -> Opened {
        Opened {
            text: self.text.len(),
            names: self.names.len(),
            members: self.members.len(),
        }
    }

    /// Writes the name of a member: all of `names` from `start`. It stands at that byte of the input.
    pub(super) fn begin_member(&mut self, start: usize, at: usize) {
        let begin = self.text.len();
        string::write(self.names.get(start..).unwrap_or_default(), &mut self.text);
        self.members.push(Member {
            name: start..self.names.len(),
            at,
            span: begin..begin,
        });
    }

    /// The value of the member begun last, in the innermost object, is complete.
    pub(super) fn end_member(&mut self) {
        if let Some(member) = self.members.last_mut() {
            member.span.end = self.text.len();
        }
    }

    /// Ends an object; its last member has ended.
    ///
    /// # Errors
    /// [`JsonFault::RepeatedMember`], at the first name that repeats one.
    pub(super) fn close_object(&mut self, opened: &Opened) -> Result<(), JsonError> {
        let names = &self.names;
        let order = |a: &Member, b: &Member| by_utf16(names, a, b);
        let members = self.members.get_mut(opened.members..).unwrap_or_default();
        if !members.is_sorted_by(|a, b| order(a, b).is_lt()) {
            members.sort_by(order);
            let repeated = members.windows(2).filter_map(|pair| match pair {
                // The sort is stable, so the second is the one that stands later in the input.
                [a, b] if order(a, b).is_eq() => Some(b.at),
                _ => None,
            });
            if let Some(at) = repeated.min() {
                return Err(JsonFault::RepeatedMember.at(at));
            }
            self.unordered.push(Unordered {
                span: opened.text..self.text.len(),
                members: members.iter().map(|member| member.span.clone()).collect(),
            });
        }
        self.members.truncate(opened.members);
        self.names.truncate(opened.names);
        self.text.push('}');
        Ok(())
    }

    /// The text with all members in order.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.unordered.is_empty() {
            return self.text.into_bytes();
        }
        self.unordered
            .sort_unstable_by_key(|object| object.span.start);
        let mut out = String::with_capacity(self.text.len());
        // Pieces of text still to come, the next one last, each with whether a comma goes before it.
        let mut pieces = vec![(0..self.text.len(), false)];
        while let Some((piece, comma)) = pieces.pop() {
            if comma {
                out.push(',');
            }
            let next = self
                .unordered
                .partition_point(|object| object.span.start < piece.start);
            match self
                .unordered
                .get(next)
                .filter(|object| object.span.start < piece.end)
            {
                None => out.push_str(self.text.get(piece).unwrap_or_default()),
                Some(object) => {
                    let brace = object.span.start.saturating_add(1);
                    out.push_str(self.text.get(piece.start..brace).unwrap_or_default());
                    pieces.push((object.span.end..piece.end, false));
                    let members = object.members.iter().cloned().enumerate().rev();
                    pieces.extend(members.map(|(place, member)| (member, place > 0)));
                }
            }
        }
        out.into_bytes()
    }
}

/// RFC 8785, 3.2.3: by UTF-16 code units, which is not the order of code points.
fn by_utf16(names: &str, a: &Member, b: &Member) -> Ordering {
    let units = |member: &Member| {
        names
            .get(member.name.clone())
            .unwrap_or_default()
            .encode_utf16()
    };
    units(a).cmp(units(b))
}
