//! Entry points for fuzz targets: each takes any bytes, and panics only if something is wrong with us.

use std::time::Duration;

use ropewalk_names::{Address, HostId, JobId, Rank};
use ropewalk_pmi as pmi;

use crate::{
    group_plan::{Seat, Spawning, plan_spawn},
    host_agent::HostAgent,
    job::{AgentStart, JobSpec, OnFailure, Segment},
    link::Link,
    names::{CallId, MESSAGE_SIZE_MAX, NameClient, NameReply, NameTable, decode},
    plan::{Surroundings, plan},
    protocol::{Down, Order, Plan, Up},
    relay::{Action, Relay},
    supervisor::Supervisor,
    tree::NodeId,
};

/// Gives a launcher what an agent right below it sends, and an agent what the node above it sends. Each batch
/// is so long as the byte before it says.
pub fn links(bytes: &[u8]) {
    let mut plan = plan_of_three_hosts();
    for continues in [false, true] {
        plan.reactions.continues = continues;
        launcher(&plan, bytes);
        agent(&plan, bytes);
    }
}

/// Gives a name server what jobs say whose connections come and go, and a launcher what a name server says.
/// Each message is so long as the byte before it says.
pub fn names(bytes: &[u8]) {
    let mut table = NameTable::new();
    for (number, message) in batches(bytes).enumerate() {
        let reply = table.handle_message(number % 3, message);
        assert!(decode::<NameReply>(&reply).is_some(), "what we say is understood");
        // Both ends of the wire have the same limits.
        assert!(reply.len() <= MESSAGE_SIZE_MAX);
        if let Some(reply) = decode::<NameReply>(message) {
            let mut client = NameClient::new();
            client.handle_question((), pmi::Question::Lookup { service: "s".into() });
            assert!(client.poll_action().is_some(), "the server is asked");
            client.handle_reply(Duration::ZERO, CallId(0), Ok(reply));
            assert!(client.poll_action().is_some(), "whoever asked is answered");
        }
        if number % 7 == 6 {
            table.handle_gone(number % 3);
        }
    }
    (0..3).for_each(|job| table.handle_gone(job));
    assert!(table.is_empty(), "names go with their jobs");
}

/// Places what a process asks for by PMI, and gives the plan to those that get it.
pub fn spawn(bytes: &[u8]) {
    let Ok(spawn) = postcard::from_bytes::<pmi::Spawn>(bytes) else {
        return;
    };
    let seat = |name, slots, is_over| Seat {
        name,
        slots,
        load: slots,
        is_over,
    };
    let seats = [seat("a", 2, false), seat("user@b", 0, false), seat("c", 1, true)];
    let around = Spawning {
        id: 1,
        first: Rank(3),
        spawner: 0,
        own_host: "a",
        working_directory: None,
        size_max: 1000,
    };
    let processes = spawn.processes();
    let Ok(group) = plan_spawn(spawn, &around, &seats) else {
        return;
    };
    assert!(group.is_sound(), "a plan of ours is one to those who get it");
    assert_eq!(u64::from(group.size), processes);
    assert!(group.runs[2].is_empty(), "a host that is over gets none");
    let mapping = group.process_mapping();
    let text = mapping.to_string();
    assert!(pmi::ProcessMapping::parse(text.as_bytes()).is_ok_and(|parsed| parsed == mapping));
    for rank in (group.first.0..group.first.0 + group.size).map(Rank) {
        assert!(group.node_of(rank).is_some() && group.program_of(rank).is_some());
    }
}

fn launcher(plan: &Plan, bytes: &[u8]) {
    let now = Duration::ZERO;
    let mut relay = Relay::of(plan, NodeId::ROOT);
    let mut supervisor = Supervisor::new(plan, OnFailure::Continue, None);
    relay.start(now);
    relay.handle_connected(NodeId(1));
    let mut link = Link::<Down>::default();
    for batch in batches(bytes) {
        for up in link.handle_body::<Up>(batch).into_iter().flatten() {
            relay.handle_up(NodeId(1), up);
            while let Some(action) = relay.poll_action() {
                match action {
                    Action::SendParent(up) => supervisor.handle_up(now, up),
                    Action::LocalPmi(child, up) => supervisor.handle_pmi(now, child, up),
                    _ => {}
                }
            }
            while supervisor.poll_action().is_some() {}
        }
    }
    supervisor.handle_timeout(Duration::from_secs(3600));
}

fn agent(plan: &Plan, bytes: &[u8]) {
    let node = NodeId(1);
    let Ok(address) = "tcp://127.0.0.1:1/1".parse::<Address>() else {
        unreachable!("it is one");
    };
    let mut relay = Relay::of(plan, node);
    let mut mind = HostAgent::new(plan.start(HostId(0)), address, 1 << 20);
    relay.start(Duration::ZERO);
    while let Some(rank) = mind.poll_spawn() {
        mind.handle_spawned(rank, 1);
    }
    let mut link = Link::<Up>::default();
    for batch in batches(bytes) {
        for down in link.handle_body::<Down>(batch).into_iter().flatten() {
            relay.handle_down(down);
            while let Some(action) = relay.poll_action() {
                if let Action::Local(down) = action {
                    obey(plan, &mut mind, down);
                }
            }
            while mind.poll_spawn().is_some() {}
            while mind.poll_action().is_some() {}
        }
    }
}

/// As an agent does it.
fn obey(plan: &Plan, mind: &mut HostAgent, down: Down) {
    match down {
        Down::Cancel(id) => mind.handle_cancel(id),
        Down::Forget(id) => mind.handle_forget(id),
        Down::Group(group) => {
            let options = plan.pmi_group(&group, NodeId(1));
            let ranks: Vec<_> = group.job_ranks(HostId(0)).collect();
            mind.handle_group(group.first, options, &ranks);
        }
        Down::News(news) => mind.handle_news(news),
        Down::Order(Order::Pmi(down)) | Down::Pmi(down) => mind.handle_pmi_down(down),
        Down::Order(Order::ReleaseMemory) => mind.handle_released(),
        Down::Order(Order::Respawn { rank, incarnation }) => mind.handle_respawn(rank, incarnation),
        Down::Order(Order::Forward { signal }) => mind.handle_forward(signal),
        Down::Order(Order::Signal { rank, signal }) => mind.handle_signal(rank, signal),
        Down::Order(Order::NamesAnswered { id, answer }) => mind.handle_names_answer(id, answer),
        Down::Order(Order::Spawned { id, result }) => mind.handle_spawn_answer(id, result),
        _ => {}
    }
}

fn batches(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = bytes.split_first()?;
        let (batch, rest) = rest.split_at(usize::from(length).min(rest.len()));
        bytes = rest;
        Some(batch)
    })
}

/// In a chain: each has the next below it.
fn plan_of_three_hosts() -> Plan {
    let hosts = crate::hosts::parse_hosts("a:2,b:2,c:2").expect("these are hosts");
    let spec = JobSpec {
        hosts,
        ..JobSpec::new(
            AgentStart {
                arity: 1,
                ..AgentStart::new("agent")
            },
            Segment {
                ranks: 6,
                ..Segment::new("program")
            },
        )
    };
    let around = Surroundings {
        is_port_free: |_| true,
        job: JobId([0; 16]),
        host_name: "a".to_owned(),
        processors: 1,
        environment: vec![],
        working_directory: None,
    };
    plan(&spec, around).expect("six ranks have room")
}
