//! Whose output there is.

use anyhow::Context;
use ropewalk_names::Rank;

/// The ranks whose output comes out; of all unless somebody said otherwise.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ShownRanks {
    /// First and last of each range; `None` for all.
    ranges: Option<Vec<(u32, u32)>>,
}

impl ShownRanks {
    /// The value of `-output-from`: all, none, or numbers and ranges with commas between them.
    pub(super) fn of(text: &str) -> anyhow::Result<Self> {
        let ranges = match text {
            // As Hydra has it.
            "all" | "-1" => None,
            "none" => Some(Vec::new()),
            _ => Some(
                text.split(',')
                    .map(range)
                    .collect::<Option<_>>()
                    .with_context(|| {
                        format!("option -output-from wants ranks, as in 0,4-7, or all or none, not {text:?}")
                    })?,
            ),
        };
        Ok(Self { ranges })
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        let has = |&(first, last): &(u32, u32)| (first..=last).contains(&rank.0);
        self.ranges.as_ref().is_none_or(|ranges| ranges.iter().any(has))
    }
}

fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<u32> {
        let shown = ShownRanks::of(text).unwrap();
        (0..10).filter(|&rank| shown.has(Rank(rank))).collect()
    }

    /// Ranks are named one by one, in ranges, or all at once.
    #[test]
    fn ranks_are_named() {
        assert_eq!(shown("1"), [1]);
        assert_eq!(shown("8-4294967295,0,2-3"), [0, 2, 3, 8, 9]);
        assert_eq!(shown("all").len(), 10);
        assert_eq!(shown("-1").len(), 10);
        assert_eq!(shown("none").len(), 0);
        assert!(ShownRanks::default().has(Rank(u32::MAX)));
        for text in ["", "a", "1,", "3-1", "-2", "1-2-3", "ALL", "0x1"] {
            let error = ShownRanks::of(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
