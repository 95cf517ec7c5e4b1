//! A whole tree of relays in virtual time, with everything that can happen to it drawn from a seed.

use std::collections::BTreeSet;

use ropewalk_names::Rank;

use super::*;
use crate::event::OutputStream;

const DETECT: Duration = Duration::from_secs(3);
const START_TIMEOUT: Duration = Duration::from_secs(30);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// What is still to happen, by its time and a number.
#[derive(Debug)]
enum Event {
    Connect(NodeId),
    /// From the first node to the second.
    Down(NodeId, NodeId, Down),
    Up(NodeId, NodeId, Up),
    /// The host of a node writes so many bytes, or is finished.
    Write(NodeId, usize),
    Finish(NodeId),
    /// A node is gone; those beside it see it later.
    Die(NodeId),
    /// Its parent sees the death of the first, its child that of the second.
    SeeChildDie(NodeId, NodeId),
    SeeParentDie(NodeId, NodeId),
    /// Whoever watches the job takes output.
    Take(u32),
    Timeout(NodeId),
    /// Somebody ends the job.
    End,
}

/// SplitMix64: enough for drawing faults.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

struct World {
    random: Random,
    now: u64,
    number: u64,
    queue: BTreeMap<(u64, u64), Event>,
    tree: Tree,
    adopts: bool,
    /// Of those that were adopted.
    parents: BTreeMap<NodeId, NodeId>,
    adoptions: u32,
    /// For when each has to look at its clock.
    alarms: BTreeMap<NodeId, u64>,
    relays: BTreeMap<NodeId, Relay>,
    /// The last delivery on each link: messages arrive in order.
    links: BTreeMap<(NodeId, NodeId), u64>,
    dead: BTreeSet<NodeId>,
    finishing: BTreeSet<NodeId>,
    written: BTreeMap<HostId, usize>,
    taken: BTreeMap<HostId, usize>,
    finished: BTreeSet<HostId>,
    lost: BTreeSet<HostId>,
    /// Those that died of themselves.
    struck: BTreeSet<HostId>,
    is_ended: bool,
    log: Vec<String>,
}

const MILLISECOND: u64 = 1_000_000;

impl World {
    fn new(seed: u64, adopts: bool) -> Self {
        let mut random = Random(seed);
        let hosts = 1 + random.below(24) as u32;
        let deaths = if adopts { 5 } else { 3 };
        let tree = Tree::new(hosts, 1 + random.below(5) as u32);
        let mut world = Self {
            random,
            now: 0,
            number: 0,
            queue: BTreeMap::new(),
            tree,
            adopts,
            parents: BTreeMap::new(),
            adoptions: 0,
            alarms: BTreeMap::new(),
            relays: BTreeMap::new(),
            links: BTreeMap::new(),
            dead: BTreeSet::new(),
            finishing: BTreeSet::new(),
            written: BTreeMap::new(),
            taken: BTreeMap::new(),
            finished: BTreeSet::new(),
            lost: BTreeSet::new(),
            struck: BTreeSet::new(),
            is_ended: false,
            log: Vec::new(),
        };
        for _ in 0..world.random.below(deaths) {
            let node = NodeId(1 + world.random.below(u64::from(hosts)) as u32);
            let at = world.random.below(400 * MILLISECOND);
            world.struck.extend(node.host());
            world.at(at, Event::Die(node));
        }
        if world.random.below(4) == 0 {
            let at = world.random.below(300 * MILLISECOND);
            world.at(at, Event::End);
        }
        world.begin(NodeId::ROOT);
        world
    }

    fn at(&mut self, after: u64, event: Event) {
        self.number += 1;
        self.queue.insert((self.now + after, self.number), event);
    }

    fn begin(&mut self, node: NodeId) {
        let now = Duration::from_nanos(self.now);
        let mut relay = Relay::new(self.tree, node, DETECT, START_TIMEOUT).adopting(self.adopts);
        relay.start(now);
        self.relays.insert(node, relay);
        self.perform(node);
        if let Some(host) = node.host() {
            let mut at = 0;
            for _ in 0..self.random.below(4) {
                at += self.random.below(50 * MILLISECOND);
                let size = 1 + self.random.below(3 << 20) as usize;
                self.at(at, Event::Write(node, size));
                let _ = host;
            }
            let end = at + self.random.below(100 * MILLISECOND);
            self.at(end, Event::Finish(node));
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, event: Event) {
        let delay = 1 + self.random.below(5 * MILLISECOND);
        let last = self.links.entry((from, to)).or_default();
        *last = (*last + 1).max(self.now + delay);
        let after = *last - self.now;
        self.at(after, event);
    }

    fn perform(&mut self, node: NodeId) {
        while let Some(action) = self.relays.get_mut(&node).and_then(Relay::poll_action) {
            match action {
                Action::Abandon(child) => self.at(MILLISECOND, Event::Die(child)),
                Action::Local(Down::Order(Order::Signal { .. })) => self.at(MILLISECOND, Event::Finish(node)),
                Action::Adopted => self.adoptions += 1,
                Action::Local(_) | Action::LocalPmi(..) | Action::LoseParent => {}
                Action::SeekLauncher => drop(self.parents.insert(node, NodeId::ROOT)),
                Action::SendChild(child, down) => self.send(node, child, Event::Down(node, child, down)),
                Action::SendParent(up) if node == NodeId::ROOT => self.take(up),
                Action::SendParent(up) => {
                    let parent = self.parent(node);
                    self.send(node, parent, Event::Up(node, parent, up));
                }
                Action::StartChild(child) => {
                    // One in twenty never comes up.
                    let delay = MILLISECOND + self.random.below(200 * MILLISECOND);
                    if self.random.below(20) > 0 {
                        self.at(delay, Event::Connect(child));
                    }
                }
            }
        }
        self.set_alarm(node);
    }

    fn set_alarm(&mut self, node: NodeId) {
        let Some(deadline) = self.relays.get(&node).and_then(Relay::deadline) else {
            return;
        };
        let due = (deadline.as_nanos() as u64).max(self.now + 1);
        let alarm = self.alarms.entry(node).or_default();
        if *alarm <= self.now || due < *alarm {
            *alarm = due;
            self.at(due - self.now, Event::Timeout(node));
        }
    }

    fn parent(&self, node: NodeId) -> NodeId {
        let adopted = self.parents.get(&node).copied();
        adopted.or(self.tree.parent(node)).unwrap()
    }

    /// Something reached the launcher.
    fn take(&mut self, up: Up) {
        let host = up.host;
        self.log.push(format!(
            "{} {host:?} {:?}",
            self.now,
            std::mem::discriminant(&up.report)
        ));
        let is_below_lost = self
            .lost
            .iter()
            .any(|&lost| self.tree.hosts_below(NodeId::of(lost)).contains(&host));
        match up.report {
            Report::Output { lines, .. } => {
                assert!(!self.finished.contains(&host), "output of {host:?} after its end");
                *self.taken.entry(host).or_default() += lines.len();
                let delay = self.random.below(20 * MILLISECOND);
                self.at(delay, Event::Take(lines.len() as u32));
            }
            Report::Late => assert!(!self.finished.contains(&host) && !self.lost.contains(&host)),
            Report::Finished => assert!(self.finished.insert(host), "{host:?} ended twice"),
            // Of one that had said all, but had not heard that it was heard.
            Report::Lost { .. } if self.adopts && self.finished.contains(&host) => {}
            Report::Lost { .. } => {
                assert!(!self.finished.contains(&host) || is_below_lost);
                self.lost.insert(host);
                if !self.is_ended && !self.adopts {
                    self.at(1, Event::End);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Connect(node) => {
                let parent = self.tree.parent(node).unwrap();
                let is_orphan = self.dead.contains(&parent);
                if self.dead.contains(&node) || (is_orphan && !self.adopts) {
                    self.dead.insert(node);
                } else if is_orphan {
                    self.begin(node);
                    self.with(node, |relay| relay.handle_parent_lost(SIGKILL));
                } else if self.relays[&parent].is_awaited(node) {
                    self.relays.get_mut(&parent).unwrap().handle_connected(node);
                    self.begin(node);
                    self.perform(parent);
                }
            }
            Event::Down(from, node, down) => {
                if self.parent(node) == from {
                    self.with(node, |relay| relay.handle_down(down));
                }
            }
            Event::Up(child, to, up) => self.with(to, |relay| relay.handle_up(child, up)),
            Event::Write(node, size) => {
                let host = node.host().unwrap();
                let busy = self
                    .relays
                    .get(&node)
                    .is_some_and(|relay| relay.own_output() < OUTPUT_WINDOW);
                if busy && !self.finishing.contains(&node) && !self.dead.contains(&node) {
                    *self.written.entry(host).or_default() += size;
                    let report = Report::Output {
                        rank: Rank(0),
                        stream: OutputStream::Stdout,
                        lines: vec![0; size],
                    };
                    self.with(node, |relay| relay.report(host, report));
                }
            }
            Event::Finish(node) => {
                if self.finishing.insert(node) {
                    let host = node.host().unwrap();
                    self.with(node, |relay| relay.report(host, Report::Finished));
                }
            }
            Event::Die(node) => self.die(node),
            Event::SeeChildDie(parent, node) => {
                self.with(parent, |relay| relay.handle_child_lost(node, String::new()));
            }
            Event::SeeParentDie(parent, node) => {
                if self.parent(node) == parent {
                    self.with(node, |relay| relay.handle_parent_lost(SIGKILL));
                }
            }
            Event::Take(size) => self.with(NodeId::ROOT, |relay| relay.handle_down(Down::Credit(size))),
            Event::Timeout(node) => {
                let now = Duration::from_nanos(self.now);
                self.with(node, |relay| relay.handle_timeout(now));
            }
            Event::End => {
                self.is_ended = true;
                let signal = SIGTERM;
                self.with(NodeId::ROOT, |relay| {
                    relay.handle_down(Down::Order(Order::Signal { rank: None, signal }))
                });
            }
        }
    }

    fn with(&mut self, node: NodeId, act: impl FnOnce(&mut Relay)) {
        if self.dead.contains(&node) {
            return;
        }
        if let Some(relay) = self.relays.get_mut(&node) {
            act(relay);
            // Each link's window, and the one message that may exceed it; what is said again comes at once.
            let window = OUTPUT_WINDOW + (3 << 20);
            let said_again = if self.adopts { 6 * window } else { 0 };
            let bound = (relay.children.len() + 1) * (window + said_again);
            assert!(
                relay.held_bytes() <= bound,
                "{} bytes wait in {node:?}",
                relay.held_bytes()
            );
            self.perform(node);
            if node != NodeId::ROOT && self.relays[&node].is_over() {
                self.die(node);
            }
        }
    }

    fn die(&mut self, node: NodeId) {
        if !self.dead.insert(node) {
            return;
        }
        let parent = self.parent(node);
        let seen = self.random.below(DETECT.as_nanos() as u64);
        // After what it had sent, as a connection's end comes.
        let last = self.links.get(&(node, parent)).copied().unwrap_or_default();
        let after = last.saturating_sub(self.now) + 1 + seen;
        self.at(after, Event::SeeChildDie(parent, node));
        for child in self.tree.children(node).map(NodeId) {
            let seen = self.random.below(DETECT.as_nanos() as u64);
            self.at(seen + 1, Event::SeeParentDie(node, child));
        }
    }

    fn run(seed: u64, adopts: bool) -> Self {
        let mut world = Self::new(seed, adopts);
        while let Some(((at, _), event)) = world.queue.pop_first() {
            world.now = at;
            world.step(event);
        }
        world
    }
}

/// Whatever dies, and whenever: the launcher hears of the end of every host or of the loss of one above it, nobody stays,
/// output comes whole from all that were not lost, and never too much of it is under way.
#[test]
fn trees_always_come_to_an_end() {
    for seed in 0..3000 {
        let world = World::run(seed, false);
        let root = &world.relays[&NodeId::ROOT];
        assert!(
            root.are_children_over(),
            "seed {seed}: somebody is still waited for"
        );
        for (node, relay) in &world.relays {
            let is_gone = *node == NodeId::ROOT || world.dead.contains(node);
            assert!(is_gone, "seed {seed}: {node:?} is still there: {relay:?}");
        }
        for host in world.tree.hosts_below(NodeId::ROOT) {
            let is_lost = world
                .lost
                .iter()
                .any(|&lost| world.tree.hosts_below(NodeId::of(lost)).contains(&host));
            if is_lost {
                continue;
            }
            assert!(
                world.finished.contains(&host),
                "seed {seed}: nothing is known of {host:?}"
            );
            let (written, taken) = (world.written.get(&host), world.taken.get(&host));
            assert_eq!(written, taken, "seed {seed}: output of {host:?}");
        }
    }
}

/// Whatever dies in a job that adopts: only those are lost that died or never came, the launcher hears of the end of all
/// others, and has their output once and whole, and nobody stays.
#[test]
fn only_the_dead_are_lost_where_orphans_are_adopted() {
    let mut adoptions = 0;
    for seed in 0..2000 {
        let world = World::run(seed, true);
        adoptions += world.adoptions;
        let root = &world.relays[&NodeId::ROOT];
        assert!(
            root.are_children_over(),
            "seed {seed}: somebody is still waited for"
        );
        for (node, relay) in &world.relays {
            let is_gone = *node == NodeId::ROOT || world.dead.contains(node);
            assert!(is_gone, "seed {seed}: {node:?} is still there: {relay:?}");
        }
        for host in world.tree.hosts_below(NodeId::ROOT) {
            let (finished, lost) = (world.finished.contains(&host), world.lost.contains(&host));
            assert!(finished != lost, "seed {seed}: {host:?} {finished} {lost}");
            if finished {
                let (written, taken) = (world.written.get(&host), world.taken.get(&host));
                assert_eq!(written, taken, "seed {seed}: output of {host:?}");
            }
            let has_come = world.relays.contains_key(&NodeId::of(host));
            assert!(
                !lost || world.struck.contains(&host) || !has_come || world.is_ended,
                "seed {seed}: {host:?} is lost, and was well"
            );
        }
    }
    assert!(adoptions > 300, "only {adoptions} were adopted");
}

/// The same seed tells the same story, to the nanosecond.
#[test]
fn a_seed_is_one_history() {
    for seed in 0..50 {
        for adopts in [false, true] {
            assert_eq!(World::run(seed, adopts).log, World::run(seed, adopts).log);
        }
    }
}

/// A message that is larger than the window still goes, and its credit comes back whole.
#[test]
fn large_output_goes_alone() {
    let mut relay = Relay::new(Tree::new(1, 1), NodeId(1), DETECT, START_TIMEOUT);
    let output = |size| Report::Output {
        rank: Rank(0),
        stream: OutputStream::Stdout,
        lines: vec![0; size],
    };
    for _ in 0..3 {
        relay.report(HostId(0), output(OUTPUT_WINDOW - 1));
    }
    let mut sent = 0;
    while let Some(Action::SendParent(up)) = relay.poll_action() {
        sent += up.report.output_size();
    }
    assert_eq!(
        (sent, relay.own_output()),
        (2 * (OUTPUT_WINDOW - 1), OUTPUT_WINDOW - 1)
    );
    relay.handle_down(Down::Credit(sent as u32 / 2));
    assert!(matches!(relay.poll_action(), Some(Action::SendParent(_))) == (sent / 2 + 2 > OUTPUT_WINDOW));
}

/// A job that is ended while its agents come up does not wait for those of other hosts, and the one beside the launcher, whose
/// ranks may run already, hears it.
#[test]
fn an_agent_beside_the_launcher_hears_an_early_end() {
    let tree = Tree::new(2, 2);
    let [here, elsewhere] = [0, 1].map(|host| NodeId::of(HostId(host)));
    let mut relay = Relay::new(tree, NodeId::ROOT, DETECT, START_TIMEOUT);
    relay.beside.insert(here);
    relay.start(Duration::ZERO);
    let order = Order::Signal {
        rank: None,
        signal: SIGTERM,
    };
    relay.handle_down(Down::Order(order));
    relay.handle_connected(here);
    let actions: Vec<_> = std::iter::from_fn(|| relay.poll_action()).collect();
    let abandoned = actions.iter().filter_map(|action| match action {
        Action::Abandon(node) => Some(*node),
        _ => None,
    });
    assert_eq!(abandoned.collect::<Vec<_>>(), [elsewhere]);
    let hears = |action: &Action| {
        matches!(action, Action::SendChild(node, Down::Order(Order::Signal { rank: None, signal: SIGTERM }))
            if *node == here)
    };
    assert!(actions.iter().any(hears), "{actions:?}");
}
