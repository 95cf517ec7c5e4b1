//! One thread at a time drives the machines of a rank: the progress thread, or a caller that would only wait for it to
//! be woken, to work and to wake it again.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use ropewalk_fabric::AgentLink;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Machines that one thread at a time drives.
pub(super) trait Machines {
    /// Does what there is to do, a bounded part of it if that is much.
    fn turn(&mut self) -> Turn;

    /// Sleeps as long as there is nothing to do.
    fn sleep(&self, idle: Idle);

    /// The thread that drove does not any more.
    fn rest(&self);

    /// Says if calls are under way, which go on only if somebody drives.
    fn are_at_work(&self) -> bool;

    /// Ends them: the job is left.
    fn say_farewell(self);
}

/// Who drives. Machines that nobody drives stand here.
pub(super) struct Turns<M> {
    state: Mutex<State<M>>,
    changed: Condvar,
    /// Ends the sleep of the progress thread on descriptors. The machines' own waker does not, unless they have said
    /// that they sleep.
    sleeper: OwnedFd,
}

struct State<M> {
    machines: Option<Box<M>>,
    /// When the progress thread looks again by itself, while it sleeps on descriptors.
    sleeps_until: Option<Instant>,
    /// The progress thread sleeps until a caller has put the machines back.
    thread_waits: bool,
    /// The progress thread is to drive, even if a caller has just driven.
    thread_is_called: bool,
    /// The thread that drives.
    driver: Option<ThreadId>,
    /// How often callers have taken the machines.
    drives: u64,
    /// When a caller put them back last.
    given_back: Option<Instant>,
    callers_waiting: u32,
    /// How often callers were told that calls have ended.
    ends_told: u64,
    /// The job is left: the progress thread is to end the machines.
    is_over: bool,
    /// Nobody drives any more.
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

impl<M: Machines> Turns<M> {
    /// After a caller has driven, the progress thread waits so long, since the next call may follow soon; as long as
    /// calls do it waits longer.
    const LEASE: Duration = Duration::from_millis(1);
    const LEASE_MAX: Duration = Duration::from_millis(4);
    /// So many rounds a caller drives beyond its call, so that nothing is left to do at once.
    const LAST_ROUNDS: u32 = 4;

    /// # Errors
    /// If the system is out of descriptors.
    pub(super) fn new() -> io::Result<Self> {
        let state = State {
            machines: None,
            sleeps_until: None,
            thread_waits: false,
            thread_is_called: false,
            drives: 0,
            given_back: None,
            driver: None,
            callers_waiting: 0,
            ends_told: 0,
            is_over: false,
            has_ended: false,
        };
        Ok(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            sleeper: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Drives as the progress thread until the job is left. `sleep` sleeps on this descriptor and on those of the
    /// machines, which another thread may drive meanwhile.
    pub(super) fn run(&self, machines: M, sleep: impl Fn(Idle, BorrowedFd<'_>)) {
        let _end = End(self);
        self.lock().driver = Some(thread::current().id());
        let mut machines = Box::new(machines);
        loop {
            match machines.turn() {
                Turn::Again => {}
                Turn::Idle(idle) => {
                    if !self.hand_over(machines, idle.until) {
                        sleep(idle, self.sleeper.as_fd());
                        // It is readable, or not.
                        let _ = rustix::io::read(&self.sleeper, &mut [0; 8]);
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

    /// Drives one round in this thread, if nobody drives. Returns false if somebody does.
    pub(super) fn take_turn(&self) -> bool {
        self.drive(Instant::now(), || true, 0).is_some()
    }

    /// Drives in this thread until `is_over`, or until the time has come. If somebody else drives it waits for that.
    /// Returns false if nobody drives any more.
    pub(super) fn drive_until(&self, until: Instant, is_over: impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        while state.machines.is_none() || state.is_over {
            if state.has_ended {
                return false;
            }
            let told = state.ends_told;
            drop(state);
            let now = Instant::now();
            if is_over() || now >= until {
                return true;
            }
            state = self.lock();
            let is_free = state.machines.is_some() && !state.is_over;
            if state.ends_told == told && !is_free && !state.has_ended {
                state.callers_waiting += 1;
                state = self.wait(state, Some(until - now));
                state.callers_waiting -= 1;
            }
        }
        drop(state);
        // If somebody was faster this comes again.
        if self.drive(until, is_over, Self::LAST_ROUNDS) == Some(true) {
            // Others have to go on, whatever this thread does now.
            self.call_thread();
        }
        !self.lock().has_ended
    }

    /// Callers that wait for the machines look if their calls have ended.
    pub(super) fn tell(&self) {
        let mut state = self.lock();
        // One may be about to wait.
        state.ends_told += 1;
        if state.callers_waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Drives in this thread until `is_over`, or until the time has come, and then for some rounds more if there is
    /// more to do. Says if calls are still under way; `None` if somebody else drives, or nobody any more.
    fn drive(&self, until: Instant, is_over: impl Fn() -> bool, mut last_rounds: u32) -> Option<bool> {
        let mut machines = self.take()?;
        loop {
            // A panic costs the machines, as it does in the progress thread: callers are told that nothing will come.
            let Ok(turn) = catch_unwind(AssertUnwindSafe(|| machines.turn())) else {
                let _end = End(self);
                drop(machines);
                return None;
            };
            let is_over = is_over() || Instant::now() >= until;
            match turn {
                Turn::Idle(idle) if is_over => {
                    let are_at_work = machines.are_at_work();
                    self.give_back(machines, Some(idle.until));
                    return Some(are_at_work);
                }
                Turn::Idle(idle) => machines.sleep(Idle {
                    until: idle.until.min(until),
                    ..idle
                }),
                Turn::Again if is_over && last_rounds > 0 => last_rounds -= 1,
                Turn::Again if is_over => {
                    self.give_back(machines, None);
                    return Some(false);
                }
                Turn::Again => {}
                Turn::Over => {
                    self.lock().is_over = true;
                    self.give_back(machines, None);
                    return None;
                }
            }
        }
    }

    /// Has the progress thread drive as soon as it can, unless this thread drives and will look by itself. While it
    /// sleeps on descriptors the waker of the machines ends that.
    pub(super) fn call_thread(&self) {
        let mut state = self.lock();
        if state.driver != Some(thread::current().id()) {
            state.thread_is_called = true;
            if state.sleeps_until.is_none() {
                self.changed.notify_all();
            }
        }
    }

    /// Says if another thread drives.
    pub(super) fn are_driven_elsewhere(&self) -> bool {
        let driver = self.lock().driver;
        driver.is_some_and(|driver| driver != thread::current().id())
    }

    fn take(&self) -> Option<Box<M>> {
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        let machines = state.machines.take()?;
        state.driver = Some(thread::current().id());
        state.drives += 1;
        Some(machines)
    }

    /// Puts back what a caller has driven. With `until` there is nothing to do before.
    fn give_back(&self, machines: Box<M>, until: Option<Instant>) {
        machines.rest();
        let mut state = self.lock();
        state.machines = Some(machines);
        state.driver = None;
        state.given_back = Some(Instant::now());
        state.thread_is_called |= until.is_none();
        let sleeps_until = state.sleeps_until;
        let has_waiters = state.thread_is_called || state.thread_waits || state.callers_waiting > 0;
        drop(state);
        if sleeps_until.is_some_and(|end| until.is_none_or(|until| until < end)) {
            self.wake_sleeper();
        }
        if has_waiters {
            self.changed.notify_all();
        }
    }

    /// The progress thread lets others drive while there is nothing to do. Returns true if somebody waits for that.
    fn hand_over(&self, machines: Box<M>, until: Instant) -> bool {
        machines.rest();
        let mut state = self.lock();
        state.machines = Some(machines);
        state.driver = None;
        // It has just looked, and a wish since then has made a descriptor readable.
        state.thread_is_called = false;
        if state.callers_waiting > 0 {
            state.given_back = Some(Instant::now());
            self.changed.notify_all();
            return true;
        }
        state.sleeps_until = Some(until);
        false
    }

    /// Waits until the progress thread is to drive again; `None` if there is nothing to drive any more.
    fn take_back(&self) -> Option<Box<M>> {
        let mut state = self.lock();
        state.sleeps_until = None;
        let mut lease = Self::LEASE;
        loop {
            if state.has_ended {
                return None;
            }
            let since = state.given_back.map(|back| back.elapsed());
            let rest = since.map_or(Duration::ZERO, |since| lease.saturating_sub(since));
            let is_due = rest.is_zero() || state.thread_is_called || state.is_over;
            if let Some(machines) = state.machines.take_if(|_| is_due) {
                state.thread_is_called = false;
                state.given_back = None;
                state.driver = Some(thread::current().id());
                return Some(machines);
            }
            let drives = state.drives;
            let is_driven = state.machines.is_none();
            let pause = if is_driven { lease } else { rest };
            state = self.wait(state, Some(pause));
            // This call takes longer than others follow each other.
            if is_driven && state.machines.is_none() && state.drives == drives && !state.has_ended {
                state.thread_waits = true;
                state = self.wait(state, None);
                state.thread_waits = false;
            }
            if state.drives != drives {
                lease = (lease * 2).min(Self::LEASE_MAX);
            }
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<M>>, pause: Option<Duration>) -> MutexGuard<'a, State<M>> {
        match pause {
            Some(pause) => {
                let woken = self.changed.wait_timeout(state, pause);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl<M> Turns<M> {
    fn wake_sleeper(&self) {
        // Only a full counter can refuse, and then it is readable.
        let _ = rustix::io::write(&self.sleeper, &1_u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped after the machines, it tells callers that nobody drives any more.
struct End<'a, M>(&'a Turns<M>);

impl<M> Drop for End<'_, M> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.wake_sleeper();
        self.0.changed.notify_all();
    }
}

impl<M> std::fmt::Debug for Turns<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turns").finish_non_exhaustive()
    }
}

/// Sleeps until a descriptor or the agent has something, or the time has come.
pub(super) fn sleep(idle: Idle, descriptors: &[BorrowedFd<'_>], link: Option<&AgentLink>) {
    let descriptors = descriptors.iter();
    let mut descriptors: Vec<_> = descriptors
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
        .collect();
    if let Some(link) = link.filter(|_| idle.has_agent) {
        descriptors.push(PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN));
    }
    let timeout = idle.until.saturating_duration_since(Instant::now());
    // An interruption only means to look at the world again.
    let _ = poll(&mut descriptors, timeout.try_into().ok().as_ref());
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU64, Ordering},
        },
        thread,
    };

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    /// Tasks that end at their times, if somebody drives then.
    #[derive(Default)]
    struct World {
        tasks: Mutex<VecDeque<(Instant, Arc<AtomicBool>)>>,
        woken: Mutex<bool>,
        changed: Condvar,
        is_driven: AtomicBool,
        is_over: AtomicBool,
        panics: AtomicBool,
        turns: AtomicU64,
    }

    struct Tasks(Arc<World>);

    impl Machines for Tasks {
        fn turn(&mut self) -> Turn {
            *self.0.woken.lock().unwrap() = false;
            assert!(
                !self.0.is_driven.swap(true, Ordering::AcqRel),
                "two threads drive"
            );
            let turn = self.0.turns.fetch_add(1, Ordering::Relaxed);
            assert!(!self.0.panics.load(Ordering::Acquire), "as the test wants it");
            let mut tasks = self.0.tasks.lock().unwrap();
            let now = Instant::now();
            tasks
                .extract_if_due(now)
                .iter()
                .for_each(|task| task.store(true, Ordering::Release));
            let next = tasks.iter().map(|(due, _)| *due).min();
            self.0.is_driven.store(false, Ordering::Release);
            match self.0.is_over.load(Ordering::Acquire) {
                true => Turn::Over,
                false if turn.is_multiple_of(7) => Turn::Again,
                false => Turn::Idle(Idle {
                    until: next.unwrap_or(now + Duration::from_secs(100)),
                    has_agent: false,
                }),
            }
        }

        fn sleep(&self, idle: Idle) {
            self.0.sleep(idle);
        }

        fn rest(&self) {}

        fn are_at_work(&self) -> bool {
            !self.0.tasks.lock().unwrap().is_empty()
        }

        fn say_farewell(self) {}
    }

    trait Due {
        fn extract_if_due(&mut self, now: Instant) -> Vec<Arc<AtomicBool>>;
    }

    impl Due for VecDeque<(Instant, Arc<AtomicBool>)> {
        fn extract_if_due(&mut self, now: Instant) -> Vec<Arc<AtomicBool>> {
            let (due, later) = self.drain(..).partition::<Vec<_>, _>(|(due, _)| *due <= now);
            self.extend(later);
            due.into_iter().map(|(_, task)| task).collect()
        }
    }

    impl World {
        fn sleep(&self, idle: Idle) {
            let woken = self.woken.lock().unwrap();
            let pause = idle.until.saturating_duration_since(Instant::now());
            drop(
                self.changed
                    .wait_timeout_while(woken, pause, |woken| !*woken)
                    .unwrap(),
            );
        }

        /// The same of the progress thread, which something else may end.
        fn sleep_beside(&self, idle: Idle, sleeper: BorrowedFd<'_>) {
            let is_woken = || {
                let mut descriptors = [PollFd::from_borrowed_fd(sleeper, PollFlags::IN)];
                let pause = Duration::from_micros(100).try_into().unwrap();
                poll(&mut descriptors, Some(&pause)).unwrap_or(0) > 0 || *self.woken.lock().unwrap()
            };
            while Instant::now() < idle.until && !is_woken() {}
        }

        fn wake(&self) {
            *self.woken.lock().unwrap() = true;
            self.changed.notify_all();
        }

        fn begin(&self, turns: &Turns<Tasks>, pause: Duration) -> Arc<AtomicBool> {
            let task = Arc::new(AtomicBool::new(false));
            let due = Instant::now() + pause;
            self.tasks.lock().unwrap().push_back((due, Arc::clone(&task)));
            if !turns.take_turn() {
                self.wake();
                turns.call_thread();
            }
            task
        }
    }

    /// A progress thread, and threads that make `calls` calls each, of every fourth of which they only look for the
    /// end. Returns the longest delay of such an end.
    fn drive(threads: u64, calls: u64) -> Duration {
        let world = Arc::<World>::default();
        let turns = Turns::new().unwrap();
        let late = thread::scope(|scope| {
            let machines = Tasks(Arc::clone(&world));
            scope.spawn(|| turns.run(machines, |idle, sleeper| world.sleep_beside(idle, sleeper)));
            let caller = |seed: u64| {
                let (world, turns) = (&world, &turns);
                move || {
                    let mut latest = Duration::ZERO;
                    for call in 0..calls {
                        let pause = Duration::from_micros((seed * 7919 + call * 104_729) % 400);
                        let begun = Instant::now();
                        let task = world.begin(turns, pause);
                        let is_done = || task.load(Ordering::Acquire);
                        if call % 4 == 3 {
                            while !is_done() {
                                thread::sleep(Duration::from_micros(50));
                            }
                            latest = latest.max(begun.elapsed().saturating_sub(pause));
                            continue;
                        }
                        let until = begun + Duration::from_secs(60);
                        while !is_done() {
                            assert!(turns.drive_until(until, is_done), "nobody drives");
                            assert!(Instant::now() < until, "it hangs");
                        }
                        if seed.is_multiple_of(2) && call.is_multiple_of(16) {
                            thread::sleep(Duration::from_millis(2));
                        }
                    }
                    latest
                }
            };
            let callers: Vec<_> = (0..threads).map(|seed| scope.spawn(caller(seed))).collect();
            let late = callers.into_iter().map(|caller| caller.join().unwrap()).max();
            world.is_over.store(true, Ordering::Release);
            world.wake();
            turns.call_thread();
            late
        });
        late.unwrap_or_default()
    }

    /// One thread at a time drives, whoever waits gets its end, and the progress thread drives when nobody waits.
    #[test]
    fn each_call_ends_whoever_drives() {
        for threads in [1, 2, 5] {
            let late = drive(threads, 300);
            assert!(late < Duration::from_secs(5), "nobody drove for {late:?}");
        }
    }

    /// Nobody drives after a panic, and those who wait are told so.
    #[test]
    fn a_panic_ends_the_machines() {
        let world = Arc::<World>::default();
        let turns = Turns::new().unwrap();
        thread::scope(|scope| {
            let machines = Tasks(Arc::clone(&world));
            let thread =
                scope.spawn(|| turns.run(machines, |idle, sleeper| world.sleep_beside(idle, sleeper)));
            while world.turns.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            world.panics.store(true, Ordering::Release);
            let until = Instant::now() + Duration::from_secs(60);
            while turns.drive_until(until, || false) {
                assert!(Instant::now() < until, "it hangs");
            }
            world.wake();
            turns.call_thread();
            // If the progress thread drove it has panicked itself.
            let _ = thread.join();
        });
    }
}
