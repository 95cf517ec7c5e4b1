//! The ways of messages to and from schedulers in a job with relays.

use std::collections::BTreeMap;

use ropewalk_reduce_core::{
    Gathering, Relays, Site,
    canary::{Canary, is_put_back},
};

use super::{
    Job,
    what::{Parcel, What},
};
use crate::{Nanos, Process};

/// The messages of a process to and from schedulers, and those that it carries.
pub(super) struct Post {
    /// The number of the last message that it sent.
    last: u64,
    /// Those that have not got to their receivers, and the site to which they went: a relay or that receiver.
    under_way: BTreeMap<u64, (Site, Parcel)>,
    /// The numbers of the last messages that it took, by senders.
    taken: BTreeMap<Process, u64>,
    /// Those that it holds as a relay.
    gathering: Gathering<Parcel>,
    /// When it passes that on.
    timer: Option<Nanos>,
}

impl Post {
    pub(super) fn new(relays: &Relays, site: Site) -> Self {
        Self {
            last: 0,
            under_way: BTreeMap::new(),
            taken: BTreeMap::new(),
            gathering: Gathering::new(relays, site),
            timer: None,
        }
    }

    fn pack(&mut self, from: Process, to: Process, bytes: u64, what: What) -> Parcel {
        self.last += 1;
        Parcel {
            number: self.last,
            from,
            to,
            bytes,
            what: Box::new(what),
        }
    }
}

impl Job<'_> {
    /// The relay between a rank and a scheduler, if a process does not count it as lost.
    fn relay(&self, process: Process, rank: Process, scheduler: Process) -> Option<Site> {
        let relay = self.setting.relays.between(Site(rank.0), Site(scheduler.0));
        relay.filter(|relay| !self.sites[process.0 as usize].lost.contains(relay))
    }

    /// Sends a message of a process to a scheduler.
    pub(super) fn send_to_scheduler(&mut self, process: Process, to: Process, bytes: u64, what: What) {
        if !self.setting.relays.are_any() {
            self.simulation.send(process, to, bytes, what);
            return;
        }
        let relay = self.relay(process, process, to);
        let post = &mut self.sites[process.0 as usize].post;
        // It goes the way of those that have not got there, so that it does not get before them.
        let mut before = post.under_way.values().filter(|(_, parcel)| parcel.to == to);
        let is_direct = match (before.next(), &what) {
            (Some((by, _)), _) => *by == Site(to.0),
            (None, What::ToScheduler(_, message, _)) => !message.is_said_by_many(),
            (None, _) => false,
        };
        let by = relay.filter(|_| !is_direct).unwrap_or(Site(to.0));
        let parcel = post.pack(process, to, bytes, what);
        post.under_way.insert(parcel.number, (by, parcel.clone()));
        let what = match by == Site(to.0) {
            true => What::Parcels(vec![parcel]),
            false => What::Collect(parcel),
        };
        self.simulation.send(process, Process(by.0), bytes, what);
    }

    /// Sends messages of a scheduler, those to the ranks of a group together.
    pub(super) fn send_from_scheduler(&mut self, process: Process, sent: Vec<(Process, u64, What)>) {
        let mut by_relay: BTreeMap<Site, Vec<Parcel>> = BTreeMap::new();
        let mut direct = Vec::new();
        for (to, bytes, what) in sent {
            if !self.setting.relays.are_any() {
                self.from_scheduler += 1;
                self.simulation.send(process, to, bytes, what);
                continue;
            }
            let relay = self.setting.relays.bringing(Site(to.0), Site(process.0));
            let relay = relay.filter(|relay| !self.sites[process.0 as usize].lost.contains(relay));
            let post = &mut self.sites[process.0 as usize].post;
            let parcel = post.pack(process, to, bytes, what);
            match relay {
                Some(relay) => {
                    post.under_way.insert(parcel.number, (relay, parcel.clone()));
                    by_relay.entry(relay).or_default().push(parcel);
                }
                None => direct.push(parcel),
            }
        }
        for (relay, parcels) in by_relay {
            self.from_scheduler += 1;
            let bytes = Parcel::bytes_together(&parcels);
            self.simulation
                .send(process, Process(relay.0), bytes, What::Spread(parcels));
        }
        self.from_scheduler += self.send_parcels(process, direct);
    }

    /// A relay has a message for a scheduler.
    pub(super) fn collect(&mut self, relay: Process, parcel: Parcel) {
        let now = self.simulation.now().into();
        let (from, to) = (Site(parcel.from.0), Site(parcel.to.0));
        let post = &mut self.sites[relay.0 as usize].post;
        post.gathering.take(now, from, to, parcel);
        self.pass_on_held(relay);
    }

    /// A relay passes on what has waited for long enough.
    pub(super) fn pass_on_held(&mut self, relay: Process) {
        let now = self.simulation.now();
        let post = &mut self.sites[relay.0 as usize].post;
        while let Some((to, parcels)) = post.gathering.poll(now.into()) {
            let bytes = parcels.iter().map(|parcel| parcel.bytes).sum();
            self.simulation
                .send(relay, Process(to.0), bytes, What::Parcels(parcels));
        }
        let deadline = post.gathering.poll_timeout().map(Nanos::from);
        if let Some(deadline) = deadline.filter(|deadline| post.timer != Some(*deadline)) {
            self.simulation.after(deadline - now, relay, What::RelayDue);
        }
        post.timer = deadline;
    }

    /// A relay has messages of a scheduler for the ranks of its group.
    pub(super) fn spread(&mut self, relay: Process, parcels: Vec<Parcel>) {
        let (own, others): (Vec<_>, Vec<_>) = parcels.into_iter().partition(|parcel| parcel.to == relay);
        self.send_parcels(relay, others);
        self.unpack(relay, own);
    }

    /// Sends parcels to their receivers: one message to each. Returns the number of messages.
    fn send_parcels(&mut self, from: Process, parcels: Vec<Parcel>) -> u64 {
        let mut by_receiver: BTreeMap<Process, Vec<Parcel>> = BTreeMap::new();
        for parcel in parcels {
            by_receiver.entry(parcel.to).or_default().push(parcel);
        }
        let messages = by_receiver.len() as u64;
        for (to, parcels) in by_receiver {
            let bytes = Parcel::bytes_together(&parcels);
            self.simulation.send(from, to, bytes, What::Parcels(parcels));
        }
        messages
    }

    /// A process takes messages, each once. Their senders hear of it, which costs nothing, as the answers to messages
    /// without relays.
    pub(super) fn unpack(&mut self, process: Process, parcels: Vec<Parcel>) {
        let mut is_for_scheduler = false;
        for parcel in parcels {
            let sender = &mut self.sites[parcel.from.0 as usize].post;
            sender.under_way.remove(&parcel.number);
            let taken = &mut self.sites[process.0 as usize].post.taken;
            let last = taken.entry(parcel.from).or_default();
            if parcel.number <= *last {
                continue;
            }
            *last = parcel.number;
            if let What::ToScheduler(..) = *parcel.what {
                // Messages are counted, however many are in one.
                self.to_scheduler -= u64::from(is_for_scheduler);
                is_for_scheduler = true;
            }
            self.handle(process, *parcel.what);
        }
    }

    /// A process counts a site as lost: what went through it is sent without it, and what went to it is not.
    pub(super) fn send_without(&mut self, process: Process, lost: Site) {
        let post = &mut self.sites[process.0 as usize].post;
        post.gathering.handle_lost(lost);
        post.under_way.retain(|_, (_, parcel)| parcel.to.0 != lost.0);
        let under_way = std::mem::take(&mut post.under_way).into_iter();
        let (again, others): (Vec<_>, Vec<_>) = under_way.partition(|(_, (relay, _))| *relay == lost);
        post.under_way = others.into_iter().collect();
        for (_, (_, parcel)) in again.into_iter().filter(|_| !is_put_back(Canary::RelayTrusted)) {
            let (to, bytes) = (parcel.to, parcel.bytes);
            self.simulation
                .send(process, to, bytes, What::Parcels(vec![parcel]));
        }
        self.pass_on_held(process);
    }
}
