//! Agreement on views under any schedule: messages are delivered in any order, twice or never, and anybody suspects
//! anybody at any time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, time::Duration};

use proptest::{collection::vec, prelude::*};
use ropewalk_membership::{Agreement, AgreementAction, AgreementMessage, AgreementTimes, Stop, View, Word};
use ropewalk_names::{Epoch, Rank};

const TIMES: AgreementTimes = AgreementTimes {
    retry: Duration::from_millis(50),
    grace: Duration::from_millis(500),
    patience: Duration::from_secs(2),
};

/// One step of a schedule.
#[derive(Clone, Debug)]
enum Step {
    /// One of the messages that are under way arrives; if it stays, it will arrive again.
    Deliver {
        which: usize,
        stays: bool,
    },
    Suspect {
        by: u32,
        whom: u32,
    },
    Wait {
        who: u32,
        millis: u64,
    },
}

fn steps(members: u32) -> impl Strategy<Value = Vec<Step>> {
    let deliver = (any::<usize>(), any::<bool>()).prop_map(|(which, stays)| Step::Deliver { which, stays });
    let suspect = (0..members, 0..members).prop_map(|(by, whom)| Step::Suspect { by, whom });
    let wait = (0..members, 0_u64..120).prop_map(|(who, millis)| Step::Wait { who, millis });
    vec(prop_oneof![12 => deliver, 1 => suspect, 2 => wait], 0..300)
}

/// Members, and what is under way between them.
struct House {
    members: Vec<Agreement>,
    stopped: BTreeMap<Rank, Stop>,
    mail: Vec<(Rank, Rank, AgreementMessage)>,
    chain: BTreeMap<Epoch, View>,
    now: Duration,
}

impl House {
    fn new(size: u32) -> Self {
        let first = View::first(size);
        Self {
            members: (0..size)
                .map(|rank| Agreement::new(Rank(rank), size, TIMES))
                .collect(),
            stopped: BTreeMap::new(),
            mail: Vec::new(),
            chain: BTreeMap::from([(first.epoch().counter, first)]),
            now: Duration::ZERO,
        }
    }

    fn take(&mut self, step: &Step) {
        let rank = match *step {
            Step::Deliver { .. } if self.mail.is_empty() => return,
            Step::Deliver { which, stays } => {
                let at = which % self.mail.len();
                let (from, to, message) = match stays {
                    true => self.mail[at].clone(),
                    false => self.mail.swap_remove(at),
                };
                self.members[to.index()].handle_message(self.now, from, message);
                to
            }
            Step::Suspect { by, whom } => {
                self.members[by as usize].handle_suspected(self.now, Rank(whom));
                Rank(by)
            }
            Step::Wait { who, millis } => {
                self.now += Duration::from_millis(millis);
                self.members[who as usize].handle_timeout(self.now);
                Rank(who)
            }
        };
        while let Some(action) = self.members[rank.index()].poll_action() {
            match action {
                AgreementAction::Send(to, message) => self.mail.push((rank, to, message)),
                AgreementAction::Stop(stop) => assert!(self.stopped.insert(rank, stop).is_none()),
                AgreementAction::Adopt { view, departed } => self.check(rank, view, &departed),
            }
        }
    }

    fn check(&mut self, rank: Rank, view: View, departed: &[Rank]) {
        assert!(!self.stopped.contains_key(&rank) && view.contains(rank));
        assert!(departed.iter().all(|rank| !view.contains(*rank)) && !departed.is_empty());
        let epoch = view.epoch().counter;
        let known = self.chain.entry(epoch).or_insert_with(|| view.clone());
        assert_eq!(*known, view);
        let before = &self.chain[&Epoch(epoch.0 - 1)];
        assert!(before.may_precede(&view), "{before:?} {view:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// There is one chain of views, each decided by a majority of the one before it.
    #[test]
    fn no_schedule_forks((size, steps) in (2_u32..6).prop_flat_map(|size| (Just(size), steps(size)))) {
        let mut house = House::new(size);
        for step in &steps {
            house.take(step);
        }
    }
}

fn drain(member: &mut Agreement) -> Vec<AgreementAction> {
    std::iter::from_fn(|| member.poll_action()).collect()
}

/// Messages of another job's size, of oneself, and of no member have no effect but that strangers hear the view.
#[test]
fn strangers_decide_nothing() {
    let mut member = Agreement::new(Rank(1), 3, TIMES);
    let word = |view: View, word| AgreementMessage { view, word };
    let later = View::first(5).without(&[Rank(0), Rank(1)], Rank(2));
    member.handle_message(Duration::ZERO, Rank(2), word(later, Word::Decided));
    let own = word(View::first(3), Word::Suspects([Rank(0)].into()));
    member.handle_message(Duration::ZERO, Rank(1), own.clone());
    assert!(drain(&mut member).is_empty() && member.is_settled());
    member.handle_message(Duration::ZERO, Rank(7), own);
    let told = drain(&mut member);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(member.is_settled() && member.view() == &View::first(3));
}

/// A member that hears nothing of the others stops itself in time, whether they would be a majority or not.
#[test]
fn silence_ends_in_time() {
    let lonely = |suspects: &[u32], until: Duration| {
        let mut member = Agreement::new(Rank(2), 4, TIMES);
        for rank in suspects {
            member.handle_suspected(Duration::ZERO, Rank(*rank));
        }
        let mut stop = None;
        while let Some(now) = member.poll_timeout() {
            assert!(now <= until, "{now:?}");
            member.handle_timeout(now);
            stop = drain(&mut member).pop().or(stop);
        }
        stop
    };
    let minority = Stop::Minority {
        rank: Rank(2),
        reached: 2,
        members: 4,
        lost: vec![Rank(0), Rank(1)],
    };
    assert_eq!(
        lonely(&[0, 1], TIMES.grace),
        Some(AgreementAction::Stop(minority))
    );
    let undecided = Stop::NoAgreement {
        rank: Rank(2),
        promised: 1,
        members: 4,
        lost: vec![Rank(0)],
    };
    assert_eq!(
        lonely(&[0], TIMES.patience),
        Some(AgreementAction::Stop(undecided))
    );
}
