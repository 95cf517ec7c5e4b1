//! Questions of processes about process groups (`PMIx_Query_info`; PMIx 4.1, section 7.1).

use std::collections::BTreeMap;

use ropewalk_launch_core::pmix::{Process, RunningProcesses};

use crate::{
    known::Known,
    sys::{
        types::{Status, status},
        values::Item,
    },
};

/// Keys whose values a process wants, with what says more exactly which.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) keys: Vec<String>,
    pub(crate) qualifiers: Vec<(String, Option<Item>)>,
}

/// `PMIX_QUERY_NAMESPACES`.
const NAMESPACES: &str = "pmix.qry.ns";
/// `PMIX_QUERY_PROC_TABLE`.
const PROCESS_TABLE: &str = "pmix.qry.ptable";
/// `PMIX_NSPACE`: the group that a question is about.
const NAMESPACE: &str = "pmix.nspace";

/// Says if a question is about the processes of a group that runs on other hosts too.
pub(crate) fn ask_all_hosts(groups: &BTreeMap<String, Known>, from: &Process, queries: &[Query]) -> bool {
    queries.iter().any(|query| {
        let is_wide = |group: &Known| group.namespace.nodes.len() > 1;
        query.keys.iter().any(|key| key == PROCESS_TABLE) && query.group(groups, from).is_some_and(is_wide)
    })
}

/// The values that there are, and the status: an error if there is none. Beside the groups stand the processes of other
/// hosts, if they were asked for.
pub(crate) fn answers(
    (groups, running): (&BTreeMap<String, Known>, &RunningProcesses),
    from: &Process,
    queries: &[Query],
) -> (Status, Vec<(String, Item)>) {
    let mut found = Vec::new();
    let mut missing = None;
    for query in queries {
        let group = query.group(groups, from);
        for key in &query.keys {
            let value = match (key.as_str(), group) {
                (NAMESPACES, _) => {
                    let names: Vec<_> = groups.keys().map(String::as_str).collect();
                    Ok(Item::Text(names.join(",")))
                }
                (_, None) => Err(status::NOT_FOUND),
                (PROCESS_TABLE, Some(group)) => {
                    let elsewhere = running.get(&group.namespace.name);
                    Ok(Item::ProcessTable(group.table_of_all(elsewhere)))
                }
                (key, Some(group)) => group.value(key).ok_or(status::NOT_SUPPORTED),
            };
            match value {
                Ok(value) => found.push((key.clone(), value)),
                Err(status) => missing = missing.or(Some(status)),
            }
        }
    }
    let status = match (missing, found.is_empty()) {
        (None, _) => status::SUCCESS,
        (Some(missing), true) => missing,
        (Some(_), false) => status::PARTIAL_SUCCESS,
    };
    (status, found)
}

impl Query {
    /// The process group that it is about: the one that it names, or the asker's, or the only one.
    fn group<'a>(&self, groups: &'a BTreeMap<String, Known>, from: &Process) -> Option<&'a Known> {
        let qualifier = self.qualifiers.iter().find_map(|(key, item)| match item {
            Some(Item::Text(name)) if key == NAMESPACE => Some(name),
            _ => None,
        });
        // libpmix 4.2 names itself as the one that asks.
        let only = || groups.values().next().filter(|_| groups.len() == 1);
        match qualifier {
            Some(name) => groups.get(name),
            None => groups.get(&from.namespace).or_else(only),
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_launch_core::pmix::Namespace;

    use super::*;

    fn group(name: &str, size: u32) -> (String, Known) {
        let namespace = Namespace {
            name: name.to_owned(),
            group: 0,
            offset: 0,
            size,
            universe_size: size,
            nodes: Vec::new(),
            own_node: None,
            programs: Vec::new(),
            parent: None,
        };
        (name.to_owned(), Known::new(namespace))
    }

    /// The group of a question is the one that it names, or the asker's, or the only one; what is not known is an
    /// error, and beside known values a partial success.
    #[test]
    fn questions_are_about_a_group() {
        let one = BTreeMap::from([group("a", 2)]);
        let two = BTreeMap::from([group("a", 2), group("b", 3)]);
        let ask = |groups: &BTreeMap<String, Known>, from: &str, about: Option<&str>, keys: &[&str]| {
            let from = Process {
                namespace: from.to_owned(),
                rank: Some(0),
            };
            let named = about.map(|name| (NAMESPACE.to_owned(), Some(Item::Text(name.to_owned()))));
            let query = Query {
                keys: keys.iter().map(|&key| key.to_owned()).collect(),
                qualifiers: named.into_iter().collect(),
            };
            answers((groups, &RunningProcesses::new()), &from, &[query])
        };
        let size = |size| vec![("pmix.job.size".to_owned(), Item::Uint32(size))];
        let key = "pmix.job.size";
        assert_eq!(ask(&two, "b", None, &[key]), (status::SUCCESS, size(3)));
        assert_eq!(ask(&two, "b", Some("a"), &[key]), (status::SUCCESS, size(2)));
        assert_eq!(ask(&one, "server", None, &[key]), (status::SUCCESS, size(2)));
        assert_eq!(ask(&two, "server", None, &[key]), (status::NOT_FOUND, vec![]));
        assert_eq!(ask(&one, "a", Some("b"), &[key]), (status::NOT_FOUND, vec![]));
        assert_eq!(ask(&one, "a", None, &["x"]), (status::NOT_SUPPORTED, vec![]));
        assert_eq!(
            ask(&one, "a", None, &["x", key]),
            (status::PARTIAL_SUCCESS, size(2))
        );
        let names = (NAMESPACES.to_owned(), Item::Text("a,b".into()));
        assert_eq!(
            ask(&two, "a", None, &[NAMESPACES]),
            (status::SUCCESS, vec![names])
        );
    }
}
