//! The servers of many agents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ropewalk_pmi::{
    AbsentMembers, Action, ChildId, ConnectionId, Down, GroupOptions, Peer, Process, RankSet, Server, Up,
};

use super::{GROUP, messages, process};

/// A small generator of numbers that a seed determines.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }
}

/// A job: servers in a tree, links that deliver in order, processes that fence.
struct Job {
    servers: Vec<Option<Server>>,
    parents: Vec<Option<usize>>,
    homes: Vec<usize>,
    /// The messages under way from one server to another, in bytes as they would go over a network.
    links: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    ranks: Vec<Rank>,
    size: u32,
    up_messages: usize,
}

#[derive(Clone, Debug, Default)]
struct Rank {
    alive: bool,
    connection: u64,
    waits: bool,
    /// How many fences the process has passed, and how many ended with an error.
    passed: u32,
    failed: u32,
    /// The pair that it put last, to be seen by all who pass a fence with it.
    put: Option<(String, String)>,
    answers: VecDeque<String>,
}

impl Job {
    fn new(dice: &mut Dice, agents: usize, size: u32, absent: AbsentMembers) -> Self {
        let parents: Vec<Option<usize>> = (0..agents)
            .map(|agent| (agent > 0).then(|| dice.roll(agent)))
            .collect();
        let homes: Vec<usize> = (0..size).map(|_| dice.roll(agents)).collect();
        Self::build(parents, homes, absent)
    }

    fn build(parents: Vec<Option<usize>>, homes: Vec<usize>, absent: AbsentMembers) -> Self {
        let (agents, size) = (parents.len(), homes.len() as u32);
        let mut below: Vec<RankSet> = (0..agents)
            .map(|agent| (0..size).filter(|&rank| homes[rank as usize] == agent).collect())
            .collect();
        let local = below.clone();
        for agent in (1..agents).rev() {
            let parent = parents[agent].unwrap();
            below[parent] = below[parent].union(&below[agent]);
        }
        let mut servers = Vec::new();
        for (agent, local) in local.into_iter().enumerate() {
            let mut server = if agent == 0 {
                Server::root()
            } else {
                Server::below_parent()
            };
            server.add_group(GroupOptions {
                local,
                children: (1..agents)
                    .filter(|&child| parents[child] == Some(agent))
                    .map(|child| (ChildId(child as u32), below[child].clone()))
                    .collect(),
                absent,
                ..GroupOptions::one_host(GROUP, "kvs", size)
            });
            servers.push(Some(server));
        }
        let mut job = Self {
            servers,
            parents,
            homes,
            links: BTreeMap::new(),
            ranks: vec![Rank::default(); size as usize],
            size,
            up_messages: 0,
        };
        for rank in 0..size {
            job.start(rank);
        }
        job
    }

    fn start(&mut self, rank: u32) {
        let before = &self.ranks[rank as usize];
        let connection = before.connection + u64::from(self.size);
        let connection = if before.connection == 0 {
            u64::from(rank) + u64::from(self.size)
        } else {
            connection
        };
        self.ranks[rank as usize] = Rank {
            alive: true,
            connection,
            ..Rank::default()
        };
        let home = self.homes[rank as usize];
        if let Some(server) = &mut self.servers[home] {
            server.open(ConnectionId(connection), Peer::Process(process(rank)));
        }
        self.say(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
        self.ranks[rank as usize].answers.clear();
    }

    fn say(&mut self, rank: u32, line: &str) {
        let home = self.homes[rank as usize];
        let connection = ConnectionId(self.ranks[rank as usize].connection);
        if let Some(server) = &mut self.servers[home] {
            server.handle_bytes(connection, line.as_bytes());
        }
        self.act(home);
    }

    fn ask(&mut self, rank: u32, line: &str) -> String {
        self.say(rank, line);
        self.ranks[rank as usize].answers.pop_front().unwrap()
    }

    fn put(&mut self, rank: u32, key: &str, value: &str) {
        let answer = self.ask(rank, &format!("cmd=put kvsname=kvs key={key} value={value}\n"));
        assert_eq!(answer, "cmd=put_result rc=0 msg=success");
        self.ranks[rank as usize].put = Some((key.into(), value.into()));
    }

    fn get(&mut self, rank: u32, key: &str) -> Option<String> {
        let answer = self.ask(rank, &format!("cmd=get kvsname=kvs key={key}\n"));
        answer
            .strip_prefix("cmd=get_result rc=0 msg=success value=")
            .map(str::to_owned)
    }

    fn fence(&mut self, rank: u32) {
        self.ranks[rank as usize].waits = true;
        self.say(rank, "cmd=barrier_in\n");
    }

    fn kill(&mut self, rank: u32) {
        self.ranks[rank as usize].alive = false;
        self.ranks[rank as usize].waits = false;
        let home = self.homes[rank as usize];
        if let Some(server) = &mut self.servers[home] {
            server.handle_departure(process(rank), true);
        }
        self.act(home);
    }

    /// An agent dies with all below it.
    fn kill_agent(&mut self, agent: usize) {
        let parent = self.parents[agent].unwrap();
        let mut gone = BTreeSet::from([agent]);
        for other in agent + 1..self.servers.len() {
            if self.parents[other].is_some_and(|parent| gone.contains(&parent)) {
                gone.insert(other);
            }
        }
        for &agent in &gone {
            self.servers[agent] = None;
        }
        self.links
            .retain(|(from, to), _| !gone.contains(from) && !gone.contains(to));
        for rank in 0..self.size as usize {
            if gone.contains(&self.homes[rank]) {
                self.ranks[rank].alive = false;
                self.ranks[rank].waits = false;
            }
        }
        if let Some(server) = &mut self.servers[parent] {
            server.handle_child_lost(ChildId(agent as u32));
        }
        self.act(parent);
    }

    /// Delivers one message, the first of a link that the dice choose. Says whether there was any.
    fn deliver(&mut self, dice: &mut Dice) -> bool {
        let links: Vec<_> = self.links.keys().copied().collect();
        if links.is_empty() {
            return false;
        }
        let (from, to) = links[dice.roll(links.len())];
        let link = self.links.get_mut(&(from, to)).unwrap();
        let bytes = link.pop_front().unwrap();
        if link.is_empty() {
            self.links.remove(&(from, to));
        }
        let Some(server) = &mut self.servers[to] else {
            return true;
        };
        if self.parents[from] == Some(to) {
            self.up_messages += 1;
            server.handle_up(ChildId(from as u32), Up::from_bytes(&bytes).unwrap());
        } else {
            server.handle_down(Down::from_bytes(&bytes).unwrap());
        }
        self.act(to);
        true
    }

    fn act(&mut self, agent: usize) {
        loop {
            let Some(action) = self.servers[agent].as_mut().and_then(Server::poll_action) else {
                return;
            };
            match action {
                Action::Send { connection, bytes } => self.hear(connection, &bytes),
                Action::ToChild { child, message } => {
                    let child = child.0 as usize;
                    if self.servers[child].is_some() {
                        self.links
                            .entry((agent, child))
                            .or_default()
                            .push_back(message.to_bytes());
                    }
                }
                Action::ToParent { message } => {
                    let parent = self.parents[agent].unwrap();
                    self.links
                        .entry((agent, parent))
                        .or_default()
                        .push_back(message.to_bytes());
                }
                Action::FenceBegan { .. } | Action::FenceEnded { .. } => {
                    assert_eq!(self.parents[agent], None, "only the root decides");
                }
                Action::Close { .. } | Action::Overwritten { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn hear(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let rank = (connection.0 % u64::from(self.size)) as usize;
        if self.ranks[rank].connection != connection.0 || !self.ranks[rank].alive {
            return;
        }
        for text in messages(bytes) {
            if text.starts_with("cmd=barrier_out") {
                assert!(self.ranks[rank].waits, "nobody waited: {text}");
                self.ranks[rank].waits = false;
                if text == "cmd=barrier_out" {
                    self.ranks[rank].passed += 1;
                } else {
                    self.ranks[rank].failed += 1;
                }
            } else {
                self.ranks[rank].answers.push_back(text);
            }
        }
    }

    fn alive(&self) -> Vec<u32> {
        (0..self.size)
            .filter(|&rank| self.ranks[rank as usize].alive)
            .collect()
    }
}

/// "barrier: over ALL live members of the process group .. Puts made before the barrier must be readable by
/// all after it": with random trees and random delivery every fence is a barrier: nobody passes before the
/// last has come, and who has passed gets all that was put before. Messages are one per agent and fence in
/// either direction.
#[test]
fn fences_of_random_trees_are_barriers() {
    for seed in 0..1500 {
        let mut dice = Dice(seed);
        let (agents, size) = (1 + dice.roll(9), 1 + dice.roll(12) as u32);
        let mut job = Job::new(&mut dice, agents, size, AbsentMembers::Fail);
        let occupied = (1..agents).filter(|&agent| {
            let mut above: BTreeSet<usize> = BTreeSet::new();
            for &home in &job.homes {
                let mut at = Some(home);
                while let Some(agent) = at {
                    above.insert(agent);
                    at = job.parents[agent];
                }
            }
            above.contains(&agent)
        });
        let occupied = occupied.count();
        for round in 0..4 {
            let mut to_come: Vec<u32> = (0..size).collect();
            while !to_come.is_empty() {
                if dice.roll(2) == 0 && job.deliver(&mut dice) {
                    continue;
                }
                let rank = to_come.remove(dice.roll(to_come.len()));
                job.put(rank, &format!("k{rank}"), &format!("{round}-{rank}"));
                assert!(
                    job.ranks.iter().all(|rank| rank.passed == round),
                    "seed {seed}: too early"
                );
                job.fence(rank);
            }
            while job.deliver(&mut dice) {}
            for rank in 0..size {
                assert_eq!(
                    job.ranks[rank as usize].passed,
                    round + 1,
                    "seed {seed}: rank {rank} hangs"
                );
                for of in 0..size {
                    let expected = Some(format!("{round}-{of}"));
                    assert_eq!(job.get(rank, &format!("k{of}")), expected, "seed {seed}");
                }
            }
            let expected = occupied * (round as usize + 1);
            assert_eq!(
                job.up_messages, expected,
                "seed {seed}: one message up per agent and fence"
            );
        }
    }
}

/// Processes and whole agents die and processes come back at any time. Nobody hangs: once no more dies, every live
/// process passes its fence, or fails if the policy says so and somebody is gone; and who passes together gets what
/// the others had put.
#[test]
fn fences_survive_deaths_and_returns() {
    let (mut deaths, mut returns, mut failures, mut passed) = (0, 0, 0, 0);
    for seed in 0..4000 {
        let mut dice = Dice(seed);
        let (agents, size) = (1 + dice.roll(7), 2 + dice.roll(9) as u32);
        let absent = [
            AbsentMembers::Exclude,
            AbsentMembers::Fail,
            AbsentMembers::FailUntilReplaced,
        ][dice.roll(3)];
        let mut job = Job::new(&mut dice, agents, size, absent);
        for step in 0..120 {
            let rank = dice.roll(size as usize) as u32;
            let state = job.ranks[rank as usize].clone();
            let home_is_up = job.servers[job.homes[rank as usize]].is_some();
            match dice.roll(30) {
                0 if state.alive => {
                    deaths += 1;
                    job.kill(rank);
                }
                1..=3 if !state.alive && home_is_up => {
                    returns += 1;
                    job.start(rank);
                }
                4 if agents > 1 && step % 40 == 7 => {
                    let agent = 1 + dice.roll(agents - 1);
                    if job.servers[agent].is_some() {
                        deaths += 1;
                        job.kill_agent(agent);
                    }
                }
                5..=16 if state.alive && !state.waits => {
                    job.put(rank, &format!("k{rank}"), &format!("{step}"));
                    job.fence(rank);
                }
                _ => {
                    job.deliver(&mut dice);
                }
            }
        }
        while job.deliver(&mut dice) {}

        // Nobody dies any more. Who waits from before goes on waiting until all have come.
        let alive = job.alive();
        let before: Vec<Rank> = job.ranks.clone();
        for &rank in &alive {
            if !before[rank as usize].waits {
                job.put(rank, &format!("k{rank}"), "last");
                job.fence(rank);
            }
        }
        while job.deliver(&mut dice) {}
        let may_be_gone = |rank: &usize| match absent {
            AbsentMembers::Exclude => true,
            AbsentMembers::Fail => false,
            AbsentMembers::FailUntilReplaced => job.servers[job.homes[*rank]].is_none(),
        };
        let is_whole = (0..size as usize).all(|rank| job.ranks[rank].alive || may_be_gone(&rank));
        for &rank in &alive {
            let (before, after) = (&before[rank as usize], &job.ranks[rank as usize]);
            assert!(!after.waits, "seed {seed}: rank {rank} hangs");
            let (new_passed, new_failed) = (after.passed - before.passed, after.failed - before.failed);
            assert_eq!(
                new_passed + new_failed,
                1,
                "seed {seed}: rank {rank} {before:?} {after:?}"
            );
            if is_whole {
                assert_eq!(new_failed, 0, "seed {seed}: rank {rank}");
            } else {
                assert_eq!(new_passed, 0, "seed {seed}: rank {rank}");
            }
            failures += new_failed;
            passed += new_passed;
        }
        if is_whole {
            for &rank in &alive {
                for &of in &alive {
                    let (key, value) = job.ranks[of as usize].put.clone().unwrap();
                    assert_eq!(job.get(rank, &key), Some(value), "seed {seed}: {rank} of {of}");
                }
            }
        }
        let dead: Vec<String> = (0..size)
            .filter(|rank| !alive.contains(rank))
            .map(|rank| rank.to_string())
            .collect();
        for &rank in &alive {
            let found = job.get(rank, "PMI_dead_processes");
            assert_eq!(found, Some(dead.join(",")), "seed {seed}: all know who is dead");
        }
    }
    assert!(deaths > 1000 && returns > 1000 && failures > 1000 && passed > 1000);
}

/// Names, spawns and other groups' keys are asked at the root, through any number of agents, and answered to who
/// asked.
#[test]
fn questions_find_the_root_and_back() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let agents = 1 + dice.roll(6);
        let mut job = Job::new(&mut dice, agents, 4, AbsentMembers::Fail);
        for rank in 0..4 {
            job.say(rank, &format!("cmd=publish_name service=s{rank} port=p{rank}\n"));
            job.say(rank, "");
        }
        while job.deliver(&mut dice) {}
        for rank in 0..4_u32 {
            let published = job.ranks[rank as usize].answers.pop_front().unwrap();
            assert_eq!(published, "cmd=publish_result info=ok rc=0 msg=success");
        }
        for rank in 0..4_u32 {
            let of = (rank + 1) % 4;
            job.say(rank, &format!("cmd=lookup_name service=s{of}\n"));
        }
        while job.deliver(&mut dice) {}
        for rank in 0..4_u32 {
            let found = job.ranks[rank as usize].answers.pop_front().unwrap();
            assert_eq!(
                found,
                format!(
                    "cmd=lookup_result port=p{} info=ok rc=0 msg=success",
                    (rank + 1) % 4
                )
            );
        }
    }
}

/// Who loses the server above gets an error for what it waits for, and for what it asks after that.
#[test]
fn a_lost_parent_is_an_error_and_no_wait() {
    let mut server = Server::below_parent();
    server.add_group(GroupOptions {
        local: RankSet::range(0, 2),
        ..GroupOptions::one_host(GROUP, "kvs", 3)
    });
    for rank in [0, 1] {
        server.open(super::connection(rank), Peer::Process(process(rank)));
        server.handle_bytes(
            super::connection(rank),
            b"cmd=init pmi_version=1 pmi_subversion=1\n",
        );
    }
    server.handle_bytes(super::connection(0), b"cmd=barrier_in\n");
    server.handle_bytes(super::connection(1), b"cmd=lookup_name service=s\n");
    let mut up = Vec::new();
    while let Some(action) = server.poll_action() {
        if let Action::ToParent { message } = action {
            up.push(message);
        }
    }
    assert!(matches!(&up[..], [Up::Ask { .. }]), "{up:?}");
    server.handle_parent_lost();
    let lost = "the_process_manager_lost_its_parent";
    let mut answers = super::drain(&mut server);
    answers.sort();
    assert_eq!(
        answers,
        [
            format!("0 cmd=barrier_out rc=-1 msg={lost}"),
            format!("1 cmd=lookup_result rc=1 msg={lost}")
        ]
    );
    let failed = format!("cmd=barrier_out rc=-1 msg={lost}");
    assert_eq!(super::ask(&mut server, 1, "cmd=barrier_in"), failed);
}

/// A batch that is too large for one message goes in several, and arrives whole.
#[test]
fn large_batches_are_cut() {
    let mut dice = Dice(1);
    let mut job = Job::build(vec![None, Some(0)], vec![0, 1], AbsentMembers::Fail);
    let value = "x".repeat(900);
    let writer = 1;
    for key in 0..3000 {
        job.put(writer, &format!("k{key}"), &value);
    }
    for rank in [0, 1] {
        job.fence(rank);
    }
    let sizes = job.links.values().flatten().map(Vec::len).max();
    assert!(
        sizes.is_some_and(|size| size < Server::PAIRS_SIZE_MAX * 2),
        "{sizes:?}"
    );
    while job.deliver(&mut dice) {}
    assert_eq!(job.get(0, "k2999"), Some(value));
}

/// A message of the tree is read as it was written, and what is none is an error.
#[test]
fn tree_messages_survive_the_wire() {
    let up = Up::Returned {
        process: Process {
            group: GROUP,
            rank: 7,
        },
    };
    assert_eq!(Up::from_bytes(&up.to_bytes()), Ok(up.clone()));
    let mut longer = up.to_bytes();
    longer.push(0);
    assert!(
        Up::from_bytes(&longer).is_err() && Up::from_bytes(&[99]).is_err() && Down::from_bytes(&[]).is_err()
    );
}
