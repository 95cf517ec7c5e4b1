use std::net::Ipv4Addr;

use ropewalk_fabric::{EndpointOptions, Identity, Role};
use ropewalk_launch_core::{
    AgentStart, JobSpec, OnFailure, StartMethod,
    batch::{Head, encode},
    hosts::parse_hosts,
    plan::{Surroundings, plan},
};
use ropewalk_names::{Incarnation, JobId, Rank};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);
/// No message: a length, and nothing behind it.
const GARBAGE: &[u8] = &[7];
const LOOPBACK: std::net::IpAddr = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A job on one other host, whose agent is started by a command that does nothing.
fn spec() -> JobSpec {
    let words = ["sh", "-c", "exec sleep 60"].map(Into::into);
    let agents = AgentStart {
        method: StartMethod::Command(words.into()),
        ..AgentStart::new("agent")
    };
    let mut spec = JobSpec {
        hosts: parse_hosts("elsewhere").unwrap(),
        ..JobSpec::new(agents, "program")
    };
    spec.network.interface = Some(LOOPBACK);
    spec
}

fn position(node: NodeId, parent: Option<Address>) -> Position {
    position_in(&spec(), node, parent)
}

fn position_in(spec: &JobSpec, node: NodeId, parent: Option<Address>) -> Position {
    let around = Surroundings {
        is_port_free: |_| true,
        job: JobId([1; 16]),
        host_name: "here".to_owned(),
        processors: 1,
        environment: vec![],
        working_directory: None,
    };
    let plan = Arc::new(plan(spec, around).unwrap());
    Position {
        node,
        key: JobKey::from_bytes([2; 32]),
        encoded_plan: vec![],
        plan,
        parent,
        launcher: None,
        forks: true,
        forked: None,
    }
}

fn branch(position: Position) -> Branch {
    let endpoint = bind(&position).unwrap();
    Branch::start(position, endpoint).unwrap()
}

/// A neighbour that knows the job's key.
fn neighbour(role: Role) -> Endpoint {
    let identity = Identity {
        role,
        rank: Rank(0),
        incarnation: Incarnation(0),
    };
    let mut options = EndpointOptions::new(JobId([1; 16]), JobKey::from_bytes([2; 32]), identity);
    options.bind.set_ip(LOOPBACK);
    Endpoint::bind(options).unwrap()
}

/// Drives both until the branch tells something that is wanted.
fn await_event<T>(
    branch: &mut Branch,
    neighbour: &mut Endpoint,
    wanted: impl Fn(BranchEvent) -> Option<T>,
    mut on_message: impl FnMut(&mut Endpoint, PeerId),
) -> T {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        branch.progress();
        branch.flush();
        while let Some(event) = branch.poll_event() {
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        neighbour.wait(Duration::from_millis(5));
        neighbour.progress();
        while let Some(event) = neighbour.poll_event() {
            if let Event::Unexpected { from, .. } = event {
                on_message(neighbour, from);
            }
        }
    }
    panic!("nothing came");
}

/// An agent whose messages cannot be read is lost, and it is told what it sent.
#[test]
fn a_child_that_sends_garbage_is_lost() {
    let mut branch = branch(position(NodeId::ROOT, None));
    let mut agent = neighbour(Role::Agent);
    agent
        .send_unexpected(branch.endpoint().address(), TAG_UP, GARBAGE.to_vec())
        .unwrap();
    let lost = |event| match event {
        BranchEvent::Up(Up {
            host: HostId(0),
            report: Report::Lost { how },
            ..
        }) => Some(how),
        _ => None,
    };
    assert!(branch.command_keeper.is_some());
    let how = await_event(&mut branch, &mut agent, lost, |_, _| {});
    assert!(
        how.starts_with("sent 1 bytes that are no message of ropewalk"),
        "{how}"
    );
    branch.end_now(Branch::END);
}

/// An agent that cannot read what the node above sends is alone.
#[test]
fn a_parent_that_sends_garbage_is_lost() {
    let mut launcher = neighbour(Role::Launcher);
    let parent = launcher.address().clone();
    let mut branch = branch(position(NodeId(1), Some(parent)));
    branch.report(Report::Active);
    let lost = |event| match event {
        BranchEvent::ParentLost(why) => Some(why),
        _ => None,
    };
    let why = await_event(&mut branch, &mut launcher, lost, |launcher, from| {
        launcher
            .send_unexpected(from, TAG_DOWN, GARBAGE.to_vec())
            .unwrap();
    });
    assert!(
        why.starts_with("it sent 1 bytes that are no message of ropewalk"),
        "{why}"
    );
    branch.end_now(Branch::END);
}

/// A rank that answers where the node above should be is not obeyed, although it belongs to the job.
#[test]
fn a_rank_is_no_parent() {
    let mut rank = neighbour(Role::Rank);
    let parent = rank.address().clone();
    let mut branch = branch(position(NodeId(1), Some(parent)));
    branch.report(Report::Active);
    let lost = |event| match event {
        BranchEvent::ParentLost(why) => Some(why),
        _ => None,
    };
    let why = await_event(&mut branch, &mut rank, lost, |rank, from| {
        let order = encode(Head::default(), &[Down::Bye]);
        rank.send_unexpected(from, TAG_DOWN, order).unwrap();
    });
    assert_eq!(why, "another member of the job answered in its place");
    branch.end_now(Branch::END);
}

/// A suspended launcher goes on, and is connected long after the agent looked last: it has all of the detection time to
/// adopt the agent, not the rest of it since that look.
#[test]
fn a_launcher_that_goes_on_has_time_to_adopt() {
    let detect = Duration::from_secs(2);
    let mut spec = JobSpec {
        hosts: parse_hosts("above,below").unwrap(),
        reactions: OnFailure::Continue.into(),
        ..spec()
    };
    spec.first.ranks = 2;
    spec.agents.arity = 1;
    spec.time_limits.detect = detect;
    let mut launcher = neighbour(Role::Launcher);
    let mut above = neighbour(Role::Agent);
    let mut position = position_in(&spec, NodeId(2), Some(above.address().clone()));
    position.launcher = Some(launcher.address().clone());
    let mut branch = branch(position);
    let begun = Instant::now();
    while !branch.is_connected() {
        assert!(begun.elapsed() < LIMIT, "it has not connected");
        branch.progress();
        above.wait(Duration::from_millis(5));
        above.progress();
    }
    branch.set_launcher_suspended(true);
    drop(above);
    let is_sought = |branch: &Branch| {
        let peer = branch.above.peer;
        branch.above.node == NodeId::ROOT && peer.is_some_and(|peer| branch.endpoint.is_reached(peer))
    };
    while !is_sought(&branch) {
        assert!(begun.elapsed() < LIMIT, "the launcher is not sought");
        branch.progress();
        branch.flush();
    }
    std::thread::sleep(detect / 2);
    for _ in 0..20 {
        launcher.wait(Duration::from_millis(5));
        launcher.progress();
    }
    let resumed = branch.begun.elapsed();
    while !branch.is_connected() {
        assert!(begun.elapsed() < LIMIT, "the launcher is not reached");
        branch.progress();
        branch.flush();
        launcher.wait(Duration::from_millis(5));
        launcher.progress();
    }
    let deadline = branch.relay.deadline();
    assert!(
        deadline.is_some_and(|at| at >= resumed + detect),
        "{deadline:?} after {resumed:?}"
    );
    branch.end_now(Branch::END);
}
