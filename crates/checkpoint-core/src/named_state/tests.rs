use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::state_plan::{SavedPart, plan_restore};

fn header(entries: &[StateEntry]) -> StateHeader {
    StateHeader::new(entries.to_vec()).unwrap()
}

fn array(name: &str, element: &str, shape: &[u64]) -> StateEntry {
    StateEntry::array(name, element, 8, shape).unwrap()
}

fn value(name: &str, kind: &str, bytes: u64) -> StateEntry {
    StateEntry::value(name, kind, bytes).unwrap()
}

/// The header is text that people can read; entries begin at multiples of 64 bytes.
#[test]
fn the_header_is_text() {
    let header = header(&[
        array("u", "float64", &[3, 5]),
        array("a time", "float64", &[]),
        value("n", "int", 2),
    ]);
    let text = header.encode();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("ropewalk state 1 {:08}", text.len()));
    assert_eq!(
        lines[1..4],
        [
            "array float64 8 3x5 u",
            "array float64 8 - a time",
            "value int 2 n"
        ]
    );
    let start = (text.len() as u64).next_multiple_of(64);
    assert_eq!(header.offsets(), [start, start + 128, start + 192, start + 194]);
    assert_eq!(StateHeader::parse(text.as_bytes()), Ok(header));
}

/// A header with a partitioned array has a version of its own, and each header only one text.
#[test]
fn partitioned_arrays_have_another_version() {
    let u = array("u", "float64", &[50, 100]);
    let marked = header(&[u.clone().partitioned().unwrap(), value("n", "int", 2)]);
    let text = marked.encode();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("ropewalk state 2 {:08}", text.len()));
    assert_eq!(lines[1], "rows float64 8 50x100 u");
    assert_eq!(StateHeader::parse(text.as_bytes()), Ok(marked.clone()));
    assert!(marked.is_partitioned() && !header(std::slice::from_ref(&u)).is_partitioned());
    for (from, to, header) in [
        ("state 2", "state 1", &marked),
        ("state 1", "state 2", &header(&[u])),
    ] {
        let body = header.encode().replace(from, to);
        let body = &body[..body.len() - LAST_LINE];
        let text = format!("{body}end {}\n", blake3::hash(body.as_bytes()).to_hex());
        assert_eq!(
            StateHeader::parse(text.as_bytes()),
            Err(StateHeaderError::Checksum)
        );
    }
    assert_eq!(
        StateHeader::length(b"ropewalk state 3 00000192\n"),
        Err(StateHeaderError::Version)
    );
    let none = StateHeaderError::NoAxis { name: "t".into() };
    assert_eq!(array("t", "float64", &[]).partitioned(), Err(none.clone()));
    assert_eq!(value("t", "int", 2).partitioned(), Err(none));
    let many = StateEntry::array("u", "uint8", 1, &[1 << 63, 0]).and_then(StateEntry::partitioned);
    assert_eq!(many, Err(StateHeaderError::Shape { name: "u".into() }));
    assert!(array("u", "float64", &[0, 1 << 63, 8]).partitioned().is_ok());
}

/// A byte that is changed, missing or too much is noticed, and so is a sum that overflows.
#[test]
fn wrong_headers_are_refused() {
    let text = header(&[array("u", "float64", &[3])]).encode().into_bytes();
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 1;
        assert!(StateHeader::parse(&changed).is_err(), "byte {at}");
        assert!(StateHeader::parse(&text[..at]).is_err(), "cut at {at}");
    }
    assert_eq!(
        StateHeader::length(b"ropewalk state 1 99999999\n"),
        Err(StateHeaderError::TooLong)
    );
    let shape = StateHeaderError::Shape { name: "u".into() };
    assert_eq!(
        StateEntry::array("u", "float64", 8, &[1 << 62, 4]),
        Err(shape.clone())
    );
    assert_eq!(StateEntry::array("u", "float64", 0, &[1]), Err(shape));
    assert!(StateEntry::array("u\n", "float64", 8, &[1]).is_err());
    assert!(StateEntry::array("", "float64", 8, &[1]).is_err());
    assert!(StateEntry::value("u", "a b", 8).is_err());
    let twice = vec![value("u", "int", 1), array("u", "float64", &[1])];
    assert_eq!(StateHeader::new(twice), Err(StateHeaderError::Twice("u".into())));
    let huge = [1, 2].map(|number| array(&format!("u{number}"), "x", &[1 << 59]));
    assert!(matches!(
        StateHeader::new(huge.to_vec()),
        Err(StateHeaderError::Shape { name }) if name == "u2"
    ));
}

/// Arrays have to be the same in both, in any order; values may change their type.
#[test]
fn differences_are_named() {
    let (u, t) = (array("u", "float64", &[3, 5]), value("t", "int", 1));
    let saved = header(&[u.clone(), t.clone()]);
    let saved_u = "float64 of 8 bytes, shape 3x5";
    let said = |entries: &[StateEntry]| {
        let found = header(entries).matching(&saved);
        found.map_err(|error| error.to_string())
    };
    assert_eq!(said(&[value("t", "float", 8), u.clone()]), Ok(vec![1, 0]));
    assert_eq!(
        said(&[array("u", "float32", &[3, 5]), t.clone()]),
        Err(format!(
            "u was saved as {saved_u}, and this program has float32 of 8 bytes, shape 3x5"
        ))
    );
    assert_eq!(
        said(&[array("u", "float64", &[15]), t.clone()]),
        Err(format!(
            "u was saved as {saved_u}, and this program has float64 of 8 bytes, shape 15"
        ))
    );
    assert_eq!(
        said(&[u.clone(), array("t", "int", &[])]),
        Err("t was saved as a value (int), and this program has int of 8 bytes, shape -".into())
    );
    assert_eq!(
        said(&[u.clone(), t, array("w", "float64", &[1])]),
        Err("the save holds nothing named w, which this program wants to restore; it holds u, t".into())
    );
    assert_eq!(
        said(&[u]),
        Err("the save holds t, which this program does not name; it names u".into())
    );
}

proptest! {
    /// The body of the fuzz target `checkpoint_state`, for lines that come near.
    #[test]
    fn a_header_that_is_read_is_what_would_be_written(
        lines in prop::collection::vec("(array|rows|value)( (u|0?[0-9]{1,19}|-|[0-9]{1,19}x[0-9]{1,9})){2,5}", 0..4),
    ) {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let length = FIRST_LINE + lines.len() + LAST_LINE;
        let version = if lines.contains("rows ") { VERSION_PARTITIONED } else { VERSION };
        let body = format!("{version}{length:08}\n{lines}");
        let text = format!("{body}end {}\n", blake3::hash(body.as_bytes()).to_hex());
        if let Ok(header) = StateHeader::parse(text.as_bytes()) {
            prop_assert_eq!(header.encode(), text);
            let offsets = header.offsets();
            for (entry, pair) in header.entries().iter().zip(offsets.windows(2)) {
                prop_assert!(pair[0] + entry.bytes() <= pair[1]);
            }
            prop_assert_eq!(header.matching(&header).map(|found| found.len()), Ok(header.entries().len()));
            let saved = SavedPart { header: header.clone(), copies: BTreeMap::new() };
            let plan = plan_restore(std::slice::from_ref(&header), &[saved], 0).unwrap();
            for (entry, source) in header.entries().iter().zip(plan) {
                let bytes: u64 = source.parts.iter().map(|part| part.from.end - part.from.start).sum();
                prop_assert_eq!(bytes, entry.bytes());
            }
        }
    }

    #[test]
    fn any_header_is_read_as_written(
        arrays in prop::collection::vec(
            ("[a-z ]{1,9}", "[!-~]{1,9}", prop::collection::vec(0_u64..99, 0..4), any::<bool>()),
            0..6,
        ),
        values in prop::collection::vec(0_u64..999, 0..4),
    ) {
        let mut entries: Vec<StateEntry> = Vec::new();
        for (index, (name, element, shape, is_marked)) in arrays.iter().enumerate() {
            let entry = array(&format!("{name}{index}"), element, shape);
            entries.push(match *is_marked && !shape.is_empty() {
                true => entry.partitioned().unwrap(),
                false => entry,
            });
        }
        for (index, &bytes) in values.iter().enumerate() {
            entries.push(value(&format!("{index}"), "str", bytes));
        }
        let header = header(&entries);
        prop_assert_eq!(StateHeader::parse(header.encode().as_bytes()), Ok(header));
    }
}
