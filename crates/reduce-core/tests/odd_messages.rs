//! Messages that make no sense, as from a peer with a defect: nothing panics, and no memory grows with their numbers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use proptest::prelude::*;
use ropewalk_reduce_core::{
    Call, ChunkHeader, Chunking, Contributions, Costs, FromScheduler, GiveUp, Grant, Input, Member,
    MergedShare, OnLoss, OnRootLoss, Order, PlanId, RateBounds, Roster, Row, RowNode, Scheduler, Session,
    ShareId, Site, Standing, StreamId, Term, ToScheduler, Token, Worker, WorkerAction,
};

const SESSION: Session = Session { group: 1, call: 0 };

/// A small number, or one at the end of the range.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![20 => 0_u32..4, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn plan() -> impl Strategy<Value = PlanId> {
    (number(), number()).prop_map(|(term, number)| PlanId {
        term: Term(term),
        number,
    })
}

fn stream() -> impl Strategy<Value = StreamId> {
    (plan(), 0_u16..4, number()).prop_map(|(plan, class, node)| StreamId { plan, class, node })
}

fn chunking() -> impl Strategy<Value = Chunking> {
    (number(), 0_u32..4, 0_u64..9, 0_u16..4).prop_map(|(bytes, blocks, chunk_bytes, classes)| Chunking {
        bytes: bytes.into(),
        blocks,
        chunk_bytes,
        classes,
    })
}

fn roster() -> impl Strategy<Value = Roster> {
    let excluded = prop::collection::vec(number().prop_map(Member), 0..3);
    (number(), number(), excluded).prop_map(|(generation, root, excluded)| Roster {
        generation,
        root: Member(root),
        excluded,
    })
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        number().prop_map(|member| Input::Own(Member(member))),
        (number(), number()).prop_map(|(site, node)| Input::Child(Site(site), node)),
        Just(Input::Final),
    ]
}

fn node() -> impl Strategy<Value = RowNode> {
    let inputs = prop::collection::vec(input(), 0..4);
    let parent = prop::option::of((number().prop_map(Site), number()));
    (0_u16..4, number(), number(), inputs, parent).prop_map(|(class, node, from, inputs, parent)| RowNode {
        class,
        node,
        from,
        inputs,
        parent,
    })
}

fn members() -> impl Strategy<Value = Vec<(Member, Token)>> {
    let member = (number(), 0_u128..4).prop_map(|(member, token)| (Member(member), Token(token)));
    prop::collection::vec(member, 0..4)
}

fn row() -> impl Strategy<Value = Row> {
    let nodes = prop::collection::vec(node(), 0..4);
    let given = prop::collection::vec(number(), 0..3);
    (
        plan(),
        number(),
        chunking(),
        nodes,
        members(),
        number(),
        roster(),
        given,
        prop::collection::vec(number(), 0..3),
        prop::option::weighted(0.2, calls().prop_map(Box::new)),
    )
        .prop_map(
            |(plan, share, chunking, nodes, members, members_in_all, roster, given, kept, ahead_of)| Row {
                session: SESSION,
                plan,
                share: ShareId(share),
                chunking,
                kept,
                nodes,
                members,
                members_in_all,
                given: given.into_iter().map(Member).collect(),
                roster,
                ahead_of,
            },
        )
}

#[derive(Clone, Debug)]
enum ToWorker {
    Scheduler(FromScheduler),
    Grant(Grant),
    Chunk(ChunkHeader),
    /// Answer the oldest action that wants an answer.
    Answer,
    Unreachable(u32),
}

fn to_worker() -> impl Strategy<Value = ToWorker> {
    let grant = (stream(), number(), number()).prop_map(|(to, taken, until)| Grant {
        session: SESSION,
        to,
        taken,
        until,
    });
    let chunk = (stream(), number(), number()).prop_map(|(to, from, index)| ChunkHeader {
        session: SESSION,
        to,
        from,
        index,
        tokens: Token(1),
    });
    prop_oneof![
        4 => row().prop_map(|row| ToWorker::Scheduler(FromScheduler::Row(row))),
        1 => number().prop_map(|term| ToWorker::Scheduler(FromScheduler::NewTerm(Term(term)))),
        4 => grant.prop_map(ToWorker::Grant),
        4 => chunk.prop_map(ToWorker::Chunk),
        4 => Just(ToWorker::Answer),
        1 => number().prop_map(ToWorker::Unreachable),
    ]
}

/// Calls of all kinds, with more shared contributions than there may be, and of ranks that are none.
fn calls() -> impl Strategy<Value = Call> {
    let contributions = prop_oneof![
        4 => Just(Contributions::Each),
        1 => number().prop_map(Contributions::Shared),
        1 => number().prop_map(|rank| Contributions::One(Member(rank))),
        2 => Just(Contributions::SideBySide),
    ];
    (contributions, any::<bool>()).prop_map(|(contributions, is_spread)| Call {
        contributions,
        is_spread,
        ..call()
    })
}

fn call() -> Call {
    Call {
        contributions: Contributions::Each,
        bytes: 40,
        element_bytes: 8,
        root: Member(0),
        is_spread: false,
        order: Order::Any,
        operation: 1,
        on_loss: OnLoss::Exclude,
        on_root_loss: OnRootLoss::MoveTo(Member(1)),
        gives_way_to: None,
    }
}

fn bounds() -> impl Strategy<Value = RateBounds> {
    (any::<f64>(), any::<f64>()).prop_map(|(least, most)| RateBounds { least, most })
}

fn to_scheduler() -> impl Strategy<Value = ToScheduler> {
    let session = SESSION;
    let merged = || prop::collection::vec(number(), 0..4);
    let shares = prop::collection::vec(
        (number(), prop::collection::vec(number(), 0..3), merged()).prop_map(|(share, members, merged)| {
            MergedShare {
                id: ShareId(share),
                members: members.into_iter().map(Member).collect(),
                tokens: Token(share.into()),
                merged,
            }
        }),
        0..3,
    );
    let standing = (
        calls(),
        members(),
        shares,
        prop::option::of(chunking()),
        prop::option::of(roster()),
    )
        .prop_map(move |(call, originals, shares, chunking, roster)| Standing {
            session,
            call,
            originals,
            shares,
            chunking,
            roster,
            end: None,
        });
    prop_oneof![
        4 => ((calls(), members()), any::<bool>())
            .prop_map(move |((call, originals), are_enclosed)| ToScheduler::Announce {
                session,
                call,
                originals,
                are_enclosed,
            }),
        1 => prop::collection::vec((number().prop_map(Site), bounds()), 0..4).prop_map(ToScheduler::Rates),
        2 => (number(), merged()).prop_map(move |(share, merged)| ToScheduler::Progress {
            session,
            generation: 0,
            merged: vec![(ShareId(share), merged)],
        }),
        1 => (number(), number(), 0_u128..8, any::<bool>())
            .prop_map(move |(term, generation, tokens, is_enclosed)| ToScheduler::Complete {
            session,
            term: Term(term),
            generation,
            tokens: Token(tokens),
            is_for_all: is_enclosed,
            is_enclosed,
        }),
        2 => (plan(), number()).prop_map(move |(plan, site)| ToScheduler::Unreachable {
            session,
            plan,
            site: Site(site),
        }),
        1 => number().prop_map(move |member| ToScheduler::GiveUp {
            session,
            member: Member(member),
            reason: GiveUp::TimedOut,
        }),
        1 => Just(ToScheduler::Leave { why: String::new() }),
        3 => (number(), prop::collection::vec(standing, 0..2))
            .prop_map(|(term, sessions)| ToScheduler::Standing { term: Term(term), sessions }),
    ]
}

proptest! {
    /// A worker survives any messages of schedulers and neighbours.
    #[test]
    fn workers_survive(inputs in prop::collection::vec(to_worker(), 0..60)) {
        let mut worker = Worker::new(Site(1), Site(0), Term(0));
        worker.contribute(SESSION, call(), vec![(Member(1), Token(1)), (Member(2), Token(2))]);
        let mut open = Vec::new();
        for input in inputs {
            while let Some(action) = worker.poll_action() {
                if matches!(action, WorkerAction::SendChunk(_) | WorkerAction::Fold { .. }) {
                    open.push(action);
                }
            }
            match input {
                ToWorker::Scheduler(message) => worker.handle_scheduler(Site(0), message),
                ToWorker::Grant(grant) => worker.handle_grant(grant),
                ToWorker::Chunk(chunk) => {
                    worker.place(&chunk);
                    worker.handle_chunk(&chunk);
                }
                ToWorker::Unreachable(site) => worker.handle_unreachable(Site(site)),
                ToWorker::Answer if open.is_empty() => {}
                ToWorker::Answer => match open.remove(0) {
                    WorkerAction::SendChunk(chunk) => worker.handle_delivered(chunk.to, &chunk.header),
                    WorkerAction::Fold { session, stream, index, .. } => {
                        worker.handle_folded(session, stream, index);
                    }
                    _ => {}
                },
            }
        }
    }

    /// A scheduler survives any messages of sites, losses too, in its first seat and in one that took over.
    #[test]
    fn schedulers_survive(
        inputs in prop::collection::vec((number(), prop::option::of(to_scheduler())), 0..40),
        takes_over in any::<bool>(),
    ) {
        let costs = Costs { latency: 1e-4, per_chunk: 1e-6, rate: 1e8 };
        let mut scheduler = Scheduler::new(Site(0), costs, Duration::from_millis(1));
        scheduler.add_group(SESSION.group, (0..4).map(Site).collect());
        if takes_over {
            scheduler = scheduler.take_over((0..2).map(Site));
        }
        for (at, (site, message)) in inputs.into_iter().enumerate() {
            let now = Duration::from_millis(at as u64);
            match message {
                Some(message) => scheduler.handle_message(now, Site(site), message),
                None => scheduler.handle_lost(now, Site(site)),
            }
            if scheduler.poll_timeout().is_some_and(|deadline| deadline <= now) {
                scheduler.handle_timeout(now);
            }
            while scheduler.poll_action().is_some() {}
        }
    }
}
