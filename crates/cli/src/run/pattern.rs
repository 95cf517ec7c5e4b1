//! Patterns for the prefixes of output lines, and for the names of output files.

/// Text in which `%r` stands for the rank, `%h` for its host and `%%` for `%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(String);

impl Pattern {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn fill(&self, rank: u32, host: &str) -> String {
        let mut filled = String::new();
        let mut rest = self.0.chars();
        while let Some(char) = rest.next() {
            match (char, char == '%') {
                (_, true) => match rest.next() {
                    Some('r') => filled += &rank.to_string(),
                    Some('h') => filled += host,
                    Some('%') | None => filled.push('%'),
                    Some(other) => filled.extend(['%', other]),
                },
                (char, false) => filled.push(char),
            }
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Patterns say which rank and host.
    #[test]
    fn patterns_are_filled() {
        assert_eq!(Pattern::new("%h/%r-100%%%x%").fill(7, "vm"), "vm/7-100%%x%");
    }
}
