//! The paper's reductions, and the loss of processes while they run.

use std::collections::{BTreeMap, BTreeSet};

use ropewalk_reduce_core::{
    Member,
    paper::{Copy, Replicas, Task, TaskAction, TaskScheduler},
};

use super::{BaselineOutcome, calls, rank_of, simulation};
use crate::{
    Nanos, Process, Simulation,
    reduction::{Fault, Setting},
};

/// The place of a fault in the paper's reduction (its figure 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultPosition {
    /// The process had called, or was about to, and its data waited in the queue.
    Waiting,
    /// Position 1: a task was on its way to the process.
    Assigned,
    /// Position 2: the process executed a task.
    Executing,
    /// Position 3: the data of the process was pulled.
    Providing,
    /// All that the process had was folded elsewhere.
    Done,
}

/// A finished simulation of the paper's reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperOutcome {
    /// Its time and messages. The time is [`Nanos::NEVER`] if a contribution is lost.
    pub outcome: BaselineOutcome,
    /// The place of the first fault, if there was one before the end.
    pub position: Option<FaultPosition>,
}

/// Runs the paper's reductions to their end; in each call rank 0 is the master and the root.
///
/// Of the faults those of ranks other than 0 count, and a process is lost with its node: the paper's data-reliability
/// store keeps the second copy of an original on the next node. The copy counts after the time that the setting
/// [says](Setting::copies); without a time there is none. The master finds a loss after 20 times the setting's
/// [detection](crate::reduction::Timeouts::detection), as other hosts find a lost host, and tells all processes.
pub fn run(setting: &Setting) -> PaperOutcome {
    let mut world = World::new(setting);
    while !world.is_lost
        && let Some(event) = world.simulation.next()
    {
        world.handle(event.process, event.at, event.what);
    }
    world.finish()
}

#[derive(Clone, Copy, Debug)]
enum What {
    Call,
    Called(Member),
    Assigned(u64),
    Asked { number: u64, by: Member },
    Pulled(u64),
    Folded(u64),
    Executed(u64),
    PullFailed(u64),
    Stored(Copy),
    Fault(Member),
    Detected(Member),
    Gone(Member),
    Over,
}

struct World<'a> {
    setting: &'a Setting,
    simulation: Simulation<What>,
    /// "For each reduction the master has a queue and a scheduler."
    reductions: Vec<Reduction>,
    dead: BTreeSet<Member>,
    /// The lost processes of which each process has heard.
    known: BTreeMap<Process, BTreeSet<Member>>,
    over: BTreeSet<Process>,
    /// The calls whose result is at the root.
    ended: u32,
    /// A contribution cannot be had any more.
    is_lost: bool,
    position: Option<FaultPosition>,
    outcome: BaselineOutcome,
}

struct Reduction {
    scheduler: TaskScheduler,
    replicas: Replicas,
    /// The tasks of which the master has not heard again.
    running: BTreeMap<u64, Running>,
    /// The processes whose data was pulled.
    provided: BTreeSet<Member>,
}

struct Running {
    task: Task,
    stage: Stage,
    began: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Sent,
    /// The executor waits for data that this process has.
    Pulling(Member),
    Folding,
    /// The executor has told the master.
    Told,
}

impl<'a> World<'a> {
    fn new(setting: &'a Setting) -> Self {
        let mut simulation = simulation(setting);
        for (process, at) in calls(setting) {
            simulation.after(at, process, What::Call);
        }
        for (at, fault) in &setting.faults {
            if let Fault::KillRank(host) | Fault::KillHost(host) = fault
                && *host != setting.calls.root
            {
                let rank = Member(rank_of(setting, *host));
                simulation.after(*at, Process(0), What::Fault(rank));
            }
        }
        let reduction = |_| Reduction {
            scheduler: TaskScheduler::new(setting.hosts, Member(0)),
            replicas: Replicas::new(setting.hosts),
            running: BTreeMap::new(),
            provided: BTreeSet::new(),
        };
        Self {
            setting,
            simulation,
            reductions: (0..setting.calls.count).map(reduction).collect(),
            dead: BTreeSet::new(),
            known: BTreeMap::new(),
            over: BTreeSet::new(),
            ended: 0,
            is_lost: false,
            position: None,
            outcome: BaselineOutcome {
                time: Nanos::ZERO,
                messages_to_scheduler: 0,
                messages_from_scheduler: 0,
                events: 0,
            },
        }
    }

    fn handle(&mut self, process: Process, at: Nanos, what: What) {
        let (call, rank) = (
            process.0 / self.setting.hosts,
            Member(process.0 % self.setting.hosts),
        );
        let of_call = |member: Member| Process(call * self.setting.hosts + member.0);
        let reduction = &mut self.reductions[call as usize];
        match what {
            What::Call => {
                self.simulation
                    .send(process, of_call(Member(0)), MESSAGE_BYTES, What::Called(rank));
                let copy = reduction.replicas.called(rank);
                self.make_copies(call, copy);
            }
            What::Called(member) => {
                self.outcome.messages_to_scheduler += 1;
                reduction.scheduler.handle_called(member);
            }
            What::Stored(copy) => {
                if !self.dead.contains(&copy.from) {
                    reduction.replicas.stored(copy);
                }
            }
            What::Assigned(number) => self.begin(process, number),
            What::Asked { number, by } => {
                let bytes = self.setting.calls.bytes + MESSAGE_BYTES;
                self.simulation
                    .send(process, of_call(by), bytes, What::Pulled(number));
            }
            What::Pulled(number) => {
                if let Some(running) = reduction.running.get(&number) {
                    reduction.provided.insert(running.task.provider.process);
                }
                self.fold(process, number);
            }
            What::Folded(number) => {
                if let Some(running) = reduction.running.get_mut(&number) {
                    running.stage = Stage::Told;
                    let what = What::Executed(number);
                    self.simulation
                        .send(process, of_call(Member(0)), MESSAGE_BYTES, what);
                }
            }
            What::Executed(number) => {
                self.outcome.messages_to_scheduler += 1;
                if let Some(running) = reduction.running.remove(&number) {
                    let took = at - running.began;
                    reduction.scheduler.handle_executed(number, took.into());
                }
            }
            What::PullFailed(number) => {
                self.outcome.messages_to_scheduler += 1;
                if reduction.running.remove(&number).is_some() {
                    reduction.scheduler.handle_pull_failed(number);
                }
            }
            What::Fault(member) => self.strike(member),
            What::Detected(member) => self.detect(call, member),
            What::Gone(member) => {
                self.known.entry(process).or_default().insert(member);
                let fails = |running: &Running| {
                    running.task.executor.process == rank && running.stage == Stage::Pulling(member)
                };
                for (number, _) in reduction.running.iter().filter(|(_, running)| fails(running)) {
                    let what = What::PullFailed(*number);
                    self.simulation
                        .send(process, of_call(Member(0)), MESSAGE_BYTES, what);
                }
            }
            What::Over => {
                self.over.insert(process);
            }
        }
        self.act(call);
    }

    /// An executor has its task, and asks for the provider's data.
    fn begin(&mut self, process: Process, number: u64) {
        let (call, executor) = (
            process.0 / self.setting.hosts,
            Member(process.0 % self.setting.hosts),
        );
        let reduction = &mut self.reductions[call as usize];
        let Some(running) = reduction.running.get_mut(&number) else {
            return;
        };
        running.began = self.simulation.now();
        let provider = &running.task.provider;
        let source = match provider.is_flagged {
            true => reduction.replicas.holder(provider.process, executor),
            false => Some(provider.process),
        };
        let Some(source) = source else {
            self.is_lost = true;
            return;
        };
        if source == executor {
            running.stage = Stage::Pulling(source);
            return self.fold(process, number);
        }
        let known = self.known.get(&process);
        if known.is_some_and(|known| known.contains(&source)) {
            let master = Process(call * self.setting.hosts);
            let what = What::PullFailed(number);
            self.simulation.send(process, master, MESSAGE_BYTES, what);
            return;
        }
        running.stage = Stage::Pulling(source);
        let source = Process(call * self.setting.hosts + source.0);
        let by = executor;
        let what = What::Asked { number, by };
        self.simulation.send(process, source, MESSAGE_BYTES, what);
    }

    /// The data for a task is there.
    fn fold(&mut self, process: Process, number: u64) {
        let reduction = &mut self.reductions[(process.0 / self.setting.hosts) as usize];
        if let Some(running) = reduction.running.get_mut(&number)
            && matches!(running.stage, Stage::Pulling(_))
        {
            running.stage = Stage::Folding;
            let span = Nanos::of_transfer(self.setting.calls.bytes, self.setting.cluster.fold_rate);
            self.simulation.work(span, process, What::Folded(number));
        }
    }

    fn make_copies(&mut self, call: u32, copies: impl IntoIterator<Item = Copy>) {
        let Some(span) = self.setting.copies else { return };
        for copy in copies {
            let keeper = Process(call * self.setting.hosts + copy.to.0);
            self.simulation.after(span, keeper, What::Stored(copy));
        }
    }

    /// A process and its node are lost.
    fn strike(&mut self, member: Member) {
        if self.ended == self.setting.calls.count || !self.dead.insert(member) {
            return;
        }
        let position = self.position_of(member);
        self.position.get_or_insert(position);
        for call in 0..self.setting.calls.count {
            self.simulation
                .kill(Process(call * self.setting.hosts + member.0));
            let span = Nanos(self.setting.timeouts.detection.0 * DETECTION_OF_HOSTS);
            let master = Process(call * self.setting.hosts);
            self.simulation.after(span, master, What::Detected(member));
        }
    }

    /// The place of a process in the first reduction.
    fn position_of(&self, member: Member) -> FaultPosition {
        let Some(reduction) = self.reductions.first() else {
            return FaultPosition::Done;
        };
        for Running { task, stage, .. } in reduction.running.values() {
            match stage {
                Stage::Sent if task.executor.process == member => return FaultPosition::Assigned,
                Stage::Pulling(_) | Stage::Folding if task.executor.process == member => {
                    return FaultPosition::Executing;
                }
                Stage::Pulling(source) if *source == member => return FaultPosition::Providing,
                _ => {}
            }
        }
        match reduction.provided.contains(&member) {
            true => FaultPosition::Done,
            false => FaultPosition::Waiting,
        }
    }

    /// The master has found a loss.
    fn detect(&mut self, call: u32, member: Member) {
        let reduction = &mut self.reductions[call as usize];
        let copies = reduction.replicas.failed(member);
        reduction
            .running
            .retain(|_, running| running.task.executor.process != member);
        reduction.scheduler.handle_failed(member);
        self.make_copies(call, copies);
        self.tell_all(call, What::Gone(member));
    }

    /// Carries out what the master of a call wants done.
    fn act(&mut self, call: u32) {
        while let Some(action) = self.reductions[call as usize].scheduler.poll_action() {
            let first = call * self.setting.hosts;
            match action {
                TaskAction::Assign(task) => {
                    self.outcome.messages_from_scheduler += 1;
                    let to = Process(first + task.executor.process.0);
                    let (number, stage, began) = (task.number, Stage::Sent, self.simulation.now());
                    let running = Running { task, stage, began };
                    self.reductions[call as usize].running.insert(number, running);
                    self.simulation
                        .send(Process(first), to, MESSAGE_BYTES, What::Assigned(number));
                }
                TaskAction::End { .. } => {
                    self.ended += 1;
                    self.outcome.time = self.simulation.now();
                    self.tell_all(call, What::Over);
                }
            }
        }
    }

    fn tell_all(&mut self, call: u32, what: What) {
        let first = call * self.setting.hosts;
        for member in 0..self.setting.hosts {
            self.simulation
                .send(Process(first), Process(first + member), MESSAGE_BYTES, what);
        }
    }

    fn finish(self) -> PaperOutcome {
        let Self {
            setting,
            simulation,
            dead,
            over,
            is_lost,
            position,
            mut outcome,
            ..
        } = self;
        let lives = |process: &u32| !dead.contains(&Member(process % setting.hosts));
        let mut living = (0..setting.calls.count * setting.hosts)
            .filter(lives)
            .map(Process);
        assert!(
            is_lost || living.all(|process| over.contains(&process)),
            "the end reaches everybody who lives"
        );
        outcome.events = simulation.events();
        if is_lost {
            outcome.time = Nanos::NEVER;
        }
        PaperOutcome { outcome, position }
    }
}

const MESSAGE_BYTES: u64 = 100;
/// Other hosts see a lost host after so many times the time in which an agent sees a lost rank.
const DETECTION_OF_HOSTS: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const COPIED: Nanos = Nanos::from_millis(5);

    fn setting() -> Setting {
        let mut setting = Setting::new(12, MIB);
        setting.copies = Some(COPIED);
        setting
    }

    /// Faults of each process at many moments of the undisturbed time, and their outcomes.
    fn outcomes(setting: &Setting) -> Vec<(Nanos, PaperOutcome)> {
        const MOMENTS: u64 = 1_000;
        let time = run(setting).outcome.time;
        let mut outcomes = Vec::new();
        for rank in 1..setting.hosts {
            for moment in 0..MOMENTS {
                let at = Nanos(time.0 * moment / MOMENTS);
                let mut setting = setting.clone();
                setting.faults = vec![(at, Fault::KillRank(rank))];
                outcomes.push((at, run(&setting)));
            }
        }
        outcomes
    }

    /// Once a process has its copy, a reduction survives it in each place of the fault, and takes longer where partial
    /// results are lost. Before, a contribution is lost unless it is on its way or was folded elsewhere.
    #[test]
    fn faults_are_recovered_behind_the_copy() {
        let setting = setting();
        let undisturbed = run(&setting).outcome.time;
        let mut places = BTreeSet::new();
        for (at, PaperOutcome { outcome, position }) in outcomes(&setting) {
            let position = position.unwrap();
            let is_lost = outcome.time == Nanos::NEVER;
            match position {
                FaultPosition::Waiting | FaultPosition::Assigned | FaultPosition::Executing => {
                    assert_eq!(is_lost, at < COPIED, "{position:?} at {at}");
                    assert!(is_lost || outcome.time > undisturbed, "{position:?} at {at}");
                }
                FaultPosition::Providing => {
                    assert!(!is_lost || at < COPIED, "{position:?} at {at}");
                }
                FaultPosition::Done => assert!(!is_lost, "{position:?} at {at}"),
            }
            places.insert(position);
        }
        let all = [
            FaultPosition::Waiting,
            FaultPosition::Assigned,
            FaultPosition::Executing,
            FaultPosition::Providing,
            FaultPosition::Done,
        ];
        assert_eq!(places, all.into());
    }

    /// Without copies a process is missed wherever it is, and a fault after the end is none.
    #[test]
    fn a_fault_counts_while_the_reduction_runs() {
        let mut setting = setting();
        setting.copies = None;
        for (at, PaperOutcome { outcome, position }) in outcomes(&setting) {
            let is_lost = outcome.time == Nanos::NEVER;
            match position {
                Some(FaultPosition::Providing) => {}
                Some(FaultPosition::Done) => assert!(!is_lost, "at {at}"),
                position => assert!(is_lost, "{position:?} at {at}"),
            }
        }
        let undisturbed = run(&setting);
        let after_the_end = undisturbed.outcome.time + Nanos(1);
        setting.faults = vec![(after_the_end, Fault::KillHost(3))];
        let outcome = run(&setting);
        assert_eq!(
            (outcome.outcome.time, outcome.position),
            (undisturbed.outcome.time, None)
        );
    }
}
