//! Sizes in bytes as users write them.

use thiserror::Error;

/// A number of bytes: `4096`, `64KiB`, `1.5MiB` or `2GiB`, and powers of ten as `8MB`.
pub(crate) fn bytes(text: &str) -> Result<u64, NoSize> {
    const UNITS: [(&str, f64); 8] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("KB", 1e3),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("B", 1.0),
    ];
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, factor) = unit.map_or((text, 1.0), |(unit, factor)| {
        (text[..text.len() - unit.len()].trim_end(), *factor)
    });
    match number.parse::<f64>() {
        Ok(number) if (0.0..=1e15).contains(&(number * factor)) => Ok((number * factor).round() as u64),
        _ => Err(NoSize),
    }
}

/// The value of an option is no size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a size is wanted, such as 65536, 64KiB, 128MiB or 1GB")]
pub(crate) struct NoSize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let read = |text| bytes(text).ok();
        assert_eq!(read("4096"), Some(4_096));
        assert_eq!(read("64KiB"), Some(65_536));
        assert_eq!(read("1.5 MiB"), Some(1_572_864));
        assert_eq!(read("8MB"), Some(8_000_000));
        assert_eq!(
            (read("-1"), read("MiB"), read("nan"), read("1e99")),
            (None, None, None, None)
        );
    }
}
