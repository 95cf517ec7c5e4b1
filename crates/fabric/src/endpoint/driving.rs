//! The progress of an endpoint when its owner drives it, and its sleep.

use std::time::{Duration, Instant};

use super::{
    Endpoint, HeartbeatCounts,
    heartbeat::{Heartbeat, Verdict},
};
use crate::{
    Body, Event, Messages, OperationError, OperationId, PeerDeath, Waker,
    frame::MessageKind,
    inbox::Around,
    loopback::Loopback,
    operations::{Awaited, Operation},
    provider::{Provider, Sleep, Work},
};

impl Endpoint {
    /// Sends and receives what is possible at once, serves the peers' one-sided operations, and ends what is
    /// overdue. Never blocks. Returns how many events were added, and one more if a [`Waker`] asked for it.
    ///
    /// In a process that was forked off the endpoint's own, nothing happens.
    pub fn progress(&mut self) -> usize {
        self.drive(true)
    }

    /// As [`progress`](Self::progress), but leaves messages where they are if [`receive`](Self::receive) gets them
    /// from there.
    pub fn prepare(&mut self) -> usize {
        self.drive(false)
    }

    fn drive(&mut self, takes_messages: bool) -> usize {
        let now = self.look_at_clock();
        if self.fork_guard.is_forked() {
            return 0;
        }
        let woken = self.wakeup.waker.take();
        self.inbox.moved = false;
        let before = self.inbox.len();
        if !self.loopback.is_empty() {
            let itself = self.itself_id;
            let (loopback, _, mut around) = self.around(now, usize::MAX, takes_messages);
            loopback.progress(itself, &mut around);
        }
        self.send_queued_at(now, takes_messages);
        let look = self.looks(now);
        let ready = std::mem::take(&mut self.wakeup.ready);
        for index in 0..self.providers.len() {
            let (_, providers, mut around) = self.around(now, index, takes_messages);
            providers[index].progress(look.then_some(&ready), &mut around);
        }
        self.wakeup.ready = ready;
        if look {
            self.wakeup.ready.clear();
        }
        if !self.inbox.dead.is_empty() || !self.inbox.pings.is_empty() {
            self.handle_news(now);
        }
        let beat = self.heartbeat.as_ref().and_then(Heartbeat::next);
        if beat.is_some_and(|beat| beat <= now) {
            self.handle_heartbeat(now);
        }
        self.handle_deadlines(now);
        self.inbox.len() - before + usize::from(woken)
    }

    /// Sends what was queued since the last [`progress`](Self::progress), as far as that is possible at once, and looks
    /// for nothing that has come: the last thing to do before a sleep.
    pub fn send_queued(&mut self) {
        let now = self.look_at_clock();
        if !self.fork_guard.is_forked() {
            self.send_queued_at(now, false);
        }
    }

    fn send_queued_at(&mut self, now: Instant, takes_messages: bool) {
        for index in 0..self.providers.len() {
            let (_, providers, mut around) = self.around(now, index, takes_messages);
            providers[index].send_queued(&mut around);
        }
    }

    /// Returns true if the last [`progress`](Self::progress) received anything, or could go on sending what a
    /// peer had no room for, be it only a part of something: more is likely to follow at once.
    pub fn has_moved(&self) -> bool {
        self.inbox.moved
    }

    /// Returns true if data of a [`get`](Self::get) or [`put`](Self::put) is on its way: soon there will be
    /// something to do.
    pub fn is_transferring(&self) -> bool {
        self.has(Work::Transfers)
    }

    /// When [`progress`](Self::progress) last began, about: a time that costs no look at the clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How often this endpoint and its peers asked each other for a sign of life.
    pub fn heartbeat_counts(&self) -> HeartbeatCounts {
        self.heartbeat_counts
    }

    /// When an operation ends at the latest, or would have if it has just ended: until another is started. If it was
    /// started after [`now`](Self::now), that is found out by the next progress.
    pub fn deadline(&self, operation: OperationId) -> Option<Instant> {
        self.inbox.operations.deadline(operation)
    }

    /// The time-outs of the operations that were started since the last look begin now.
    pub(super) fn look_at_clock(&mut self) -> Instant {
        let now = Instant::now();
        let late = now.saturating_duration_since(self.now);
        self.now = now;
        if self.inbox.operations.begin(late)
            && let Some(heartbeat) = &mut self.heartbeat
        {
            heartbeat.begin(now);
        }
        now
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.inbox.pop();
        if let Some(Event::PeerDied { peer, .. }) = &event {
            self.peers.vacate(*peer);
        }
        event
    }

    /// Receives messages that [`prepare`](Self::prepare) left where they were, unless there are events: those have to
    /// be taken before, and these before the events that come after. Returns whether there are either now.
    ///
    /// # Panics
    /// If there are messages still.
    pub fn receive(&mut self, messages: &mut Messages) -> bool {
        messages.clear();
        self.inbox.vacate();
        if self.inbox.len() == 0 && !self.fork_guard.is_forked() {
            for index in 0..self.providers.len() {
                let (_, providers, mut around) = self.around(self.now, index, true);
                if let Some(shared) = providers[index].shared_memory() {
                    shared.receive(&mut around, messages);
                }
            }
        }
        !messages.is_empty() || self.inbox.len() > 0
    }

    /// When [`progress`](Self::progress) has to be called although the descriptor is not readable; in the
    /// past if there is something to do now. Ask before each sleep on the descriptor: it becomes readable for
    /// everything that comes after that.
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let woken = self.wakeup.arm();
        let untimed = self.inbox.operations.untimed() > 0;
        if woken || untimed || !self.loopback.is_empty() || self.inbox.len() > 0 {
            return Some(Instant::now());
        }
        let heartbeat = self.heartbeat.as_ref().and_then(Heartbeat::next);
        let mut earliest = self
            .inbox
            .operations
            .earliest()
            .into_iter()
            .chain(heartbeat)
            .min();
        let mut sees_processes = false;
        for provider in &mut self.providers {
            match provider.arm() {
                Sleep::No => return Some(Instant::now()),
                Sleep::Until(moment) => earliest = earliest.into_iter().chain(moment).min(),
            }
            sees_processes |= provider
                .shared_memory()
                .is_some_and(|shared| shared.sees_processes());
        }
        let waits = sees_processes && self.inbox.operations.len() > 0;
        let look = waits.then(|| Instant::now() + Self::PROCESS_INTERVAL);
        earliest.into_iter().chain(look).min()
    }

    /// Sleeps until there is something to do, but not longer than `timeout`. An interrupting signal may end
    /// it early.
    pub fn wait(&mut self, timeout: Duration) {
        let until_deadline = self
            .next_deadline()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let sleep = until_deadline.map_or(timeout, |until| until.min(timeout));
        if !sleep.is_zero() {
            self.wakeup.sleep(sleep);
        }
    }

    /// Drives the endpoint until everything queued was handed to the operating system. Events that come
    /// meanwhile wait for [`poll_event`](Self::poll_event). Returns whether all was sent within `timeout`.
    ///
    /// That is not yet delivery: if the endpoint is then dropped while input of a peer is unread, the system
    /// resets that connection and forgets what it had not sent. Where a last message counts, wait for its answer.
    pub fn flush(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            self.progress();
            if !self.has_unsent() {
                return true;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return false;
            }
            // Not `wait`, which returns at once while events wait for the owner.
            if !self.has(Work::Sendable) {
                self.wakeup.sleep(Duration::from_millis(1));
            }
        }
    }

    /// Returns true if something queued was not handed to the operating system yet.
    pub fn has_unsent(&self) -> bool {
        !self.loopback.is_empty() || self.has(Work::Unsent)
    }

    fn has(&self, work: Work) -> bool {
        self.providers.iter().any(|provider| provider.has(work))
    }

    /// A handle by which other threads wake the one that drives this endpoint.
    pub fn waker(&self) -> Waker {
        self.wakeup.waker.clone()
    }

    /// Splits off the loopback and the providers, with the rest of the endpoint that they work on.
    pub(super) fn around(
        &mut self,
        now: Instant,
        provider: usize,
        takes_messages: bool,
    ) -> (&mut Loopback, &mut [Box<dyn Provider>], Around<'_>) {
        let events_max = (self.inbox.len() + Self::EVENTS_PER_PROGRESS).min(self.limits.events_max);
        let around = Around {
            now,
            events_max,
            bytes_max: self.limits.events_bytes_max,
            takes_messages,
            provider,
            regions: &mut self.regions,
            peers: &mut self.peers,
            inbox: &mut self.inbox,
        };
        (&mut self.loopback, &mut self.providers, around)
    }

    /// Looks what is ready, if it is time to ask the system about all peers. Returns whether it is.
    fn looks(&mut self, now: Instant) -> bool {
        let looks = !self.wakeup.has_looked(now) || !self.has(Work::Hot);
        if looks {
            self.wakeup.look(now);
        }
        looks
    }

    fn handle_news(&mut self, now: Instant) {
        for peer in std::mem::take(&mut self.inbox.pings) {
            // Without room for it much else is on its way, which is a sign of life too.
            let _ = self.send_body(peer, MessageKind::Pong, 0, &Body::new());
            self.heartbeat_counts.answered += 1;
        }
        for peer in std::mem::take(&mut self.inbox.dead) {
            for index in 0..self.providers.len() {
                let (_, providers, mut around) = self.around(now, index, true);
                providers[index].disconnect(peer, PeerDeath::Closed, &mut around);
            }
        }
    }

    fn handle_heartbeat(&mut self, now: Instant) {
        let Some(heartbeat) = &mut self.heartbeat else {
            return;
        };
        let missed = heartbeat.look(now);
        let mut verdicts = Vec::new();
        let mut waited_for = false;
        for (peer, known) in self.peers.iter_mut() {
            if !known.is_awaited() {
                known.pulse = None;
                continue;
            }
            waited_for = true;
            if let Some(provider) = known.provider
                && known.proven.is_some()
            {
                let activity = self.providers[provider].activity(peer);
                let verdict = heartbeat.judge(now, &mut known.pulse, activity, missed);
                verdicts.push((peer, provider, verdict));
            }
        }
        if !waited_for {
            heartbeat.end();
        }
        for (peer, provider, verdict) in verdicts {
            match verdict {
                Verdict::Alive => {}
                Verdict::Ask => {
                    // Without room for it there is enough on its way to be answered or not.
                    let _ = self.send_body(peer, MessageKind::Ping, 0, &Body::new());
                    self.heartbeat_counts.asked += 1;
                    if let Some(known) = self.peers.get_mut(peer)
                        && let Some(pulse) = &mut known.pulse
                    {
                        let queued = self.providers[provider].activity(peer).queued;
                        pulse.asked.get_or_insert(queued);
                    }
                }
                Verdict::Dead => {
                    let (_, providers, mut around) = self.around(now, provider, true);
                    providers[provider].disconnect(peer, PeerDeath::Silent, &mut around);
                    self.heartbeat_counts.silent += 1;
                }
            }
        }
    }

    fn handle_deadlines(&mut self, now: Instant) {
        for operation in self.inbox.operations.overdue(now) {
            self.end_overdue(operation);
        }
    }

    pub(super) fn end_overdue(&mut self, operation: OperationId) {
        let overdue = self.inbox.complete(operation, &mut self.peers, |peer| {
            Err(OperationError::TimedOut { peer: peer.clone() })
        });
        if let Some(overdue) = overdue {
            self.stop_transfer(operation, &overdue);
        }
    }

    pub(super) fn stop_transfer(&mut self, operation: OperationId, stopped: &Operation) {
        let known = self.peers.get(stopped.peer);
        if stopped.awaited == Awaited::Transfer
            && let Some(provider) = known.and_then(|known| known.provider)
        {
            self.providers[provider].cancel(operation, stopped.peer);
        }
    }
}
