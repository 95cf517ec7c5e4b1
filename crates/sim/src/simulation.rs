use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use super::{Nanos, Network};

/// A computer with a link to the network, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub u32);

/// A process on a host, counted from 0 over all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u32);

/// Something happens to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<T> {
    /// When.
    pub at: Nanos,
    /// To whom.
    pub process: Process,
    /// The message that arrives, or the timer that fires.
    pub what: T,
}

/// Machines that a [`Simulation`] drives.
pub trait World {
    /// The messages and timers of its processes.
    type What;

    /// The clock and the events to come.
    fn simulation(&mut self) -> &mut Simulation<Self::What>;

    /// Hands an event to the machines of its process, and has happen what they want done.
    fn handle(&mut self, event: Event<Self::What>);

    /// Says if the rest of the events does not matter.
    fn is_over(&self) -> bool {
        false
    }

    /// Takes one event after the other. Stops when all [is over](Self::is_over), when there are no more events, or at
    /// the first event from `limit` on: only then it returns false.
    fn play(&mut self, limit: Nanos) -> bool {
        while !self.is_over() {
            match self.simulation().next() {
                None => return true,
                Some(event) if event.at >= limit => return false,
                Some(event) => self.handle(event),
            }
        }
        true
    }
}

/// A virtual clock, the events that are to come, and the state of each process.
///
/// The caller takes one event after the other by [`next`](Self::next) and answers each with new ones.
#[derive(Debug)]
pub struct Simulation<T> {
    now: Nanos,
    network: Network,
    /// Where each process runs.
    placement: Vec<Host>,
    processes: Vec<State<T>>,
    queue: Queue<T>,
    /// The messages that wait where none passes, by sender's and receiver's host.
    cuts: BTreeMap<(Host, Host), Held<T>>,
    sequence: u64,
    digest: u64,
    events: u64,
}

#[derive(Debug)]
enum State<T> {
    Runs,
    /// The events that wait until the process goes on.
    Frozen(Vec<T>),
    Dead,
}

#[derive(Debug)]
struct Held<T> {
    messages: Vec<Entry<T>>,
    /// The messages that get through all the same.
    passes: fn(&T) -> bool,
}

#[derive(Debug)]
struct Entry<T> {
    at: Nanos,
    sequence: u64,
    to: Process,
    kind: Kind,
    what: T,
}

/// The events to come, by time, and by order of arrival at the same time.
#[derive(Debug)]
struct Queue<T> {
    /// The time of each event above its order of arrival, and its slot: a heap compares its elements and moves them
    /// about, so that they are small.
    order: BinaryHeap<Reverse<(u128, usize)>>,
    slots: Vec<Option<Entry<T>>>,
    free: Vec<usize>,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self {
            order: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    fn push(&mut self, entry: Entry<T>) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let key = u128::from(entry.at.0) << 64 | u128::from(entry.sequence);
        self.order.push(Reverse((key, slot)));
        self.slots[slot] = Some(entry);
    }

    fn pop(&mut self) -> Option<Entry<T>> {
        loop {
            let Reverse((_, slot)) = self.order.pop()?;
            self.free.push(slot);
            if let Some(entry) = self.slots[slot].take() {
                return Some(entry);
            }
        }
    }

    /// Takes out all events but those that stay.
    fn retain(&mut self, stays: impl Fn(&Entry<T>) -> bool) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|entry| !stays(entry)) {
                *slot = None;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The first byte of a message of so many bytes reaches the receiver's link; the last follows.
    Enters {
        from: Process,
        bytes: u64,
        last: Nanos,
    },
    /// The last byte of a message has passed the receiver's link.
    Arrives {
        from: Process,
    },
    /// The receiver's processor has done what a message costs.
    IsTaken {
        from: Process,
    },
    Timer,
}

impl<T> Simulation<T> {
    /// Processes that all run, each on the host of its place in the list, at time zero.
    pub fn new(network: Network, placement: Vec<Host>) -> Self {
        Self {
            now: Nanos::ZERO,
            network,
            processes: placement.iter().map(|_| State::Runs).collect(),
            placement,
            queue: Queue::new(),
            cuts: BTreeMap::new(),
            sequence: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            events: 0,
        }
    }

    /// The time of the event that came last.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The links, to see what passed them and to change them.
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// A number that two runs share only if all their events came at the same times, to the same processes, in the
    /// same order.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many events were taken from the queue.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The host of a process.
    pub fn host_of(&self, process: Process) -> Host {
        self.placement[process.0 as usize]
    }

    /// Sends a message of so many `bytes`. Returns when the last of them has left. Within a host that takes no time and
    /// no work.
    pub fn send(&mut self, from: Process, to: Process, bytes: u64, what: T) -> Nanos {
        self.send_after(Nanos::ZERO, from, to, bytes, what)
    }

    /// Sends a message after a while, also if the sender is killed by then. The messages of a host queue for its link
    /// in the order of these calls.
    pub fn send_after(&mut self, span: Nanos, from: Process, to: Process, bytes: u64, what: T) -> Nanos {
        let (here, there) = (self.host_of(from), self.host_of(to));
        let begin = self.now + span;
        if here == there {
            self.push(begin, to, Kind::Arrives { from }, what);
            return begin;
        }
        let begin = begin.max(self.network.handle_message(self.now, here));
        let (left, first, last) = self.network.leave(begin, here, there, bytes);
        if first < Nanos::NEVER {
            self.push(first, to, Kind::Enters { from, bytes, last }, what);
        }
        left
    }

    /// Has something happen to a process after a while, if it lives then.
    pub fn after(&mut self, span: Nanos, process: Process, what: T) {
        self.push(self.now + span, process, Kind::Timer, what);
    }

    /// Has something happen to a process once the processor of its host has done work that takes so long alone.
    pub fn work(&mut self, span: Nanos, process: Process, what: T) {
        let end = self.network.work(self.now, self.host_of(process), span);
        if end < Nanos::NEVER {
            self.push(end, process, Kind::Timer, what);
        }
    }

    /// Ends a process: nothing happens to it any more.
    pub fn kill(&mut self, process: Process) {
        self.processes[process.0 as usize] = State::Dead;
    }

    /// Loses the messages of a process that have not arrived, as if it had not handed them to the system yet.
    pub fn lose_sent(&mut self, process: Process) {
        let is_its = |entry: &Entry<T>| match entry.kind {
            Kind::Enters { from, .. } | Kind::Arrives { from } | Kind::IsTaken { from } => from == process,
            Kind::Timer => false,
        };
        self.queue.retain(|entry| !is_its(entry));
        for held in self.cuts.values_mut() {
            held.messages.retain(|entry| !is_its(entry));
        }
    }

    /// Begins a killed process anew. A message that was on its way to it before arrives, as it may in truth.
    pub fn revive(&mut self, process: Process) {
        self.processes[process.0 as usize] = State::Runs;
    }

    /// Stops a process: what happens to it waits until it [goes on](Self::thaw).
    pub fn freeze(&mut self, process: Process) {
        let state = &mut self.processes[process.0 as usize];
        if matches!(state, State::Runs) {
            *state = State::Frozen(Vec::new());
        }
    }

    /// Has a stopped process go on: what waited happens now, in its order.
    pub fn thaw(&mut self, process: Process) {
        let state = &mut self.processes[process.0 as usize];
        if let State::Frozen(waiting) = state {
            let waiting = std::mem::take(waiting);
            *state = State::Runs;
            for what in waiting {
                self.push(self.now, process, Kind::Timer, what);
            }
        }
    }

    /// Lets no message pass from one host to another, until it is [healed](Self::heal).
    pub fn cut(&mut self, from: Host, to: Host) {
        self.cuts.entry((from, to)).or_insert_with(|| Held {
            messages: Vec::new(),
            passes: |_| false,
        });
    }

    /// Says if no message passes from one host to another.
    pub fn is_cut(&self, from: Host, to: Host) -> bool {
        self.cuts.contains_key(&(from, to))
    }

    /// Lets these messages pass where none do, from now on and those that were held too: they take another way.
    pub fn let_pass(&mut self, from: Host, to: Host, passes: fn(&T) -> bool) {
        let Some(held) = self.cuts.get_mut(&(from, to)) else {
            return;
        };
        held.passes = passes;
        let messages = std::mem::take(&mut held.messages);
        let (free, held): (Vec<_>, Vec<_>) = messages.into_iter().partition(|entry| passes(&entry.what));
        if let Some(known) = self.cuts.get_mut(&(from, to)) {
            known.messages = held;
        }
        for entry in free {
            self.push(self.now, entry.to, entry.kind, entry.what);
        }
    }

    /// Lets messages pass from one host to another again: those that were held too, in their order, as a connection
    /// that repeats what was lost does.
    pub fn heal(&mut self, from: Host, to: Host) {
        let held = self.cuts.remove(&(from, to));
        for entry in held.into_iter().flat_map(|held| held.messages) {
            self.push(self.now, entry.to, entry.kind, entry.what);
        }
    }

    /// Says if a process lives and is not stopped.
    pub fn runs(&self, process: Process) -> bool {
        matches!(self.processes[process.0 as usize], State::Runs)
    }

    /// The next event of a process that runs; `None` once there is none.
    #[allow(
        clippy::should_implement_trait,
        reason = "events follow from what the caller does between two calls"
    )]
    pub fn next(&mut self) -> Option<Event<T>> {
        loop {
            let entry = self.queue.pop()?;
            self.now = entry.at;
            self.events += 1;
            if let Some(event) = self.take(entry) {
                return Some(event);
            }
        }
    }

    fn take(&mut self, entry: Entry<T>) -> Option<Event<T>> {
        if let Kind::Enters { from, .. } | Kind::Arrives { from } = entry.kind {
            let way = (self.host_of(from), self.host_of(entry.to));
            if let Some(held) = self.cuts.get_mut(&way)
                && !(held.passes)(&entry.what)
            {
                held.messages.push(entry);
                return None;
            }
        }
        let Entry { at, to, what, .. } = entry;
        match entry.kind {
            Kind::Enters { from, bytes, last } => {
                let arrives = self.network.enter(at, last, self.placement[to.0 as usize], bytes);
                if arrives < Nanos::NEVER {
                    self.push(arrives, to, Kind::Arrives { from }, what);
                }
                return None;
            }
            Kind::Arrives { from } => {
                let here = self.host_of(to);
                let is_within = self.host_of(from) == here;
                let taken = if is_within {
                    at
                } else {
                    self.network.handle_message(at, here)
                };
                if taken > at {
                    if taken < Nanos::NEVER {
                        self.push(taken, to, Kind::IsTaken { from }, what);
                    }
                    return None;
                }
            }
            Kind::IsTaken { .. } | Kind::Timer => {}
        }
        match &mut self.processes[to.0 as usize] {
            State::Runs => {
                for word in [at.0, u64::from(to.0), entry.sequence] {
                    self.digest = (self.digest ^ word)
                        .wrapping_mul(0x0100_0000_01b3)
                        .rotate_left(23);
                }
                Some(Event {
                    at,
                    process: to,
                    what,
                })
            }
            State::Frozen(waiting) => {
                waiting.push(what);
                None
            }
            State::Dead => None,
        }
    }

    fn push(&mut self, at: Nanos, to: Process, kind: Kind, what: T) {
        self.sequence += 1;
        self.queue.push(Entry {
            at,
            sequence: self.sequence,
            to,
            kind,
            what,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = Nanos::from_millis(1);

    fn two_hosts() -> Simulation<u32> {
        Simulation::new(Network::uniform(2, 1e6, MILLI), vec![Host(0), Host(1)])
    }

    fn rest(simulation: &mut Simulation<u32>) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| simulation.next())
            .map(|event| (event.at.0 / 1_000, event.what))
            .collect()
    }

    /// Messages queue at the sender's link and pass it one after the other.
    #[test]
    fn messages_queue() {
        let mut simulation = two_hosts();
        simulation.send(Process(0), Process(1), 1_000, 1);
        simulation.send(Process(0), Process(1), 2_000, 2);
        assert_eq!(rest(&mut simulation), [(2_000, 1), (4_000, 2)]);
    }

    /// A link in that is slower than the link out bounds the time, and two senders share it.
    #[test]
    fn the_receiver_has_a_link_too() {
        let mut simulation =
            Simulation::new(Network::uniform(3, 1e6, MILLI), vec![Host(0), Host(1), Host(2)]);
        simulation.network().set_rate_in(Host(2), 0.5e6);
        simulation.send(Process(0), Process(2), 1_000, 1);
        simulation.send(Process(1), Process(2), 1_000, 2);
        assert_eq!(rest(&mut simulation), [(3_000, 1), (5_000, 2)]);
    }

    /// Messages between hosts cost work of both processors, and wait for the work before it.
    #[test]
    fn messages_cost_work() {
        let mut simulation = two_hosts();
        simulation.network().set_message_time(Nanos::from_micros(100));
        simulation.network().set_processor(Host(1), 0.5);
        simulation.work(Nanos::from_micros(50), Process(0), 1);
        simulation.send(Process(0), Process(1), 1_000, 2);
        simulation.send(Process(0), Process(1), 1_000, 3);
        simulation.send(Process(0), Process(0), 1_000, 4);
        assert_eq!(rest(&mut simulation), [(0, 4), (50, 1), (2_350, 2), (3_350, 3)]);
    }

    /// Messages that take longer by chance stay in order, and a seed gives one history.
    #[test]
    fn jitter_keeps_the_order() {
        let run = |seed| {
            let mut simulation = two_hosts();
            simulation.network().set_jitter(Nanos::from_millis(50), seed);
            for number in 0..100 {
                simulation.send(Process(0), Process(1), 1_000, number);
            }
            rest(&mut simulation)
        };
        let numbers: Vec<u32> = run(1).into_iter().map(|(_, number)| number).collect();
        assert_eq!(numbers, Vec::from_iter(0..100));
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    /// A way that is cut holds what is sent that way until it is healed, and nothing else.
    #[test]
    fn cuts_have_a_direction() {
        let mut simulation = two_hosts();
        simulation.send(Process(0), Process(1), 1_000, 1);
        simulation.cut(Host(0), Host(1));
        simulation.send(Process(1), Process(0), 2_000, 2);
        assert_eq!(rest(&mut simulation), [(3_000, 2)]);
        simulation.heal(Host(0), Host(1));
        assert_eq!(rest(&mut simulation), [(4_000, 1)]);
    }

    /// The events of a frozen process come once it goes on; those of a dead one never come.
    #[test]
    fn frozen_processes_catch_up() {
        let mut simulation = two_hosts();
        simulation.freeze(Process(1));
        simulation.after(MILLI, Process(1), 1);
        simulation.after(MILLI + MILLI, Process(0), 2);
        assert_eq!(simulation.next().unwrap().what, 2);
        simulation.thaw(Process(1));
        simulation.after(MILLI, Process(0), 3);
        assert_eq!(rest(&mut simulation), [(2_000, 1), (3_000, 3)]);
        simulation.kill(Process(0));
        simulation.after(MILLI, Process(0), 4);
        assert_eq!(rest(&mut simulation), []);
    }

    /// Two runs of the same calls are the same; another time makes them differ.
    #[test]
    fn runs_are_told_apart() {
        let digest = |bytes| {
            let mut simulation = two_hosts();
            simulation.send(Process(0), Process(1), bytes, 1);
            rest(&mut simulation);
            simulation.digest()
        };
        assert_eq!(digest(10), digest(10));
        assert_ne!(digest(10), digest(11));
    }
}
