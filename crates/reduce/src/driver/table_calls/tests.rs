//! Ranks that call, stop anywhere and close each other's rows, one step after the other.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};
use ropewalk_fabric::TablePlace;
use ropewalk_membership::ProcessGroup;
use ropewalk_reduce_core::{Contributions, Member, Token};

use super::{tables::Seen, *};
use crate::{
    driver::reduction::{Completion, Slot},
    ids::{ReductionId, ReductionNumber},
    message::Introduction,
    operation::{Fold, Reducer, Sum},
    signature::{OnLoss, Order, RootFailure},
};

const RANKS: u32 = 3;
/// A long call has so many chunks of so many bytes, the last a bit shorter.
const CHUNKS: usize = 3;
const CHUNK: usize = 16 << 10;

/// The kinds of calls, by their number: the same for all ranks, unless one errs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Allreduce(Length),
    Reduce(u32, Length),
    Allgather(Length),
    Elsewhere,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Length {
    Short,
    /// It is combined in chunks.
    Long,
}

/// A step of a rank.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call,
    /// It calls for something else than the others.
    Err,
    Advance,
    /// It combines one chunk.
    Work,
    /// It claims a chunk, and stops or is killed before that is finished.
    Claim,
    /// It is killed; others hear of that later.
    Die,
    /// It hears of the next death.
    Hear,
    /// Its patience with all others is over.
    Close,
}

struct World {
    ranks: Vec<Caller>,
    dead: Vec<u32>,
    /// The table of all, if the ranks are a group of it: that of a process outside the group.
    outside: Option<CallTable>,
}

struct Caller {
    calls: TableCalls,
    made: u64,
    heard: usize,
    results: BTreeMap<u64, Option<Vec<u64>>>,
    left: BTreeMap<u64, Vec<u64>>,
    slots: BTreeMap<u64, Arc<Slot>>,
}

fn kind_of(number: u64) -> Kind {
    let root = (number / 5) as u32 % RANKS;
    match number % 8 {
        0 => Kind::Allreduce(Length::Short),
        1 => Kind::Allreduce(Length::Long),
        2 => Kind::Reduce(root, Length::Short),
        3 => Kind::Reduce(root, Length::Long),
        4 => Kind::Allgather(Length::Short),
        5 => Kind::Allgather(Length::Long),
        6 => Kind::Allreduce(Length::Long),
        _ => Kind::Elsewhere,
    }
}

fn elements(kind: Kind) -> usize {
    match kind {
        Kind::Allreduce(Length::Long) | Kind::Reduce(_, Length::Long) | Kind::Allgather(Length::Long) => {
            CHUNKS * CHUNK / 8 - 5
        }
        _ => 1,
    }
}

fn data(rank: u32, number: u64, kind: Kind) -> Vec<u64> {
    vec![contribution(rank, number); elements(kind)]
}

fn contribution(rank: u32, number: u64) -> u64 {
    1 << (8 * rank) << (number % 8)
}

fn world_id() -> GroupId {
    GroupId::of(&ProcessGroup::world(RANKS), Epoch(0))
}

fn signature(kind: Kind) -> Signature {
    let operation = Reducer::<Vec<u64>>::into_operation(Sum);
    let (contributions, root, is_spread) = match kind {
        Kind::Reduce(root, _) => (Contributions::Each, root, false),
        Kind::Allgather(_) => (Contributions::SideBySide, 0, true),
        Kind::Allreduce(_) | Kind::Elsewhere => (Contributions::Each, 0, true),
    };
    Signature {
        operation: operation.name,
        element: operation.element,
        element_size: operation.element_size,
        length: Some(8 * elements(kind) as u64),
        contributions,
        root: Rank(root),
        is_spread,
        order: Order::Any,
        on_loss: OnLoss::Fail,
        on_root_loss: RootFailure::Fail,
    }
}

fn table_call(rank: u32, number: u64, kind: Kind, completion: Completion) -> TableCall {
    let members = ProcessGroup::world(RANKS);
    let signature = signature(kind);
    let id = ReductionId {
        group: world_id(),
        number: ReductionNumber::Call(number),
    };
    let fold: Fold = Reducer::<Vec<u64>>::into_operation(Sum).fold;
    let begin = Begin {
        id,
        call: signature.call(&members).unwrap(),
        members,
        place: Member(rank),
        introduction: Introduction {
            session: id.session(),
            members: None,
            signature: Some(signature.clone()),
        },
        originals: Originals::Shared(BTreeMap::new()),
        length: 8 * elements(kind) as u64,
        fold: fold.clone(),
        timeout: None,
        copies: None,
        completion,
    };
    let (is_taken, root) = (!signature.is_spread, signature.root.0);
    let long = match fold {
        Fold::Elements(fold) if elements(kind) > 1 => {
            let rows = (root as usize, rank as usize);
            let long = LongCall::new(number, &signature, fold, rows, RANKS as usize, false);
            Some(Arc::new(long))
        }
        _ => None,
    };
    TableCall {
        begin,
        call: TableCalls::compared(&signature, is_taken).unwrap(),
        signature,
        contributes: true,
        taker: is_taken.then_some(Rank(root)),
        since: Instant::now(),
        long,
        is_overdue: false,
        among_hosts: None,
    }
}

impl World {
    /// The ranks are all of a table, or a group there.
    fn new(is_group: bool) -> Self {
        let processes = RANKS as usize + usize::from(is_group);
        let first = CallTable::create(processes, 0).unwrap();
        let place: TablePlace = first.place().to_string().parse().unwrap();
        let others = (1..processes).map(|own| CallTable::open(&place, processes, own).unwrap());
        let others: Vec<_> = others.collect();
        let mut tables: Vec<_> = std::iter::once(first).chain(others).collect();
        let outside = is_group.then(|| tables.remove(0));
        if is_group {
            // A group has an order of its own.
            tables.reverse();
            let rows: Vec<usize> = (1..processes).rev().collect();
            let section = |table: CallTable| table.section(world_id().0, &rows).unwrap();
            tables = tables.into_iter().map(section).collect();
        }
        let ranks = tables.into_iter().zip(0..).map(|(table, rank)| Caller {
            calls: TableCalls {
                patience: Duration::ZERO,
                ..TableCalls::of_ranks(table, world_id(), Rank(rank), (0..RANKS).map(Rank).collect())
            },
            made: 0,
            heard: 0,
            results: BTreeMap::new(),
            left: BTreeMap::new(),
            slots: BTreeMap::new(),
        });
        Self {
            ranks: ranks.collect(),
            dead: Vec::new(),
            outside,
        }
    }

    fn living(&self) -> impl Iterator<Item = u32> {
        (0..RANKS).filter(|rank| !self.dead.contains(rank))
    }

    /// As soon as one rank has left the table all know from which call on, whatever they still work on: they have to
    /// know then what the dead have left.
    fn check_where_they_leave(&self) -> Result<(), TestCaseError> {
        let calls = || self.living().map(|rank| &self.ranks[rank as usize].calls);
        if let Some(left) = calls().find_map(|calls| calls.lock().left_from) {
            let mut known: Vec<_> = calls().map(|calls| calls.seen().first_left()).collect();
            known.extend(self.seen_outside(|seen| seen.first_left()));
            prop_assert!(known.iter().all(|from| *from == Some(left)), "{left}: {known:?}");
        }
        // A dead rank may have waited for a place with the call that comes next: others may end theirs here.
        for calls in calls().filter(|calls| calls.seen().first_left().is_none()) {
            let seen = calls.seen();
            let may_end = |dead: &u32| {
                let next = seen.rows.posted(*dead as usize);
                next < seen.rows.finished() || seen.may_end(Rank(*dead), next)
            };
            prop_assert!(self.dead.iter().all(may_end));
        }
        Ok(())
    }

    /// As a process outside the group sees its calls, if there is one.
    fn seen_outside<R>(&self, look: impl FnOnce(&Seen<'_>) -> R) -> Option<R> {
        let section = self.outside.as_ref()?.sections().next().unwrap();
        Some(look(&Seen {
            rows: &section.rows,
            group: world_id(),
            ranks: &self.ranks[0].calls.ranks,
            members: None,
            is_own: true,
        }))
    }

    fn step(&mut self, rank: u32, step: Step) {
        if self.dead.contains(&rank) {
            return;
        }
        let own = &mut self.ranks[rank as usize];
        match step {
            Step::Call => own.call(rank, kind_of(own.made)),
            Step::Err => own.call(rank, Kind::Reduce(rank, Length::Short)),
            Step::Advance => own.advance(),
            Step::Work => {
                let ends = own.calls.advance(1);
                own.take(ends);
            }
            Step::Claim => {
                let first = own.calls.lock().next;
                if own.calls.table.state(first) == CallState::Posted {
                    own.calls.table.claim(first, CHUNKS as u32);
                }
            }
            Step::Die if self.dead.len() + 1 < RANKS as usize => self.dead.push(rank),
            Step::Die => {}
            Step::Hear => {
                if let Some(&dead) = self.dead.get(own.heard) {
                    own.heard += 1;
                    own.calls.close_of(Rank(dead));
                    own.advance();
                }
            }
            Step::Close => {
                (0..RANKS)
                    .filter(|other| *other != rank)
                    .for_each(|other| own.calls.close_of(Rank(other)));
                own.advance();
            }
        }
    }
}

impl Caller {
    fn call(&mut self, rank: u32, kind: Kind) {
        let number = self.made;
        self.made += 1;
        if kind == Kind::Elsewhere {
            let ends = self.calls.pass(number);
            return self.take(ends);
        }
        let (completion, slot) = Completion::new(None);
        self.slots.insert(number, slot);
        let data = data(rank, number, kind);
        let bytes: &[u8] = bytemuck::cast_slice(&data);
        let call = table_call(rank, number, kind, completion);
        match self.calls.offer(number, call, bytes) {
            Offer::Posted => {}
            Offer::Waits(mut call) => {
                call.begin.originals = Originals::Own {
                    token: Token(0),
                    bytes: Bytes::copy_from_slice(bytes),
                    begin: 0,
                    hold: None,
                };
                let ends = self.calls.keep(number, call);
                self.take(ends);
            }
            Offer::Refused(_) => drop(self.left.insert(number, data)),
        }
    }

    fn advance(&mut self) {
        let ends = self.calls.advance(usize::MAX);
        self.take(ends);
    }

    fn take(&mut self, ends: Ends) {
        for ended in ends.ended {
            let (receipt, result) = ended.result.unwrap();
            assert_eq!(receipt.contributions, RANKS);
            let number = self.results.len() as u64 + self.results.len() as u64 / 7;
            let result = result.map(|memory| match memory {
                ResultMemory::Elements(elements) => *elements.into_any().downcast::<Vec<u64>>().unwrap(),
                ResultMemory::Object(_) => panic!("a vector was reduced"),
            });
            self.results.insert(number, result);
        }
        for begin in ends.left {
            let ReductionNumber::Call(number) = begin.id.number else {
                panic!()
            };
            let Originals::Own { bytes, .. } = begin.originals else {
                panic!("{number} has no contribution")
            };
            self.left.insert(number, bytemuck::pod_collect_to_vec(&bytes));
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => Just(Step::Call),
        20 => Just(Step::Advance),
        20 => Just(Step::Work),
        3 => Just(Step::Claim),
        10 => Just(Step::Hear),
        1 => Just(Step::Die),
        1 => Just(Step::Close),
        1 => Just(Step::Err),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is interleaved: all ranks that live agree on the calls that end in the table, these have the right
    /// results, and of all others every contribution that was posted is found, that of the dead too.
    #[test]
    fn all_agree_and_nothing_is_lost(is_group: bool, steps in vec((0..RANKS, step()), 1..300)) {
        let mut world = World::new(is_group);
        for (rank, step) in steps {
            world.step(rank, step);
            world.check_where_they_leave()?;
        }
        let living: Vec<u32> = world.living().collect();
        // All that live make as many calls, and hear of all deaths.
        let most = living.iter().map(|rank| world.ranks[*rank as usize].made).max().unwrap();
        for _ in 0..2 {
            for &rank in &living {
                while world.ranks[rank as usize].made < most {
                    world.step(rank, Step::Call);
                    for &other in &living {
                        world.step(other, Step::Advance);
                    }
                }
                (0..RANKS).for_each(|_| world.step(rank, Step::Hear));
            }
        }
        (0..2 * RANKS).for_each(|turn| world.step(living[turn as usize % living.len()], Step::Advance));
        let ends: Vec<_> = living.iter().map(|rank| world.ranks[*rank as usize].calls.lock().left_from).collect();
        prop_assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
        let end = ends[0].unwrap_or(most);
        for &rank in &living {
            let own = &world.ranks[rank as usize];
            for number in (0..end).filter(|number| kind_of(*number) != Kind::Elsewhere) {
                let kind = kind_of(number);
                let all = (0..RANKS).map(|rank| data(rank, number, kind));
                let sum = (0..RANKS).map(|rank| contribution(rank, number)).sum();
                let expected = match kind {
                    Kind::Reduce(root, _) if root != rank => None,
                    Kind::Allgather(_) => Some(all.flatten().collect()),
                    _ => Some(vec![sum; elements(kind)]),
                };
                prop_assert!(own.results.get(&number) == Some(&expected), "call {} of {}", number, rank);
                // A result that nobody has is none.
                if let Kind::Reduce(root, _) = kind {
                    let root = &world.ranks[root as usize];
                    prop_assert!(matches!(root.results.get(&number), Some(Some(_))), "call {}", number);
                }
            }
            for (&number, data) in &own.left {
                prop_assert!(number >= end);
                prop_assert!(data.iter().all(|element| *element == contribution(rank, number)));
            }
            // All have heard of the dead, and have made these calls: what the agents hold of the dead counts.
            for &dead in &world.dead {
                let seen = own.calls.seen();
                let still = (0..most).find(|number| seen.may_end(Rank(dead), *number));
                prop_assert!(still.is_none(), "call {still:?} of {dead} may end, as {rank} sees it");
            }
            for &dead in world.dead.iter().filter(|_| ends[0].is_some()) {
                let dead_rank = &world.ranks[dead as usize];
                let left = |seen: &Seen<'_>| {
                    let left = seen.left_by(dead as usize, end).into_iter();
                    let left = left.map(|legacy| {
                        let data = legacy.data.unwrap();
                        (legacy.contribution.session.call, data[..8].to_vec())
                    });
                    left.collect::<Vec<_>>()
                };
                let found = left(&own.calls.seen());
                prop_assert!(world.seen_outside(left).is_none_or(|outside| outside == found));
                let posted = end..own.calls.table.view().posted(dead as usize);
                let posted = posted.filter(|call| dead_rank.slots.contains_key(call));
                let posted: Vec<_> = posted
                    .map(|call| (call, contribution(dead, call).to_ne_bytes().to_vec()))
                    .collect();
                prop_assert_eq!(found, posted);
            }
        }
    }
}
