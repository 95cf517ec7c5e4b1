//! Times as RFC 3339 writes them.

/// The place of a time zone in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    /// The text names its zone, as RFC 3339 demands.
    Required,
    /// Without a zone it is UTC.
    Optional,
}

/// The seconds from 1970 on of a text such as `2026-11-27T14:00:00.5+01:00`; `None` if it is malformed or names a day
/// or time that does not exist.
pub(crate) fn seconds_since_epoch(text: &str, zone: Zone) -> Option<f64> {
    let (date, rest) = text.split_at_checked(10)?;
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = date.as_bytes() else {
        return None;
    };
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let (hour, minute) = hour_and_minute(clock.get(..5)?)?;
    let second = number(clock.strip_prefix(clock.get(..5)?)?.strip_prefix(':')?.as_bytes())?;
    let year = number(&[y1, y2, y3, y4])?;
    let (month, day) = (number(&[m1, m2])?, number(&[d1, d2])?);
    // RFC 3339 has leap seconds.
    if !(1..=12).contains(&month) || day < 1 || day > days_of(year, month) || second > 60 {
        return None;
    }
    let (fraction, rest) = fraction(rest)?;
    let offset = offset(rest, zone)?;
    let minutes = (days_before(year, month, day) * 24 + hour) * 60 + minute - offset;
    Some((minutes * 60 + second) as f64 + fraction)
}

/// A number of digits only.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| number * 10 + i64::from(digit - b'0'))
    })
}

/// `14:00`, for example.
fn hour_and_minute(text: &str) -> Option<(i64, i64)> {
    let &[h1, h2, b':', m1, m2] = text.as_bytes() else {
        return None;
    };
    let (hour, minute) = (number(&[h1, h2])?, number(&[m1, m2])?);
    (hour < 24 && minute < 60).then_some((hour, minute))
}

/// The fraction of a second, and the rest behind it.
fn fraction(text: &str) -> Option<(f64, &str)> {
    let Some(digits) = text.strip_prefix('.') else {
        return Some((0.0, text));
    };
    let end = digits.find(|character: char| !character.is_ascii_digit());
    let (digits, rest) = digits.split_at(end.unwrap_or(digits.len()));
    if digits.is_empty() {
        return None;
    }
    let fraction = format!("0.{digits}").parse().ok()?;
    Some((fraction, rest))
}

/// By how many minutes a zone is ahead of UTC.
fn offset(text: &str, zone: Zone) -> Option<i64> {
    match text {
        "Z" | "z" => return Some(0),
        "" => return (zone == Zone::Optional).then_some(0),
        _ => {}
    }
    let (sign, clock) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(clock), _) => (1, clock),
        (_, Some(clock)) => (-1, clock),
        _ => return None,
    };
    let (hour, minute) = hour_and_minute(clock)?;
    Some(sign * (hour * 60 + minute))
}

/// The days from 1970-01-01 to a day of the Gregorian calendar.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March have their leap day at the end.
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let in_year = (153 * months + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + in_year - DAYS_TO_1970
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// From 0000-03-01 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3339, and the ends of leap years.
    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("1985-04-12T23:20:50.52Z", 482_196_050.52),
            ("1996-12-19T16:39:57-08:00", 851_042_397.0),
            ("1990-12-31T23:59:60Z", 662_688_000.0),
            ("2000-02-29 00:00:00z", 951_782_400.0),
            ("2000-03-01t00:00:00+00:00", 951_868_800.0),
            ("1969-12-31T23:59:59Z", -1.0),
        ] {
            assert_eq!(
                seconds_since_epoch(text, Zone::Required),
                Some(expected),
                "{text}"
            );
        }
        let local = "1970-01-01T00:01:00";
        assert_eq!(seconds_since_epoch(local, Zone::Optional), Some(60.0));
        assert_eq!(seconds_since_epoch(local, Zone::Required), None);
    }

    /// Each day follows the one before.
    #[test]
    fn days_follow_each_other() {
        let mut expected = days_before(1899, 12, 31);
        for year in 1900..2101 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    expected += 1;
                    assert_eq!(days_before(year, month, day), expected, "{year}-{month}-{day}");
                }
            }
        }
    }

    /// Days and times that do not exist are no times.
    #[test]
    fn malformed_times_are_refused() {
        for text in [
            "",
            "1970-01-01",
            "1970-13-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:61Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+1:00",
            "1970-01-01T00:00:00 Z",
            "1970-01-01T+1:00:00Z",
            "197\u{e9}-01-01T00:00:00Z",
        ] {
            assert_eq!(seconds_since_epoch(text, Zone::Optional), None, "{text}");
        }
    }
}
