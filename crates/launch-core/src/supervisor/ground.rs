//! The ground on which the parts of a supervisor stand: who is there, the state of the job, and what is to be done.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ropewalk_membership::{Cause, Membership};
use ropewalk_names::{HostId, Rank};
use ropewalk_pmi as pmi;

use super::{Action, Phase};
use crate::{
    event::JobEvent,
    job::OnFailure,
    placement::RankRun,
    protocol::{Down, News, Order, Plan},
    tree::{NodeId, Tree},
};

/// The hosts and ranks of a job, and the way to them.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) plan: Plan,
    pub(super) tree: Tree,
    pub(super) on_failure: OnFailure,
    /// The name of each segment's program, and the first rank behind it.
    pub(super) programs: Vec<(Rank, String)>,
    pub(super) hosts: Vec<Host>,
    pub(super) members: Membership,
    pub(super) running: BTreeMap<Rank, Running>,
    /// The root of the PMI servers, if there are several hosts: one alone has it itself.
    pub(super) pmi: Option<pmi::Server>,
    /// The fences in which somebody waits.
    pub(super) fences: Vec<(u32, String)>,
    /// The news that attached ranks have to hear; told as they come once there are such ranks.
    news: Vec<News>,
    has_attached: bool,
    pub(super) phase: Phase,
    pub(super) actions: VecDeque<Action>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    /// Those that it ever had.
    pub(super) ranks: Vec<RankRun>,
    /// How many the job began with there.
    pub(super) slots: u32,
    /// How many it has.
    pub(super) load: u32,
    pub(super) is_ready: bool,
    /// It takes no more ranks.
    pub(super) is_closed: bool,
    pub(super) is_over: bool,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) host: HostId,
    pub(super) pid: u32,
}

impl Ground {
    pub(super) fn new(plan: &Plan, on_failure: OnFailure) -> Self {
        let mut behind = 0;
        let programs = plan.segments.iter().map(|segment| {
            behind += segment.ranks;
            (Rank(behind), segment.program.to_string_lossy().into_owned())
        });
        let hosts = plan.hosts.iter().map(|host| {
            let slots = host.runs.iter().map(|run| run.count).sum();
            Host {
                name: host.name.clone(),
                ranks: host.runs.clone(),
                slots,
                load: slots,
                is_ready: false,
                is_closed: false,
                is_over: false,
            }
        });
        let pmi = (plan.hosts.len() > 1).then(|| {
            let mut pmi = pmi::Server::root();
            if plan.pmi.shares_names {
                pmi.share_names();
            }
            pmi.add_group(plan.pmi_group(&plan.first_group(), NodeId::ROOT));
            pmi
        });
        Self {
            tree: plan.tree(),
            on_failure,
            programs: programs.collect(),
            hosts: hosts.collect(),
            members: Membership::new(plan.size),
            running: BTreeMap::new(),
            pmi,
            fences: Vec::new(),
            news: Vec::new(),
            has_attached: false,
            phase: Phase::Running,
            actions: VecDeque::new(),
            plan: plan.clone(),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// How long an agent may be silent.
    pub(super) fn detect(&self) -> Duration {
        self.plan.detect
    }

    pub(super) fn host(&mut self, host: HostId) -> &mut Host {
        &mut self.hosts[host.0 as usize]
    }

    pub(super) fn name_of(&self, host: HostId) -> &str {
        &self.hosts[host.0 as usize].name
    }

    /// The name of the program that a rank runs.
    pub(super) fn program_of(&self, rank: Rank) -> &str {
        let program = self.programs.iter().find(|(behind, _)| rank < *behind);
        program.map_or("", |(_, program)| program)
    }

    /// Tells whoever watches the job.
    pub(super) fn tell(&mut self, event: JobEvent) {
        match &event {
            JobEvent::FenceBegan { group, fence } => self.fences.push((*group, fence.clone())),
            JobEvent::FenceEnded { group, fence, .. } => {
                self.fences
                    .retain(|(known, name)| known != group || name != fence);
            }
            _ => {}
        }
        self.actions.push_back(Action::Event(event));
    }

    pub(super) fn send(&mut self, down: Down) {
        self.actions.push_back(Action::Send(down));
    }

    pub(super) fn order(&mut self, host: HostId, order: Order) {
        self.send(Down::To(NodeId::of(host), order));
    }

    /// Sends a signal to all ranks, which are to end.
    pub(super) fn signal_all(&mut self, signal: i32) {
        self.send(Down::Order(Order::Signal { rank: None, signal }));
    }

    /// Tells the agent of a host which processes run on all hosts.
    pub(super) fn tell_processes(&mut self, host: HostId, token: u64) {
        let running = self.running.iter();
        let running = running.map(|(rank, running)| (*rank, running.pid)).collect();
        self.order(host, Order::Processes { token, running });
    }

    /// The agent of a host is ready, and says what the system there calls the host.
    pub(super) fn handle_ready(&mut self, host: HostId, host_name: String) {
        // What users wrote is what they know; only for the own host they write nothing.
        let is_single = self.tree.is_single();
        let known = self.host(host);
        known.is_ready = true;
        if is_single {
            known.name = host_name;
        }
        let host = known.name.clone();
        let ready = self.hosts.iter().filter(|host| host.is_ready).count();
        self.tell(JobEvent::HostReady {
            host,
            ready: ready as u32,
            hosts: self.hosts.len() as u32,
        });
    }

    /// The first rank has attached to its agent.
    pub(super) fn handle_attached(&mut self) {
        if !std::mem::replace(&mut self.has_attached, true) {
            for news in std::mem::take(&mut self.news) {
                self.send(Down::News(news));
            }
        }
    }

    /// Tells attached ranks; agents know the news of their own ranks.
    pub(super) fn spread(&mut self, news: News) {
        if self.tree.is_single() {
        } else if self.has_attached {
            self.send(Down::News(news));
        } else {
            self.news.push(news);
        }
    }

    /// A rank is gone: whoever watches hears of it, and so do attached ranks of other hosts.
    pub(super) fn depart(&mut self, host: HostId, rank: Rank, cause: Cause, at_ns: u64) {
        let pid = self.running.remove(&rank).map(|running| running.pid);
        let incarnation = self.members.incarnation(rank).unwrap_or_default();
        let Some(departure) = self.members.handle_departure(rank, incarnation, cause) else {
            return;
        };
        let known = self.host(host);
        known.load = known.load.saturating_sub(1);
        let host = known.name.clone();
        if rank.0 < self.plan.size {
            self.spread(News::Departed {
                rank,
                incarnation,
                cause,
            });
        }
        self.tell(JobEvent::Departed {
            departure,
            host,
            pid,
            at_ns,
        });
    }
}
