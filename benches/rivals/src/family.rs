//! Processes and who started them.

use std::{collections::BTreeMap, fs};

/// A process and all that descends from it, each behind its parent.
pub(crate) fn with_descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(parent) = parent_of(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(pid) = family.get(next) {
        family.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    family
}

/// By `/proc/PID/stat` (proc(5)), in which a name in parentheses may have anything in it.
fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process descends from its parent.
    #[test]
    fn descendants_are_found() {
        let own = std::process::id();
        let family = with_descendants(parent_of(own).unwrap());
        assert!(family.contains(&own));
    }
}
