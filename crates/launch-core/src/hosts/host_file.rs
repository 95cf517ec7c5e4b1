//! Host files in the forms that Hydra, Open MPI and plain lists of machines have.

use super::{HostError, HostSlots, parse_slots, push};

/// Reads a host file. Each line names one host: `HOST`, `HOST:SLOTS` (Hydra) or `HOST slots=N max_slots=M` (Open MPI);
/// `#` begins a comment. What Hydra has behind a name besides (`binding=..`, `ifname=..`, `user=..`) is ignored but for
/// the user.
///
/// # Errors
/// If a line is in no known form, or there are too many.
pub fn parse_host_file(text: &str) -> Result<Vec<HostSlots>, HostError> {
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_ascii_whitespace();
        let Some(name) = words.next() else {
            continue;
        };
        let mut host = HostSlots::parse(name)?;
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(HostError::Line {
                    line: index + 1,
                    text: line.trim().to_owned(),
                });
            };
            match key {
                "slots" | "count" => host.slots = parse_slots(name, value)?,
                "max_slots" | "max-slots" => host.slots_max = Some(parse_slots(name, value)?),
                "user" => {
                    host = HostSlots {
                        name: HostSlots::new(format!("{value}@{}", host.name), 1)?.name,
                        ..host
                    }
                }
                _ => {}
            }
        }
        push(&mut hosts, host)?;
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three dialects, mixed, with comments and empty lines.
    #[test]
    fn three_dialects_are_read() {
        let text = "# machines\nh1:2   # two\n\nh2 slots=4 max_slots=8\nh3\nh4:3 binding=rr user=me\n";
        let hosts = parse_host_file(text).unwrap();
        let seen: Vec<_> = hosts
            .iter()
            .map(|host| (host.name(), host.slots, host.slots_max))
            .collect();
        assert_eq!(
            seen,
            [
                ("h1", 2, None),
                ("h2", 4, Some(8)),
                ("h3", 1, None),
                ("me@h4", 3, None)
            ]
        );
    }

    /// A line that is not understood is named, never skipped.
    #[test]
    fn what_is_not_understood_is_named() {
        let error = parse_host_file("h1\nh2 four\n").unwrap_err();
        assert!(matches!(error, HostError::Line { line: 2, .. }), "{error}");
        assert!(parse_host_file("h1 slots=-1").is_err());
        assert!(parse_host_file("-oProxyCommand=id slots=1").is_err());
    }
}
