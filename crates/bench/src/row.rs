//! The measurements, as rows of a table.

use comfy_table::{
    CellAlignment, Table,
    presets::{ASCII_MARKDOWN, UTF8_FULL_CONDENSED},
};
use serde::Serialize;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// The name of the measured case.
    pub(super) case: &'static str,
    /// The name of the provider that carried it.
    pub(super) provider: String,
    /// In which of several ways.
    pub(super) mode: String,
    /// How many bytes it is about, if it is about bytes.
    pub(super) size: Option<u64>,
    /// How many calls or transfers there were at once.
    pub(super) in_flight: Option<u64>,
    /// The median over all rounds.
    pub(super) value: f64,
    /// The least of the rounds, if there were some.
    pub(super) least: Option<f64>,
    /// The most of the rounds.
    pub(super) most: Option<f64>,
    pub(super) unit: Unit,
    /// The same with as little as possible between it and the machine, measured in turns with the value.
    pub(super) floor: Option<f64>,
}

/// The unit of values and floors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    #[serde(rename = "calls/s")]
    CallsPerSecond,
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    #[serde(rename = "us")]
    Microseconds,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "B")]
    Bytes,
    #[serde(rename = "KiB")]
    Kibibytes,
    #[serde(rename = "MiB")]
    Mebibytes,
    /// Of one processor, or of the mean.
    #[serde(rename = "%")]
    Percent,
}

/// All rows, for a terminal.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = plain_table(rows);
    table.load_style(UTF8_FULL_CONDENSED);
    table
}

/// All rows, for a document.
pub(super) fn markdown(rows: &[Row]) -> Table {
    let mut table = plain_table(rows);
    table.load_style(ASCII_MARKDOWN);
    table
}

fn plain_table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "case",
        "provider",
        "mode",
        "size",
        "in flight",
        "value",
        "floor",
        "of floor",
        "unit",
    ]);
    for row in rows {
        table.add_row([
            row.case.to_owned(),
            row.provider.clone(),
            row.mode.clone(),
            row.size.map_or(String::new(), size_text),
            row.in_flight.map_or(String::new(), |count| count.to_string()),
            number_text(row.value),
            row.floor.map_or(String::new(), number_text),
            row.floor.map_or(String::new(), |floor| ratio_text(row, floor)),
            row.unit.text().to_owned(),
        ]);
    }
    for column in 3..8 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

impl Unit {
    fn text(self) -> &'static str {
        match self {
            Self::CallsPerSecond => "calls/s",
            Self::GigabytesPerSecond => "GB/s",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Bytes => "B",
            Self::Kibibytes => "KiB",
            Self::Mebibytes => "MiB",
            Self::Percent => "%",
        }
    }
}

fn size_text(bytes: u64) -> String {
    match bytes {
        0x10_0000.. if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        0x400.. if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => bytes.to_string(),
    }
}

fn number_text(number: f64) -> String {
    match number.abs() {
        1e6.. => format!("{:.2} M", number / 1e6),
        1e4.. => format!("{:.0} k", number / 1e3),
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

fn ratio_text(row: &Row, floor: f64) -> String {
    match row.unit {
        _ if floor == 0.0 => String::new(),
        Unit::CallsPerSecond | Unit::GigabytesPerSecond => format!("{:.0} %", row.value / floor * 100.0),
        _ => format!("{:.2} x", row.value / floor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers are short, whatever their size, and sizes have their customary units.
    #[test]
    fn numbers_and_sizes_are_readable() {
        let texts = [0.1564, 6.43, 27.6, 157.2, 157_200.0, 8_123_000.0].map(number_text);
        assert_eq!(texts, ["0.156", "6.43", "27.6", "157", "157 k", "8.12 M"]);
        let texts = [0, 100, 4096, 1 << 20, 64 << 20].map(size_text);
        assert_eq!(texts, ["0", "100", "4 KiB", "1 MiB", "64 MiB"]);
    }

    /// A row is one flat object, with null where there is nothing.
    #[test]
    fn rows_are_flat_objects() {
        let row = Row {
            case: "null_call",
            provider: "tcp".to_owned(),
            mode: "spinning".to_owned(),
            size: None,
            in_flight: Some(1),
            value: 7.5,
            least: Some(7.25),
            most: Some(8.0),
            unit: Unit::Microseconds,
            floor: None,
        };
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            concat!(
                r#"{"case":"null_call","provider":"tcp","mode":"spinning","size":null,"in_flight":1,"value":7.5,"#,
                r#""least":7.25,"most":8.0,"unit":"us","floor":null}"#
            )
        );
    }
}
