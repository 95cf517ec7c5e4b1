//! Members that agree on views, in virtual time.
//!
//! [`run`] drives one [`Agreement`] for each member. They suspect each other by silence. Messages are late, lost,
//! doubled and overtake each other, members die and stand still, links are cut in one direction or both, as a
//! [`Setting`] has it; then there are no further faults, and the members have to agree.

use std::{collections::BTreeMap, time::Duration};

use ropewalk_membership::{Agreement, AgreementAction, AgreementMessage, AgreementTimes, Stop, View};
use ropewalk_names::{Epoch, Rank};

use crate::{Dice, Event, Host, Nanos, Network, Process, Simulation, World};

/// A job and its faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The number of members.
    pub members: u32,
    /// The seed of delays and losses.
    pub seed: u64,
    /// One in so many messages is lost until the faults end; 0 for none.
    pub lost: u64,
    /// One in so many messages arrives twice until the faults end; 0 for none.
    pub doubled: u64,
    /// The largest delay of a message until the faults end.
    pub delay: Nanos,
    /// The faults, and when they happen.
    pub faults: Vec<(Nanos, Fault)>,
    /// Cuts stay when the faults end.
    pub cuts_stay: bool,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A member dies.
    Kill(u32),
    /// A member stands still.
    Stop(u32),
    /// It goes on.
    Continue(u32),
    /// No message of the first reaches the second any more.
    Cut(u32, u32),
    /// Messages of the first reach the second again, those that were sent in between too.
    Heal(u32, u32),
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The views that were decided, the first one included.
    pub chain: Vec<View>,
    /// The members that live and belong to the last view.
    pub members: Vec<Rank>,
    /// The members that live and stopped themselves, and why.
    pub stopped: BTreeMap<Rank, Stop>,
    /// The time at which the last member adopted the last view.
    pub settled: Nanos,
    /// Tells two runs apart.
    pub digest: u64,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// Two members adopted different views of one number.
    Fork(Box<(View, View)>),
    /// A view was adopted that did not follow from the one before it.
    Successor(Box<(View, View)>),
    /// A member adopted a view that is older than its own.
    Backwards(Rank),
    /// After the faults the living members did not come to the same view.
    Disagreement(Vec<(Rank, View)>),
}

impl Setting {
    /// The faults end at this time.
    pub const FAULTS_END: Nanos = Nanos::from_millis(4_000);

    /// Members without faults.
    pub fn new(members: u32, seed: u64) -> Self {
        Self {
            members,
            seed,
            lost: 0,
            doubled: 0,
            delay: Nanos::from_millis(2),
            faults: Vec::new(),
            cuts_stay: false,
        }
    }

    /// Members and faults of all kinds, drawn from a seed.
    pub fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let members = dice.within(2..9) as u32;
        let mut setting = Self::new(members, seed);
        setting.lost = [0, 3, 10, 50][dice.below(4) as usize];
        setting.doubled = [0, 2, 10][dice.below(3) as usize];
        setting.delay = Nanos::from_millis([1, 30, 300][dice.below(3) as usize]);
        setting.cuts_stay = dice.once_in(2);
        for _ in 0..dice.within(1..6) {
            setting.draw_fault(&mut dice);
        }
        setting.faults.sort_by_key(|(at, _)| *at);
        setting
    }

    fn draw_fault(&mut self, dice: &mut Dice) {
        let at = Nanos::from_millis(dice.below(3_000));
        let until = at + Nanos::from_millis(dice.within(50..2_000));
        let (one, other) = (self.draw_member(dice), self.draw_member(dice));
        match dice.below(5) {
            0 => self.faults.push((at, Fault::Kill(one))),
            1 => {
                self.faults.push((at, Fault::Stop(one)));
                self.faults.push((until, Fault::Continue(one)));
            }
            2 => self.cut_for(dice, at, until, &[(one, other)]),
            3 => self.cut_for(dice, at, until, &[(one, other), (other, one)]),
            _ => {
                let side = dice.word();
                let is_here = |member: u32| side & 1 << member != 0;
                let ways = (0..self.members).flat_map(|one| (0..self.members).map(move |other| (one, other)));
                let ways: Vec<_> = ways
                    .filter(|(one, other)| is_here(*one) != is_here(*other))
                    .collect();
                self.cut_for(dice, at, until, &ways);
            }
        }
    }

    fn draw_member(&self, dice: &mut Dice) -> u32 {
        dice.below(u64::from(self.members)) as u32
    }

    /// Cuts these ways, for some time or for good.
    fn cut_for(&mut self, dice: &mut Dice, at: Nanos, until: Nanos, ways: &[(u32, u32)]) {
        let is_healed = dice.once_in(2);
        for &(one, other) in ways.iter().filter(|(one, other)| one != other) {
            self.faults.push((at, Fault::Cut(one, other)));
            if is_healed {
                self.faults.push((until, Fault::Heal(one, other)));
            }
        }
    }
}

/// Lets the members of a setting agree.
///
/// # Errors
/// If a promise is broken.
pub fn run(setting: &Setting) -> Result<Outcome, Violation> {
    let hosts = setting.members + 1;
    let network = Network::uniform(hosts, 1e9, Nanos::from_micros(100));
    let mut house = House {
        simulation: Simulation::new(network, (0..hosts).map(Host).collect()),
        dice: Dice::new(setting.seed ^ 0x76_69_65_77),
        members: (0..setting.members)
            .map(|rank| Member::new(rank, setting.members))
            .collect(),
        chain: vec![View::first(setting.members)],
        violation: None,
        settled: Nanos::ZERO,
        setting: setting.clone(),
    };
    let nemesis = Process(setting.members);
    for &(at, fault) in &setting.faults {
        house.simulation.after(at, nemesis, What::Fault(fault));
    }
    house
        .simulation
        .after(Setting::FAULTS_END, nemesis, What::FaultsEnd);
    for rank in 0..setting.members {
        house.simulation.after(Nanos::ZERO, Process(rank), What::Look);
    }
    house.play(LIMIT);
    house.judge()
}

struct House {
    simulation: Simulation<What>,
    dice: Dice,
    setting: Setting,
    members: Vec<Member>,
    chain: Vec<View>,
    violation: Option<Violation>,
    settled: Nanos,
}

struct Member {
    agreement: Agreement,
    /// When something of each member came last.
    heard: Vec<Nanos>,
    looked: Nanos,
    is_dead: bool,
    /// The number of the view that it adopted last.
    newest: Epoch,
    stopped: Option<Stop>,
    /// The time for which it is to be woken.
    woken_at: Option<Nanos>,
}

#[derive(Clone, Debug)]
enum What {
    Message(u32, AgreementMessage),
    Beat(u32),
    /// It is time to beat, and to see who is silent.
    Look,
    Wake,
    Fault(Fault),
    FaultsEnd,
}

impl Member {
    fn new(rank: u32, size: u32) -> Self {
        Self {
            agreement: Agreement::new(Rank(rank), size, TIMES),
            heard: vec![Nanos::ZERO; size as usize],
            looked: Nanos::ZERO,
            is_dead: false,
            newest: Epoch(0),
            stopped: None,
            woken_at: None,
        }
    }

    fn takes_part(&self) -> bool {
        !self.is_dead && self.stopped.is_none()
    }
}

impl World for House {
    type What = What;

    fn simulation(&mut self) -> &mut Simulation<What> {
        &mut self.simulation
    }

    fn is_over(&self) -> bool {
        self.violation.is_some()
    }

    fn handle(&mut self, event: Event<What>) {
        let rank = event.process.0;
        match event.what {
            What::Fault(fault) => return self.make(fault),
            What::FaultsEnd => return self.end_faults(),
            _ => {}
        }
        let now = event.at;
        if !self.members[rank as usize].takes_part() {
            return;
        }
        match event.what {
            What::Beat(from) => self.members[rank as usize].heard[from as usize] = now,
            What::Message(from, message) => {
                let member = &mut self.members[rank as usize];
                member.heard[from as usize] = now;
                member.agreement.handle_message(time(now), Rank(from), message);
            }
            What::Look => self.look(now, rank),
            What::Wake => {
                let member = &mut self.members[rank as usize];
                if member.woken_at.is_some_and(|at| at <= now) {
                    member.woken_at = None;
                    member.agreement.handle_timeout(time(now));
                }
            }
            What::Fault(_) | What::FaultsEnd => {}
        }
        self.act(rank);
    }
}

impl House {
    fn make(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(one) => {
                self.members[one as usize].is_dead = true;
                self.simulation.kill(Process(one));
            }
            Fault::Stop(one) => self.simulation.freeze(Process(one)),
            Fault::Continue(one) => self.simulation.thaw(Process(one)),
            Fault::Cut(one, other) => self.simulation.cut(Host(one), Host(other)),
            Fault::Heal(one, other) => self.simulation.heal(Host(one), Host(other)),
        }
    }

    fn end_faults(&mut self) {
        self.setting.lost = 0;
        self.setting.doubled = 0;
        self.setting.delay = Nanos::from_millis(2);
        for one in 0..self.setting.members {
            self.make(Fault::Continue(one));
            for other in 0..self.setting.members {
                if !self.setting.cuts_stay {
                    self.make(Fault::Heal(one, other));
                }
            }
        }
    }

    /// Beats, and suspects the silent; not at once after it stood still itself.
    fn look(&mut self, now: Nanos, rank: u32) {
        self.simulation.after(BEAT, Process(rank), What::Look);
        // Whoever departed is fenced: it hears nothing, and asks why.
        let members: Vec<Rank> = self.members[rank as usize].agreement.view().members().collect();
        for other in members.into_iter().filter(|other| other.0 != rank) {
            self.post(rank, other.0, What::Beat(rank));
        }
        let member = &mut self.members[rank as usize];
        if now.0 - member.looked.0 > 3 * BEAT.0 {
            member.heard.fill(now);
        }
        member.looked = now;
        for (other, heard) in member.heard.iter().enumerate() {
            if other as u32 != rank && now.0 - heard.0 > DETECTION.0 {
                member.agreement.handle_suspected(time(now), Rank(other as u32));
            }
        }
    }

    fn post(&mut self, from: u32, to: u32, what: What) {
        let throws = |dice: &mut Dice, times: u64| times > 0 && dice.once_in(times);
        if throws(&mut self.dice, self.setting.lost) {
            return;
        }
        let copies = 1 + u32::from(throws(&mut self.dice, self.setting.doubled));
        for _ in 0..copies {
            let delay = Nanos(self.dice.below(self.setting.delay.0));
            self.simulation
                .send_after(delay, Process(from), Process(to), 100, what.clone());
        }
    }

    fn act(&mut self, rank: u32) {
        while let Some(action) = self.members[rank as usize].agreement.poll_action() {
            match action {
                AgreementAction::Send(to, message) => self.post(rank, to.0, What::Message(rank, message)),
                AgreementAction::Adopt { view, .. } => self.check(rank, view),
                AgreementAction::Stop(stop) => self.members[rank as usize].stopped = Some(stop),
            }
        }
        let now = self.simulation.now();
        let member = &mut self.members[rank as usize];
        let Some(at) = member.agreement.poll_timeout() else {
            return;
        };
        let at = Nanos(at.as_nanos() as u64).max(now);
        if member.woken_at.is_none_or(|known| at < known) {
            member.woken_at = Some(at);
            self.simulation
                .after(Nanos(at.0 - now.0), Process(rank), What::Wake);
        }
    }

    /// Checks the view that a member has adopted. Members adopt the newest view that they hear of, and may miss some.
    fn check(&mut self, rank: u32, view: View) {
        self.settled = self.simulation.now();
        let newest = &mut self.members[rank as usize].newest;
        if self.violation.is_some() || view.epoch().counter <= *newest {
            let backwards = Violation::Backwards(Rank(rank));
            self.violation.get_or_insert(backwards);
            return;
        }
        *newest = view.epoch().counter;
        let at = view.epoch().counter.0 as usize;
        let last = self.chain.last().unwrap_or(&view).clone();
        self.violation = match self.chain.get(at) {
            Some(known) if *known == view => None,
            Some(known) => Some(Violation::Fork(Box::new((known.clone(), view)))),
            None if last.may_precede(&view) => {
                self.chain.push(view);
                None
            }
            None => Some(Violation::Successor(Box::new((last, view)))),
        };
    }

    fn judge(self) -> Result<Outcome, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        let living = |(rank, member): (usize, &Member)| member.takes_part().then_some(Rank(rank as u32));
        let living: Vec<Rank> = self.members.iter().enumerate().filter_map(living).collect();
        let views = living
            .iter()
            .map(|rank| (*rank, self.members[rank.index()].agreement.view().clone()));
        let views: Vec<(Rank, View)> = views.collect();
        let agrees = |view: &View| {
            view.members().eq(living.iter().copied()) && self.chain.last().is_some_and(|last| last == view)
        };
        if !views.iter().all(|(_, view)| agrees(view)) {
            return Err(Violation::Disagreement(views));
        }
        let stopped = self.members.into_iter().enumerate();
        let stopped = stopped.filter(|(_, member)| !member.is_dead);
        Ok(Outcome {
            chain: self.chain,
            members: living,
            stopped: stopped
                .filter_map(|(rank, member)| Some((Rank(rank as u32), member.stopped?)))
                .collect(),
            settled: self.settled,
            digest: self.simulation.digest(),
        })
    }
}

fn time(now: Nanos) -> Duration {
    Duration::from_nanos(now.0)
}

const BEAT: Nanos = Nanos::from_millis(100);
/// So long a member may be silent.
const DETECTION: Nanos = Nanos::from_millis(500);
const TIMES: AgreementTimes = AgreementTimes {
    retry: Duration::from_millis(50),
    grace: Duration::from_millis(600),
    patience: Duration::from_millis(3_000),
};
/// By then the members have agreed.
const LIMIT: Nanos = Nanos::from_millis(12_000);
