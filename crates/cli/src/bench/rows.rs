//! The rows that `ropewalk bench reduce` shows.

use comfy_table::Table;
use serde::Serialize;

use super::{
    beside::Latencies,
    call::Call,
    task::{Order, Times},
};
use crate::table::table_of;

/// A call with vectors of one length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) call: Call,
    pub(super) ranks: u32,
    /// The length of each rank's vector.
    pub(super) bytes: u64,
    pub(super) order: Order,
    pub(super) median_s: f64,
    pub(super) least_s: f64,
    pub(super) most_s: f64,
    /// The time of the other program, if there is one and it has this length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) beside_s: Option<f64>,
}

impl Row {
    /// The row of these times; `None` if there are none.
    pub(super) fn of(times: &Times, ranks: u32, order: Order, beside: Option<&Latencies>) -> Option<Self> {
        let mut sorted = times.seconds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median_s = match sorted.len().is_multiple_of(2) {
            true => f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, *sorted.get(middle)?),
            false => sorted[middle],
        };
        Some(Self {
            call: times.call,
            ranks,
            bytes: times.bytes,
            order,
            median_s,
            least_s: *sorted.first()?,
            most_s: *sorted.last()?,
            beside_s: beside.and_then(|latencies| latencies.get(&times.bytes).copied()),
        })
    }
}

/// All rows, for a terminal; with another program's times if it has some.
pub(super) fn table(rows: &[Row], has_beside: bool) -> Table {
    let own = ["call", "bytes", "median us", "least us", "most us", "MB/s"];
    let mut table = match has_beside {
        true => table_of(&[&own[..], &["beside us", "of beside"]].concat()),
        false => table_of(&own),
    };
    for row in rows {
        let mut cells = vec![
            row.call.name().to_owned(),
            row.bytes.to_string(),
            microseconds(row.median_s),
            microseconds(row.least_s),
            microseconds(row.most_s),
            format!("{:.1}", row.bytes as f64 / row.median_s / 1e6),
        ];
        if has_beside {
            let ratio = |beside: f64| format!("{:.2} x", row.median_s / beside);
            cells.push(row.beside_s.map_or_else(String::new, microseconds));
            cells.push(row.beside_s.map_or_else(String::new, ratio));
        }
        table.add_row(cells);
    }
    table
}

fn microseconds(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(seconds: &[f64], beside: Option<&Latencies>) -> Option<Row> {
        let times = Times {
            call: Call::ReduceScatter,
            bytes: 1024,
            seconds: seconds.to_vec(),
        };
        Row::of(&times, 4, Order::Any, beside)
    }

    /// The median is the middle one of the times, or lies between the two middle ones.
    #[test]
    fn rows_have_medians() {
        let odd = row(&[3e-6, 1e-6, 2e-6], None).unwrap();
        assert_eq!((odd.median_s, odd.least_s, odd.most_s), (2e-6, 1e-6, 3e-6));
        assert_eq!(row(&[4.0, 1.0, 2.0, 100.0], None).unwrap().median_s, 3.0);
        assert_eq!(row(&[], None), None);
    }

    /// The other program's time stands beside ours of the same length, with the ratio.
    #[test]
    fn tables_have_ratios() {
        let rows: Vec<Row> = [[(1024, 4e-6)], [(8, 4e-6)]]
            .map(|latencies| row(&[2e-6], Some(&latencies.into())).unwrap())
            .into();
        let lines = |has_beside| -> Vec<Vec<String>> {
            let text = table(&rows, has_beside).to_string();
            let rows = text.lines().filter(|line| line.starts_with("│ reduce-scatter"));
            let cells = |line: &str| {
                line.split(['│', '┆'])
                    .map(|cell| cell.trim().to_owned())
                    .collect()
            };
            rows.map(cells).collect()
        };
        let own = ["", "reduce-scatter", "1024", "2.0", "2.0", "2.0", "512.0"];
        assert_eq!(lines(false)[0], [&own[..], &[""]].concat());
        assert_eq!(lines(true)[0], [&own[..], &["4.0", "0.50 x", ""]].concat());
        assert_eq!(lines(true)[1], [&own[..], &["", "", ""]].concat());
    }

    /// A row of JSON has no field for a program that there is not.
    #[test]
    fn rows_are_flat_objects() {
        let json = |beside| serde_json::to_string(&row(&[0.5], beside).unwrap()).unwrap();
        let case = r#"{"call":"reduce-scatter","ranks":4,"bytes":1024,"order":"any""#;
        let own = format!(r#"{case},"median_s":0.5,"least_s":0.5,"most_s":0.5"#);
        assert_eq!(json(None), format!("{own}}}"));
        assert_eq!(
            json(Some(&[(1024, 0.25)].into())),
            format!("{own},\"beside_s\":0.25}}")
        );
    }
}
