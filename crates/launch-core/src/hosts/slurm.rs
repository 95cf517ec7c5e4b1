//! The nodes of a Slurm allocation, from `SLURM_JOB_NODELIST` and `SLURM_TASKS_PER_NODE` (srun(1)).

use super::{HOSTS_MAX, HostError, HostSlots, push};

/// The hosts of an allocation, each with its number of tasks.
///
/// # Errors
/// If one of the texts is not what Slurm writes, or they are about different numbers of nodes.
pub fn slurm_hosts(node_list: &str, tasks_per_node: Option<&str>) -> Result<Vec<HostSlots>, HostError> {
    let mut hosts = parse_node_list(node_list)?;
    if let Some(text) = tasks_per_node {
        let tasks = parse_tasks_per_node(text)?;
        if tasks.len() != hosts.len() {
            return Err(malformed(
                text,
                "it is about another number of nodes than the list of nodes",
            ));
        }
        for (host, tasks) in hosts.iter_mut().zip(tasks) {
            host.slots = tasks;
        }
    }
    Ok(hosts)
}

/// Reads a list such as `n[01-03,7],login,a[1-2]b[3,4]`, in order.
///
/// # Errors
/// If brackets do not match, a range is none, or there are too many hosts.
pub fn parse_node_list(text: &str) -> Result<Vec<HostSlots>, HostError> {
    let mut hosts = Vec::new();
    for entry in entries(text)? {
        for name in expand(text, entry)? {
            push(&mut hosts, HostSlots::new(name, 1)?)?;
        }
    }
    Ok(hosts)
}

/// Reads numbers such as `4(x3),2`: three nodes with four tasks and one with two.
///
/// # Errors
/// If it is in another form, or about too many nodes.
pub fn parse_tasks_per_node(text: &str) -> Result<Vec<u32>, HostError> {
    let mut tasks = Vec::new();
    for entry in text.split(',') {
        let (count, times) = match entry.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')),
            None => (entry, Some("1")),
        };
        let times = times.and_then(|times| times.parse::<usize>().ok());
        let (Ok(count @ 1..), Some(times @ 1..)) = (count.parse(), times) else {
            return Err(malformed(text, "expected numbers such as 4(x3),2"));
        };
        if times > HOSTS_MAX - tasks.len() {
            return Err(HostError::TooMany);
        }
        tasks.resize(tasks.len() + times, count);
    }
    Ok(tasks)
}

/// The parts between the commas that stand in no brackets.
fn entries(text: &str) -> Result<Vec<&str>, HostError> {
    let (mut entries, mut begin, mut inside) = (Vec::new(), 0, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'[' if inside => return Err(malformed(text, "brackets in brackets")),
            b'[' => inside = true,
            b']' if !inside => return Err(malformed(text, "a bracket closes that was not opened")),
            b']' => inside = false,
            b',' if !inside => {
                entries.push(&text[begin..index]);
                begin = index + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(malformed(text, "a bracket is not closed"));
    }
    entries.push(&text[begin..]);
    Ok(entries)
}

/// The names of one entry, which may have several pairs of brackets.
fn expand(list: &str, entry: &str) -> Result<Vec<String>, HostError> {
    let mut names = vec![String::new()];
    let mut rest = entry;
    while let Some((before, behind)) = rest.split_once('[') {
        let (inside, after) = behind.split_once(']').unwrap_or((behind, ""));
        let numbers = ranges(list, inside)?;
        if names.len().saturating_mul(numbers.len()) > HOSTS_MAX {
            return Err(HostError::TooMany);
        }
        let longer = |name: &String| {
            let begin = format!("{name}{before}");
            numbers
                .iter()
                .map(move |number| format!("{begin}{number}"))
                .collect::<Vec<_>>()
        };
        names = names.iter().flat_map(longer).collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// The numbers of `01-03,7`, with their leading zeros.
fn ranges(list: &str, text: &str) -> Result<Vec<String>, HostError> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (Ok(from), Ok(to)) = (first.parse::<u64>(), last.parse::<u64>()) else {
            return Err(malformed(list, "a range in brackets is no number"));
        };
        if !is_number(first) || !is_number(last) || from > to {
            return Err(malformed(list, "a range in brackets does not ascend"));
        }
        if to - from >= (HOSTS_MAX - numbers.len()) as u64 {
            return Err(HostError::TooMany);
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

fn malformed(text: &str, reason: &'static str) -> HostError {
    let text = text.chars().take(200).collect();
    HostError::NodeList { text, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let hosts = parse_node_list(text).unwrap();
        hosts.iter().map(|host| host.name().to_owned()).collect()
    }

    /// Ranges, leading zeros, several brackets, plain names: in Slurm's order.
    #[test]
    fn node_lists_are_expanded() {
        assert_eq!(names("n[08-10,7],login"), ["n08", "n09", "n10", "n7", "login"]);
        assert_eq!(names("a[1-2]b[3,4]c"), ["a1b3c", "a1b4c", "a2b3c", "a2b4c"]);
        assert_eq!(names("one"), ["one"]);
    }

    /// A list that is malformed, or would fill the memory, is refused.
    #[test]
    fn malformed_and_huge_lists_are_refused() {
        for text in [
            "n[1-3", "n]1[", "n[[1]]", "n[3-1]", "n[a-b]", "n[]", "n[+1-2]", "a,,b", "",
        ] {
            assert!(parse_node_list(text).is_err(), "{text:?}");
        }
        for text in ["n[1-99999999]", "n[1-999][1-999]", "n[0-65535],x"] {
            assert_eq!(parse_node_list(text), Err(HostError::TooMany), "{text:?}");
        }
    }

    /// Tasks go with the nodes in order; another number of nodes is an error.
    #[test]
    fn tasks_go_with_nodes() {
        let hosts = slurm_hosts("n[1-4]", Some("4(x3),2")).unwrap();
        let slots: Vec<_> = hosts.iter().map(|host| host.slots).collect();
        assert_eq!(slots, [4, 4, 4, 2]);
        for tasks in ["4(x3)", "4(x", "0(x4)", "4(x0),1(x4)", "x", "1(x999999)"] {
            assert!(slurm_hosts("n[1-4]", Some(tasks)).is_err(), "{tasks:?}");
        }
    }
}
