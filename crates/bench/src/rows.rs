//! Rows as they are measured, one after the other.

use crate::{output::print, row::Row};

/// The rows so far. With JSON, each is printed when it comes: measuring all of them takes minutes.
pub(super) struct Rows {
    rows: Vec<Row>,
    is_json: bool,
    /// Why the last row could not be printed.
    refused: Option<anyhow::Error>,
}

impl Rows {
    /// Keeps the rows for a table.
    pub(super) fn kept() -> Self {
        Self {
            rows: Vec::new(),
            is_json: false,
            refused: None,
        }
    }

    /// Prints the rows as one JSON array, a line for each.
    ///
    /// # Errors
    /// If nobody takes it.
    pub(super) fn as_json() -> anyhow::Result<Self> {
        print("[")?;
        Ok(Self {
            is_json: true,
            ..Self::kept()
        })
    }

    /// Takes a row. [`check`](Self::check) says if it could not be printed.
    pub(super) fn add(&mut self, row: Row) {
        if self.is_json && self.refused.is_none() {
            // The comma stands before the row, since nobody knows yet whether another one follows.
            let comma = if self.rows.is_empty() { ' ' } else { ',' };
            let printed = serde_json::to_string(&row).map_err(anyhow::Error::from);
            let printed = printed.and_then(|row| print(format_args!("{comma} {row}")));
            self.refused = printed.err();
        }
        self.rows.push(row);
    }

    /// To be asked now and then, since it is in vain to measure what nobody takes.
    ///
    /// # Errors
    /// If a row could not be printed.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.refused.take().map_or(Ok(()), Err)
    }

    /// Ends the array, and returns all rows.
    ///
    /// # Errors
    /// If nobody takes it.
    pub(super) fn finish(mut self) -> anyhow::Result<Vec<Row>> {
        self.check()?;
        if self.is_json {
            print("]")?;
        }
        Ok(self.rows)
    }
}
