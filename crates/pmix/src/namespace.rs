//! A process group in the words of the PMIx standard (4.1, section 17.2.3).

use ropewalk_launch_core::pmix::{Namespace, Process};

use crate::sys::{Server, ServerError, values::Item};

/// Makes a process group known to libpmix. Returns the variables of each of its processes here.
///
/// # Errors
/// If libpmix does not take it.
pub(crate) fn register(
    server: &Server,
    namespace: &Namespace,
    directory: &str,
) -> Result<Vec<(u32, Vec<String>)>, ServerError> {
    let hosts: Vec<_> = namespace.nodes.iter().map(|node| node.name.as_str()).collect();
    let ranks: Vec<_> = namespace.nodes.iter().map(|node| joined(&node.ranks)).collect();
    let node_map = server.node_map(&hosts.join(","))?;
    let process_map = server.process_map(&ranks.join(";"))?;
    let local = namespace.local_ranks();
    server.register(
        &namespace.name,
        local.len(),
        &items(namespace, node_map, process_map, directory),
    )?;
    let environment = |&rank: &u32| {
        let process = Process {
            namespace: namespace.name.clone(),
            rank: Some(rank),
        };
        Ok((rank, server.register_client(&process)?))
    };
    local.iter().map(environment).collect()
}

fn items(
    namespace: &Namespace,
    node_map: String,
    process_map: String,
    directory: &str,
) -> Vec<(&'static str, Item)> {
    let local = namespace.local_ranks();
    let count = |list: usize| Item::Uint32(list as u32);
    let mut items = vec![
        ("pmix.jobid", Item::Text(namespace.name.clone())),
        ("pmix.univ.size", Item::Uint32(namespace.universe_size)),
        ("pmix.max.size", Item::Uint32(namespace.size)),
        ("pmix.job.size", Item::Uint32(namespace.size)),
        ("pmix.job.napps", count(namespace.programs.len())),
        ("pmix.num.nodes", count(namespace.nodes.len())),
        ("pmix.nmap", Item::Text(node_map)),
        ("pmix.pmap", Item::Text(process_map)),
        ("pmix.offset", Item::Rank(namespace.offset)),
        ("pmix.tmpdir", Item::Text(directory.to_owned())),
        (
            "pmix.nsdir",
            Item::Text(format!("{directory}/{}", namespace.group)),
        ),
    ];
    if let Some(own) = namespace.own_node {
        let node = &namespace.nodes[own];
        items.extend([
            ("pmix.hname", Item::Text(node.name.clone())),
            ("pmix.nodeid", Item::Uint32(node.id)),
            ("pmix.node.size", count(local.len())),
            ("pmix.local.size", count(local.len())),
            ("pmix.lpeers", Item::Text(joined(local))),
            ("pmix.lldr", Item::Rank(local.first().copied().unwrap_or(0))),
        ]);
    }
    if let Some(parent) = &namespace.parent {
        items.push(("pmix.spawned", Item::Bool(true)));
        items.push(("pmix.parent", Item::Process(parent.clone())));
    }
    for node in &namespace.nodes {
        let info = vec![
            ("pmix.hname", Item::Text(node.name.clone())),
            ("pmix.nodeid", Item::Uint32(node.id)),
            ("pmix.node.size", count(node.ranks.len())),
            ("pmix.local.size", count(node.ranks.len())),
            ("pmix.lpeers", Item::Text(joined(&node.ranks))),
            ("pmix.lldr", Item::Rank(node.ranks.first().copied().unwrap_or(0))),
        ];
        items.push(("pmix.node.arr", Item::List(info)));
    }
    for (number, program) in (0..).zip(&namespace.programs) {
        let info = vec![
            ("pmix.appnum", Item::Uint32(number)),
            ("pmix.app.size", Item::Uint32(program.size)),
            ("pmix.aldr", Item::Rank(program.first)),
        ];
        items.push(("pmix.app.arr", Item::List(info)));
    }
    for node in &namespace.nodes {
        for (local_rank, &rank) in (0..).zip(&node.ranks) {
            let (number, first) = match namespace.program_of(rank) {
                Some((number, program)) => (number, program.first),
                None => (0, 0),
            };
            let mut info = vec![
                ("pmix.rank", Item::Rank(rank)),
                ("pmix.appnum", Item::Uint32(number)),
                ("pmix.apprank", Item::Rank(rank - first)),
                ("pmix.grank", Item::Rank(namespace.offset + rank)),
                ("pmix.lrank", Item::Uint16(local_rank)),
                ("pmix.nrank", Item::Uint16(local_rank)),
                ("pmix.nodeid", Item::Uint32(node.id)),
                ("pmix.hname", Item::Text(node.name.clone())),
            ];
            // Clients ask for it with their own rank as well as for the whole group.
            let parent = namespace.parent.clone();
            info.extend(parent.map(|parent| ("pmix.parent", Item::Process(parent))));
            items.push(("pmix.pdata", Item::List(info)));
        }
    }
    items
}

fn joined(ranks: &[u32]) -> String {
    let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
    ranks.join(",")
}
