//! Processes that speak through a bridge.

use ropewalk_pmi::{
    AbsentMembers, Action, Answer, BridgeToken, BridgedFence, ChildId, FenceId, FenceScope, GroupOptions,
    Question, RankSet, Server,
};

use super::{GROUP, drain, initialize, process, say, server};

fn fence(scope: FenceScope) -> FenceId {
    FenceId {
        scope,
        tag: "pmix".into(),
    }
}

/// A root and an agent below it, with ranks 0 and 1 here and rank 2 there.
fn tree() -> (Server, Server) {
    let options = || GroupOptions::one_host(GROUP, "kvs", 3);
    let mut root = Server::root();
    root.add_group(GroupOptions {
        local: RankSet::range(0, 2),
        children: vec![(ChildId(1), RankSet::range(2, 3))],
        ..options()
    });
    let mut below = Server::below_parent();
    below.add_group(GroupOptions {
        local: RankSet::range(2, 3),
        ..options()
    });
    (root, below)
}

/// Carries messages until there are none. Returns how fences ended, with the numbers of their bridges.
fn run(root: &mut Server, below: &mut Server) -> Vec<(u64, BridgedFence)> {
    let mut ends = Vec::new();
    loop {
        let mut is_quiet = true;
        while let Some(action) = root.poll_action() {
            is_quiet = false;
            match action {
                Action::ToChild { message, .. } => below.handle_down(message),
                Action::BridgedFenceEnded { token, end } => ends.push((token.0, end)),
                _ => {}
            }
        }
        while let Some(action) = below.poll_action() {
            is_quiet = false;
            match action {
                Action::ToParent { message } => root.handle_up(ChildId(1), message),
                Action::BridgedFenceEnded { token, end } => ends.push((token.0, end)),
                _ => {}
            }
        }
        if is_quiet {
            return ends;
        }
    }
}

/// All hosts get the data of all, in the order of their ranks, also if it makes several messages.
#[test]
fn data_reaches_all_hosts() {
    let (mut root, mut below) = tree();
    for (round, size) in [(0, 0), (1, 3), (2, 2_000_000)] {
        let world = fence(FenceScope::World);
        below.enter_bridged(BridgeToken(20 + round), GROUP, world.clone(), &vec![2; size]);
        assert_eq!(run(&mut root, &mut below), [], "rank 0 and 1 are missing");
        root.enter_bridged(BridgeToken(10 + round), GROUP, world, &vec![1; size]);
        let mut ends = run(&mut root, &mut below);
        ends.sort_by_key(|(token, _)| *token);
        let data = [vec![1; size], vec![2; size]].concat();
        let complete = BridgedFence::Complete(data);
        assert!(
            ends == [(10 + round, complete.clone()), (20 + round, complete)],
            "{size} bytes"
        );
    }
}

/// A fence of some ranks waits for those only, and leaves nothing on the others.
#[test]
fn a_fence_of_some_waits_for_those() {
    let (mut root, mut below) = tree();
    let some = fence(FenceScope::Ranks(RankSet::range(0, 1)));
    root.enter_bridged(BridgeToken(1), GROUP, some.clone(), b"a");
    let complete = BridgedFence::Complete(b"a".to_vec());
    assert_eq!(run(&mut root, &mut below), [(1, complete)]);
    root.enter_bridged(BridgeToken(2), GROUP, some, b"b");
    let complete = BridgedFence::Complete(b"b".to_vec());
    assert_eq!(run(&mut root, &mut below), [(2, complete)]);
}

/// A rank that died fails the fences that wait for it.
#[test]
fn a_lost_rank_fails_a_fence() {
    let (mut root, mut below) = tree();
    below.begin_bridged(process(2));
    root.enter_bridged(BridgeToken(1), GROUP, fence(FenceScope::World), b"a");
    below.handle_departure(process(2), true);
    assert_eq!(run(&mut root, &mut below), [(1, BridgedFence::Gone(2))]);
}

/// Who speaks through a bridge counts as one that has begun and ended, and its own connection counts no more.
#[test]
fn phases_are_those_of_the_bridge() {
    let mut server = server(2, AbsentMembers::Fail);
    initialize(&mut server, [0]);
    assert!(!server.has_spoken(process(1)));
    server.begin_bridged(process(1));
    assert!(server.has_spoken(process(1)) && server.is_unfinished(process(1)));
    server.handle_closed(super::connection(1));
    assert_eq!(say(&mut server, 0, "cmd=barrier_in"), [""; 0]);
    server.enter_bridged(BridgeToken(1), GROUP, FenceId::WORLD, b"");
    // The local ranks of a bridge's fence are all that are here: rank 0 waits in it already.
    assert!(!drain(&mut server).is_empty());
    server.finalize_bridged(process(1));
    assert!(!server.is_unfinished(process(1)));
}

/// Names are those of the job, whoever asks.
#[test]
fn names_are_shared_with_pmi() {
    let mut server = server(1, AbsentMembers::Fail);
    let publish = |port: &str| Question::Publish {
        service: "name".into(),
        port: port.into(),
    };
    let lookup = Question::Lookup {
        service: "name".into(),
    };
    let mut ask = |question| {
        server.ask_bridged(BridgeToken(7), question);
        match server.poll_action() {
            Some(Action::BridgedAnswer {
                token: BridgeToken(7),
                answer,
            }) => answer,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(publish("port")), Answer::Done { done: true });
    assert_eq!(ask(publish("other")), Answer::Done { done: false });
    let value = Some("port".into());
    assert_eq!(ask(lookup), Answer::Value { value });
}
