//! One thread at a time drives the machines of a rank: the progress thread, or a caller that would only wait for it to
//! be woken, to work and to wake it again.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ropewalk_fabric::AgentLink;
use rustix::event::{PollFd, PollFlags, poll};

use super::progress::ProgressThread;

/// Who drives. Machines that nobody drives stand here.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    machines: Option<Box<ProgressThread>>,
    /// When the progress thread looks again by itself, while it sleeps on descriptors.
    sleeps_until: Option<Instant>,
    /// The progress thread sleeps until a caller has put the machines back.
    is_awaited: bool,
    /// The progress thread is to drive, however short ago a caller did.
    is_called: bool,
    /// How often callers have taken the machines, and when they were put back last.
    drives: u64,
    driven: Option<Instant>,
    /// How many callers wait for the machines.
    waiting: u32,
    /// How often callers were told that calls have ended.
    news: u64,
    has_ended: bool,
}

/// The end of a round of the machines.
pub(super) enum Turn {
    /// There is more to do.
    Again,
    /// There is nothing to do before this.
    Idle(Idle),
    /// The job is left.
    Over,
}

/// A time in which the machines have nothing to do, unless a descriptor becomes readable.
#[derive(Clone, Copy)]
pub(super) struct Idle {
    pub(super) until: Instant,
    /// The agent may say something.
    pub(super) has_agent: bool,
}

impl Idle {
    /// Sleeps as long as there is nothing to do.
    fn sleep(self, engine: BorrowedFd<'_>, link: Option<&AgentLink>) {
        let mut descriptors = vec![PollFd::from_borrowed_fd(engine, PollFlags::IN)];
        if let Some(link) = link.filter(|_| self.has_agent) {
            descriptors.push(PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN));
        }
        let timeout = self.until.saturating_duration_since(Instant::now());
        // An interruption only means to look at the world again.
        let _ = poll(&mut descriptors, timeout.try_into().ok().as_ref());
    }
}

impl Turns {
    /// After a caller has driven, the progress thread waits so long: the next call may follow soon.
    const LEASE: Duration = Duration::from_millis(1);
    /// So many rounds a caller drives beyond its call, so that nothing is left to do at once.
    const LAST_ROUNDS: u32 = 4;

    /// Drives as the progress thread until the job is left. `descriptor` is that of the machines' engine.
    pub(super) fn run(&self, machines: ProgressThread, descriptor: &OwnedFd) {
        let _end = End(self);
        let link = machines.shared.link.clone();
        let mut machines = Box::new(machines);
        loop {
            match machines.turn() {
                Turn::Again => {}
                Turn::Idle(idle) => {
                    if !self.hand_over(machines, idle.until) {
                        idle.sleep(descriptor.as_fd(), link.as_deref());
                    }
                    match self.take_back() {
                        Some(again) => machines = again,
                        None => return,
                    }
                }
                Turn::Over => return machines.say_farewell(),
            }
        }
    }

    /// Does in this thread what there is to do, if nobody drives. Returns false if somebody does.
    pub(super) fn take_turn(&self) -> bool {
        self.drive(Instant::now(), || true)
    }

    /// Drives in this thread until `is_over`, or until the time has come. If somebody else drives it waits for that.
    /// Returns false if nobody drives any more.
    pub(super) fn drive_until(&self, until: Instant, is_over: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        while state.machines.is_none() {
            if state.has_ended {
                return false;
            }
            let news = state.news;
            drop(state);
            let now = Instant::now();
            if is_over() || now >= until {
                return true;
            }
            state = self.lock();
            if state.news == news && state.machines.is_none() && !state.has_ended {
                state.waiting += 1;
                state = self.wait(state, Some(until - now));
                state.waiting -= 1;
            }
        }
        drop(state);
        // If somebody was faster this comes again.
        self.drive(until, is_over);
        !self.lock().has_ended
    }

    /// Callers that wait for the machines look if their calls have ended.
    pub(super) fn tell(&self) {
        let mut state = self.lock();
        if state.waiting > 0 {
            state.news += 1;
            self.changed.notify_all();
        }
    }

    /// Drives in this thread until `is_over`, or until the time has come. Returns false if somebody else drives, or
    /// the job is left.
    fn drive(&self, until: Instant, is_over: impl Fn() -> bool) -> bool {
        let Some(mut machines) = self.take() else {
            return false;
        };
        let mut rounds_left = Self::LAST_ROUNDS;
        loop {
            // A panic costs the machines, as it does in the progress thread: callers are told that nothing will come.
            let Ok(turn) = catch_unwind(AssertUnwindSafe(|| machines.turn())) else {
                let _end = End(self);
                drop(machines);
                return false;
            };
            let is_over = is_over() || Instant::now() >= until;
            match turn {
                Turn::Idle(idle) if is_over => {
                    self.give_back(machines, Some(idle.until));
                    return true;
                }
                Turn::Idle(idle) => {
                    let idle = Idle {
                        until: idle.until.min(until),
                        ..idle
                    };
                    idle.sleep(machines.engine.as_fd(), machines.shared.link.as_deref());
                }
                Turn::Again if is_over && rounds_left > 0 => rounds_left -= 1,
                Turn::Again if is_over => {
                    self.give_back(machines, None);
                    return true;
                }
                Turn::Again => {}
                Turn::Over => {
                    self.give_back(machines, None);
                    return false;
                }
            }
        }
    }

    /// Has the progress thread look at the world, if it sleeps and nobody drives. It looks by itself if it sleeps on
    /// descriptors.
    pub(super) fn call_thread(&self) {
        let mut state = self.lock();
        if state.machines.is_some() && state.sleeps_until.is_none() {
            state.is_called = true;
            self.changed.notify_all();
        }
    }

    fn take(&self) -> Option<Box<ProgressThread>> {
        let mut state = self.lock();
        let machines = state.machines.take()?;
        state.drives += 1;
        Some(machines)
    }

    /// Puts back what a caller has driven. With `until` there is nothing to do before.
    fn give_back(&self, machines: Box<ProgressThread>, until: Option<Instant>) {
        let shared = machines.shared.clone();
        shared.rest();
        let mut state = self.lock();
        state.machines = Some(machines);
        state.driven = Some(Instant::now());
        state.is_called |= until.is_none();
        let sleeps_too_long = state.sleeps_until.is_some_and(|end| until.is_none_or(|until| until < end));
        let is_to_be_woken = state.is_called || state.is_awaited;
        drop(state);
        if sleeps_too_long {
            shared.wake_sleeper();
        } else if is_to_be_woken {
            self.changed.notify_all();
        }
    }

    /// The progress thread lets others drive while there is nothing to do. Returns true if somebody will.
    fn hand_over(&self, machines: Box<ProgressThread>, until: Instant) -> bool {
        machines.shared.rest();
        let mut state = self.lock();
        state.machines = Some(machines);
        if state.waiting > 0 {
            state.driven = Some(Instant::now());
            self.changed.notify_all();
            return true;
        }
        state.sleeps_until = Some(until);
        false
    }

    /// Waits until the progress thread is to drive again; `None` if there is nothing to drive any more.
    fn take_back(&self) -> Option<Box<ProgressThread>> {
        let mut state = self.lock();
        state.sleeps_until = None;
        loop {
            if state.has_ended {
                return None;
            }
            let since = state.driven.map(|driven| driven.elapsed());
            let rest = since.map_or(Duration::ZERO, |since| Self::LEASE.saturating_sub(since));
            let is_due = rest.is_zero() || state.is_called;
            if let Some(machines) = state.machines.take_if(|_| is_due) {
                state.is_called = false;
                state.driven = None;
                return Some(machines);
            }
            let drives = state.drives;
            let is_driven = state.machines.is_none();
            let pause = if is_driven { Self::LEASE } else { rest };
            state = self.wait(state, Some(pause));
            // This call takes longer than others follow each other.
            if is_driven && state.machines.is_none() && state.drives == drives && !state.has_ended {
                state.is_awaited = true;
                state = self.wait(state, None);
                state.is_awaited = false;
            }
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, pause: Option<Duration>) -> MutexGuard<'a, State> {
        match pause {
            Some(pause) => {
                let woken = self.changed.wait_timeout(state, pause);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped after the machines, it tells callers that nobody drives any more.
struct End<'a>(&'a Turns);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}
