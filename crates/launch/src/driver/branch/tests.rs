use std::net::Ipv4Addr;

use ropewalk_fabric::{EndpointOptions, Identity, Role};
use ropewalk_launch_core::{
    JobSpec, StartMethod,
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

/// A node of a job on one other host, whose agent is started by a command that does nothing.
fn position(node: NodeId, parent: Option<Address>) -> Position {
    let words = ["sh", "-c", "exec sleep 60"].map(Into::into);
    let spec = JobSpec {
        hosts: parse_hosts("elsewhere").unwrap(),
        interface: Some(LOOPBACK),
        method: StartMethod::Command(words.into()),
        ..JobSpec::new("agent", "program")
    };
    let around = Surroundings {
        job: JobId([1; 16]),
        host_name: "here".to_owned(),
        processors: 1,
        environment: vec![],
        working_directory: None,
    };
    let plan = Arc::new(plan(&spec, around).unwrap());
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
