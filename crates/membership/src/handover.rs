//! The members of an epoch go on to the next one together.

use std::collections::{BTreeSet, VecDeque};

use ropewalk_names::Rank;

/// One member's part in the step from an epoch to the next.
///
/// A member is ready when it wants nothing more of the others in the old epoch; they may still want something of it.
/// So it enters the next one when it knows that all members are ready or gone. It asks the lowest member that lives,
/// which enters when all have asked. If that one is lost the next lowest takes its place, and asks those that have not
/// asked it: they may have entered already. Who has entered answers all that have asked, and all that ask later.
///
/// It does no I/O and keeps no time: events go in, actions come out.
///
/// # Examples
/// ```
/// use ropewalk_membership::{Handover, HandoverAction};
/// use ropewalk_names::Rank;
///
/// let mut handover = Handover::new(Rank(0), [Rank(0), Rank(2)]);
/// assert_eq!(handover.poll(), Some(HandoverAction::Ask(Rank(2))));
/// handover.handle_asked(Rank(2));
/// assert_eq!(handover.poll(), Some(HandoverAction::Enter));
/// ```
#[derive(Clone, Debug)]
pub struct Handover {
    own: Rank,
    /// The other members that live.
    others: BTreeSet<Rank>,
    /// Those of them that are ready, as far as is known.
    ready: BTreeSet<Rank>,
    /// Those that this one has asked, and that have not answered.
    asked: BTreeSet<Rank>,
    has_entered: bool,
    actions: VecDeque<HandoverAction>,
}

/// Something that a [`Handover`] wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverAction {
    /// Tell this member that this one is ready, and let it answer when it has entered.
    Ask(Rank),
    /// This member enters the epoch.
    Enter,
}

impl Handover {
    /// The part of `own`, which is ready, among these members.
    pub fn new(own: Rank, members: impl IntoIterator<Item = Rank>) -> Self {
        let mut handover = Self {
            own,
            others: members.into_iter().filter(|rank| *rank != own).collect(),
            ready: BTreeSet::new(),
            asked: BTreeSet::new(),
            has_entered: false,
            actions: VecDeque::new(),
        };
        handover.go_on();
        handover
    }

    /// Another member asks: it is ready.
    pub fn handle_asked(&mut self, by: Rank) {
        self.ready.insert(by);
        self.go_on();
    }

    /// A member that was asked has entered.
    pub fn handle_answered(&mut self) {
        self.enter();
    }

    /// A member that was asked has not got the question, or its answer is lost.
    pub fn handle_unanswered(&mut self, by: Rank) {
        self.asked.remove(&by);
        self.go_on();
    }

    /// A member is gone.
    pub fn handle_gone(&mut self, rank: Rank) {
        self.others.remove(&rank);
        self.go_on();
    }

    /// The members of which this one waits to hear: that they are ready, or that they have entered.
    pub fn awaited(&self) -> impl Iterator<Item = Rank> {
        let first = self.others.first().filter(|first| **first < self.own);
        let unready = self
            .others
            .difference(&self.ready)
            .filter(move |_| first.is_none());
        first.into_iter().chain(unready).copied()
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<HandoverAction> {
        self.actions.pop_front()
    }

    fn go_on(&mut self) {
        if self.has_entered {
            return;
        }
        if self.others.is_subset(&self.ready) {
            return self.enter();
        }
        let lowest = self.others.first().copied();
        let is_lowest = lowest.is_none_or(|lowest| self.own < lowest);
        let to_ask: Vec<Rank> = match is_lowest {
            true => self.others.difference(&self.ready).copied().collect(),
            false => lowest.into_iter().collect(),
        };
        for rank in to_ask {
            if self.asked.insert(rank) {
                self.actions.push_back(HandoverAction::Ask(rank));
            }
        }
    }

    fn enter(&mut self) {
        if !std::mem::replace(&mut self.has_entered, true) {
            self.actions.push_back(HandoverAction::Enter);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Something that happens in a world of members.
    #[derive(Clone, Debug)]
    enum Message {
        Question { from: Rank, to: Rank },
        Answer { to: Rank },
        Gone { to: Rank, rank: Rank },
    }

    /// Members that become ready one after the other, messages that arrive in any order, and some that die.
    struct World {
        living: BTreeMap<Rank, Option<Handover>>,
        entered: BTreeSet<Rank>,
        /// Questions whose receivers have not entered.
        open: Vec<(Rank, Rank)>,
        messages: Vec<Message>,
        members: Vec<Rank>,
    }

    impl World {
        fn new(size: u32) -> Self {
            let members: Vec<Rank> = (0..size).map(Rank).collect();
            Self {
                living: members.iter().map(|rank| (*rank, None)).collect(),
                entered: BTreeSet::new(),
                open: Vec::new(),
                messages: Vec::new(),
                members,
            }
        }

        fn become_ready(&mut self, rank: Rank, gone: &BTreeSet<Rank>) {
            let mut handover = Handover::new(rank, self.members.iter().copied());
            gone.iter().for_each(|gone| handover.handle_gone(*gone));
            for (from, _) in self.open.iter().filter(|(_, to)| *to == rank) {
                handover.handle_asked(*from);
            }
            self.living.insert(rank, Some(handover));
            self.act(rank);
        }

        fn act(&mut self, rank: Rank) {
            let Some(Some(handover)) = self.living.get_mut(&rank) else {
                return;
            };
            let actions: Vec<_> = std::iter::from_fn(|| handover.poll()).collect();
            for action in actions {
                match action {
                    HandoverAction::Ask(to) => self.messages.push(Message::Question { from: rank, to }),
                    HandoverAction::Enter => {
                        let unready = self.living.iter().find(|(_, handover)| handover.is_none());
                        assert!(unready.is_none(), "{rank} enters before {unready:?} is ready");
                        assert!(self.entered.insert(rank), "{rank} enters twice");
                        let answered = self.open.extract_if(.., |(_, to)| *to == rank);
                        let answers = answered.map(|(to, _)| Message::Answer { to });
                        self.messages.extend(answers);
                    }
                }
            }
        }

        fn deliver(&mut self, message: Message) {
            match message {
                Message::Question { from, to } => match self.living.get_mut(&to) {
                    // A member that is gone answers nothing, and who asked hears that it is gone.
                    None => {}
                    _ if self.entered.contains(&to) => self.messages.push(Message::Answer { to: from }),
                    Some(None) => self.open.push((from, to)),
                    Some(Some(handover)) => {
                        self.open.push((from, to));
                        handover.handle_asked(from);
                        self.act(to);
                    }
                },
                Message::Answer { to } => {
                    if let Some(Some(handover)) = self.living.get_mut(&to) {
                        handover.handle_answered();
                        self.act(to);
                    }
                }
                Message::Gone { to, rank } => {
                    if let Some(Some(handover)) = self.living.get_mut(&to) {
                        handover.handle_gone(rank);
                        self.act(to);
                    }
                }
            }
        }
    }

    proptest! {
        /// Nobody enters before all that live are ready, and all that live enter, no matter who dies and in which order
        /// messages come.
        #[test]
        fn all_enter_when_all_are_ready(
            size in 1_u32..9,
            order in prop::collection::vec(any::<prop::sample::Index>(), 300),
            deaths in prop::collection::vec((0_usize..60, 0_u32..9), 0..4),
        ) {
            let mut world = World::new(size);
            let mut gone = BTreeSet::new();
            let mut unready: Vec<Rank> = world.members.clone();
            let mut order = order.into_iter();
            for step in 0.. {
                for (_, rank) in deaths.iter().filter(|(at, rank)| *at == step && *rank < size) {
                    let rank = Rank(*rank);
                    world.living.remove(&rank);
                    unready.retain(|other| *other != rank);
                    gone.insert(rank);
                    let hear = world.living.keys().map(|to| Message::Gone { to: *to, rank });
                    world.messages.extend(hear.collect::<Vec<_>>());
                }
                let choices = world.messages.len() + unready.len();
                if choices == 0 {
                    if step > 60 {
                        break;
                    }
                    continue;
                }
                let choice = order.next().map_or(step % choices, |index| index.index(choices));
                match choice.checked_sub(world.messages.len()) {
                    Some(at) => {
                        let rank = unready.swap_remove(at);
                        world.become_ready(rank, &gone);
                    }
                    None => {
                        let message = world.messages.swap_remove(choice);
                        world.deliver(message);
                    }
                }
            }
            let living: BTreeSet<Rank> = world.living.keys().copied().collect();
            prop_assert!(world.entered.is_superset(&living), "{living:?} live, {:?} entered", world.entered);
        }
    }
}
