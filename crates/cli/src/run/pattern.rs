//! Patterns for the prefixes of output lines, and for the names of output files.

use std::{mem, str::FromStr};

use ropewalk_launch::RankPlace;
use ropewalk_names::Rank;
use thiserror::Error;

/// Text with letters behind `%`, of the same meaning as in Hydra: `%r` stands for the rank, `%h` for the name of its
/// host, `%p` for the number of that host, `%g` for its process group (0, or that of spawned processes) and `%%` for
/// `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pieces: Vec<Piece>,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Group,
    Host,
    HostNumber,
    Rank,
    Text(String),
}

/// A letter behind `%` that has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "%{letter} is none of %r (rank), %h (name of its host), %p (number of its host), %g (its process group) and %% \
     (a percent sign)"
)]
pub(super) struct PatternError {
    letter: char,
}

impl Pattern {
    /// The pattern of `--label`.
    pub(super) fn label() -> Self {
        let text = |text: &str| Piece::Text(text.to_owned());
        Self {
            pieces: vec![text("["), Piece::Rank, text("] ")],
        }
    }

    /// The text for a rank.
    pub(super) fn fill(&self, rank: Rank, place: &RankPlace<'_>) -> String {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Group => filled += &place.group.to_string(),
                Piece::Host => filled += place.host,
                Piece::HostNumber => filled += &place.host_number.0.to_string(),
                Piece::Rank => filled += &rank.0.to_string(),
                Piece::Text(text) => filled += text,
            }
        }
        filled
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.chars();
        while let Some(char) = rest.next() {
            let letter = if char == '%' { rest.next() } else { None };
            let piece = match letter {
                Some('g') => Piece::Group,
                Some('h') => Piece::Host,
                Some('p') => Piece::HostNumber,
                Some('r') => Piece::Rank,
                // A percent sign at the end is one too.
                Some('%') | None => {
                    plain.push(char);
                    continue;
                }
                Some(letter) => return Err(PatternError { letter }),
            };
            pieces.push(Piece::Text(mem::take(&mut plain)));
            pieces.push(piece);
        }
        pieces.push(Piece::Text(plain));
        Ok(Self { pieces })
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_names::HostId;

    use super::*;

    /// Patterns say which rank, host and group; a letter that means nothing is refused with those that do.
    #[test]
    fn patterns_are_filled() {
        let place = RankPlace {
            host: "vm",
            host_number: HostId(3),
            group: 2,
        };
        let filled = |text: &str| text.parse().map(|pattern: Pattern| pattern.fill(Rank(7), &place));
        assert_eq!(filled("%h/%r-100%%%p.%g%").as_deref(), Ok("vm/7-100%3.2%"));
        assert_eq!(filled(""), Ok(String::new()));
        assert_eq!(Pattern::label().fill(Rank(7), &place), "[7] ");
        let error = filled("%r%t").unwrap_err();
        assert_eq!(error, PatternError { letter: 't' });
        assert!(error.to_string().contains("%p (number of its host)"), "{error}");
    }
}
