//! The parts of one stripe: what was made from what, where it is, and what is free to be combined.

use std::ops::Range;

use ropewalk_names::Rank;

use crate::{ids::TaskId, message::Source};

/// The parts of one stripe of one reduction.
///
/// The first parts are the members' original contributions, by index. Every further one is made from two
/// earlier ones, so the parts form a forest; a part is an operand at most once in the life of its product, and
/// so the contributions in any two free parts are disjoint.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Vec<Part>,
    /// The parts that are free to be combined, longest free first: the paper's queue Q.
    ready: Vec<u32>,
    members: u32,
}

/// One part: immutable content under a number that is never used again.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The smallest interval of members' indices that covers the contributions in it.
    pub(super) span: Range<u32>,
    /// How many contributions are in it.
    pub(super) contributions: u32,
    /// The left and right part it is made from; `None` for an original.
    pub(super) children: Option<[u32; 2]>,
    pub(super) home: Home,
    pub(super) source: Option<Source>,
    pub(super) state: State,
    /// The paper's fault-tolerance flag: an original that was put back after a death.
    pub(super) put_back: bool,
}

/// Who serves a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// The agent of a member that is gone.
    Agent,
    /// A live rank.
    Rank(Rank),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// An original that was not announced yet.
    Awaited,
    /// Its product exists.
    Combined,
    /// Its holder is gone, or the task that should make it was cancelled.
    Lost,
    /// An operand of a task under way.
    Operand(TaskId),
    /// What a task under way will make.
    Product(TaskId),
    /// Free to be combined.
    Ready,
}

impl Parts {
    /// The parts of a stripe to which these members (ranks, by index) contribute.
    pub(super) fn new(members: &[Rank]) -> Self {
        let parts = members.iter().zip(0u32..).map(|(&rank, index)| Part {
            span: index..index + 1,
            contributions: 1,
            children: None,
            home: Home::Rank(rank),
            source: None,
            state: State::Awaited,
            put_back: false,
        });
        Self {
            parts: parts.collect(),
            ready: Vec::new(),
            members: members.len() as u32,
        }
    }

    pub(super) fn get(&self, number: u32) -> &Part {
        &self.parts[number as usize]
    }

    /// The free parts with their numbers, longest free first.
    pub(super) fn ready(&self) -> impl Iterator<Item = (u32, &Part)> + Clone {
        self.ready.iter().map(|&number| (number, self.get(number)))
    }

    /// Whether some contribution is not in any free part: more free parts are to come.
    pub(super) fn is_waiting(&self) -> bool {
        let free: u32 = self.ready().map(|(_, part)| part.contributions).sum();
        free < self.members
    }

    /// The numbers of the parts that `holder` serves.
    pub(super) fn held_by(&self, holder: Rank) -> Vec<u32> {
        let held = self.parts.iter().zip(0..).filter(|(part, _)| {
            part.home == Home::Rank(holder) && !matches!(part.state, State::Lost | State::Product(_))
        });
        held.map(|(_, number)| number).collect()
    }

    /// An original contribution is there.
    pub(super) fn announce(&mut self, member: u32, source: Source) {
        self.parts[member as usize].source = Some(source);
        self.make_ready(member);
    }

    /// Where a part is read has changed.
    pub(super) fn relocate(&mut self, number: u32, home: Home, source: Source) {
        let part = &mut self.parts[number as usize];
        part.home = home;
        part.source = Some(source);
    }

    /// Sets the operands of a task aside, and gives the number of what it will make.
    pub(super) fn start(&mut self, task: TaskId, left: u32, right: Option<u32>, executor: Rank) -> u32 {
        for number in [Some(left), right].into_iter().flatten() {
            assert_eq!(
                self.get(number).state,
                State::Ready,
                "part {number} is free when a task takes it"
            );
            self.parts[number as usize].state = State::Operand(task);
            self.ready.retain(|&ready| ready != number);
        }
        let right = right.unwrap_or(left);
        let (a, b) = (self.get(left), self.get(right));
        let contributions = if left == right {
            a.contributions
        } else {
            a.contributions + b.contributions
        };
        let product = Part {
            span: a.span.start.min(b.span.start)..a.span.end.max(b.span.end),
            contributions,
            children: Some([left, right]),
            home: Home::Rank(executor),
            source: None,
            state: State::Product(task),
            put_back: false,
        };
        self.parts.push(product);
        self.parts.len() as u32 - 1
    }

    /// A task is done: its product is free now, and its operands are used up.
    pub(super) fn finish(&mut self, product: u32, source: Option<Source>) {
        for operand in self.get(product).children.into_iter().flatten() {
            self.parts[operand as usize].state = State::Combined;
        }
        self.parts[product as usize].source = source;
        self.make_ready(product);
    }

    /// A task will not be done: its operands are free again.
    pub(super) fn cancel(&mut self, product: u32) {
        self.parts[product as usize].state = State::Lost;
        let [left, right] = self.get(product).children.unwrap_or([product; 2]);
        self.make_ready(left);
        if right != left {
            self.make_ready(right);
        }
    }

    /// The content of a part is gone. If it was free, its children take its place, and those of lost children
    /// in their turn. Returns how many combinations are to be made again.
    pub(super) fn lose(&mut self, number: u32) -> u64 {
        let was_ready = self.mark_lost(number);
        if was_ready {
            self.revive_children(number)
        } else {
            0
        }
    }

    /// The content of a part is gone. If it was free, all the original contributions in it take its place
    /// with the flag (the paper's recovery, step 3). Returns how many combinations are to be made again.
    pub(super) fn lose_to_originals(&mut self, number: u32) -> u64 {
        if !self.mark_lost(number) {
            return 0;
        }
        let originals = self.originals_in(number);
        for &original in &originals {
            self.put_back(original);
        }
        originals.len() as u64 - 1
    }

    /// A free original is read from elsewhere from now on; it goes to the end of the queue with the flag.
    pub(super) fn put_back(&mut self, original: u32) {
        self.parts[original as usize].put_back = true;
        self.make_ready(original);
    }

    /// The original contributions in a part.
    pub(super) fn originals_in(&self, number: u32) -> Vec<u32> {
        let mut originals = Vec::new();
        let mut rest = vec![number];
        while let Some(number) = rest.pop() {
            match self.get(number).children {
                Some([left, right]) if left == right => rest.push(left),
                Some([left, right]) => rest.extend([right, left]),
                None => originals.push(number),
            }
        }
        originals
    }

    fn make_ready(&mut self, number: u32) {
        self.parts[number as usize].state = State::Ready;
        self.ready.retain(|&ready| ready != number);
        self.ready.push(number);
    }

    fn mark_lost(&mut self, number: u32) -> bool {
        let was_ready = self.get(number).state == State::Ready;
        self.parts[number as usize].state = State::Lost;
        self.ready.retain(|&ready| ready != number);
        was_ready
    }

    fn revive_children(&mut self, number: u32) -> u64 {
        let mut redone = 1;
        let [left, right] = self.get(number).children.unwrap_or([number; 2]);
        for child in [left, right] {
            match self.get(child).state {
                State::Combined => self.make_ready(child),
                State::Lost => redone += self.revive_children(child),
                state => unreachable!("part {child} was combined into part {number}, yet is {state:?}"),
            }
        }
        redone
    }
}
