//! Calls that do not wait for one slow target.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use ropewalk_fabric::Address;

use crate::{
    CallError, Handle, HandleCall, LatencyHistogram, Procedure, Sleep,
    hedging::{Hedging, HedgingAction},
    lock::lock,
};

/// When a hedged call calls the next target although the last one may still answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hedge {
    /// After this time without an answer.
    After(Duration),
    /// After the time within which 19 of 20 hedged calls of this procedure were answered by their first target
    /// so far, so that few are made twice.
    Automatic {
        /// The time to use until [`Hedge::KNOWN_MIN`] calls have shown another.
        until_known: Duration,
    },
}

impl Hedge {
    /// How many calls show how long a procedure takes.
    pub const KNOWN_MIN: u64 = 20;
}

/// All targets of a hedged call failed.
#[derive(Clone, Debug)]
pub struct HedgedError {
    procedure: &'static str,
    failures: Vec<(Address, CallError)>,
}

impl HedgedError {
    /// How each target failed that was called, in the order in which they did.
    pub fn failures(&self) -> &[(Address, CallError)] {
        &self.failures
    }
}

impl fmt::Display for HedgedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { procedure, failures } = self;
        if failures.is_empty() {
            return write!(f, "{procedure} was called without a target: name at least one");
        }
        write!(f, "{procedure} failed at each target (")?;
        for (index, (target, _)) in failures.iter().enumerate() {
            write!(f, "{}{target}", if index == 0 { "" } else { ", " })?;
        }
        write!(f, "); the last failure")
    }
}

impl Error for HedgedError {
    /// The last failure.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failures.last().map(|(_, error)| error as _)
    }
}

impl Handle {
    /// Calls the first of these targets; if it does not answer soon, also the second, and so on. The first
    /// output wins, and the other calls are cancelled; a target that fails is replaced by the next at once.
    ///
    /// More than one target may handle the call: only for procedures that may be called twice.
    pub fn call_hedged<P>(
        &self,
        targets: &[Address],
        input: P::Input,
        hedge: Hedge,
        timeout: Duration,
    ) -> HedgedCall<P>
    where
        P: Procedure<Input: Send + Sync + 'static, Output: Send + 'static> + 'static,
    {
        let delay = match hedge {
            Hedge::After(delay) => delay,
            Hedge::Automatic { until_known } => {
                let usual = self.usual().quantile(P::NAME, 0.95);
                usual.unwrap_or(until_known)
            }
        };
        HedgedCall {
            handle: self.clone(),
            input: Arc::new(input),
            deadline: Instant::now().checked_add(timeout),
            hedging: Hedging::new(targets.len(), delay),
            targets: targets.to_vec(),
            calls: Vec::new(),
            failures: Vec::new(),
            first_called: None,
            sleep: None,
        }
    }
}

/// A hedged call in progress: a future of its output, which has to be polled for the next target to be called.
/// Dropping it cancels all its calls.
#[must_use = "a hedged call does nothing unless it is awaited"]
pub struct HedgedCall<P: Procedure> {
    handle: Handle,
    targets: Vec<Address>,
    input: Arc<P::Input>,
    deadline: Option<Instant>,
    hedging: Hedging,
    calls: Vec<(usize, HandleCall<P::Output>)>,
    failures: Vec<(Address, CallError)>,
    first_called: Option<Instant>,
    sleep: Option<Sleep>,
}

impl<P> HedgedCall<P>
where
    P: Procedure<Input: Send + Sync + 'static, Output: Send + 'static> + 'static,
{
    /// Looks at the calls in progress. Returns the first output.
    fn poll_calls(&mut self, context: &mut Context<'_>) -> Option<P::Output> {
        let mut output = None;
        let Self {
            calls,
            targets,
            failures,
            hedging,
            ..
        } = self;
        calls.retain_mut(|(target, call)| match Pin::new(call).poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(first)) => {
                output.get_or_insert(first);
                false
            }
            Poll::Ready(Err(error)) => {
                failures.push((targets[*target].clone(), error));
                hedging.handle_failure();
                false
            }
        });
        output
    }

    fn call(&mut self, target: usize, now: Instant) {
        let left = self
            .deadline
            .map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now));
        let input = self.input.clone();
        let call = self
            .handle
            .call_borrowed::<P, Arc<P::Input>>(&self.targets[target], input, left.into());
        self.first_called.get_or_insert(now);
        self.calls.push((target, call));
    }
}

impl<P> Future for HedgedCall<P>
where
    P: Procedure<Input: Send + Sync + 'static, Output: Send + 'static> + 'static,
{
    type Output = Result<P::Output, HedgedError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Some(output) = this.poll_calls(context) {
                this.calls.clear();
                if let Some(called) = this.first_called {
                    // If another was faster the first would have taken longer still: at least this much is known.
                    this.handle.usual().record(P::NAME, called.elapsed());
                }
                return Poll::Ready(Ok(output));
            }
            let now = Instant::now();
            let before = this.calls.len();
            while let Some(action) = this.hedging.poll_action(now) {
                match action {
                    HedgingAction::Call(target) => this.call(target, now),
                    HedgingAction::GiveUp => {
                        return Poll::Ready(Err(HedgedError {
                            procedure: P::NAME,
                            failures: std::mem::take(&mut this.failures),
                        }));
                    }
                }
            }
            let next = this.hedging.next_deadline();
            this.sleep = next.map(|next| this.handle.sleep_until(next));
            let due = match &mut this.sleep {
                Some(sleep) => Pin::new(sleep).poll(context).is_ready(),
                None => false,
            };
            // A sleep that ends too early is of an engine that is gone: the calls will say so.
            let due = due && next.is_some_and(|next| next <= Instant::now());
            if this.calls.len() == before && !due {
                return Poll::Pending;
            }
        }
    }
}

impl<P: Procedure> fmt::Debug for HedgedCall<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgedCall")
            .field("procedure", &P::NAME)
            .field("targets", &self.targets)
            .field("hedging", &self.hedging)
            .finish_non_exhaustive()
    }
}

/// How long procedures usually take, as hedged calls have seen it.
#[derive(Default)]
pub(crate) struct Usual(Mutex<BTreeMap<&'static str, LatencyHistogram>>);

impl Usual {
    /// When a procedure has been called this often, the older calls begin to count less.
    const COUNT_MAX: u64 = 1000;

    fn record(&self, procedure: &'static str, time: Duration) {
        let mut procedures = lock(&self.0);
        let times = procedures.entry(procedure).or_default();
        times.record(time);
        if times.count() > Self::COUNT_MAX {
            times.fade();
        }
    }

    /// `None` if too little is known.
    fn quantile(&self, procedure: &'static str, part: f64) -> Option<Duration> {
        let procedures = lock(&self.0);
        let times = procedures.get(procedure)?;
        let known = times.count() >= Hedge::KNOWN_MIN;
        known.then(|| times.quantile(part)).flatten()
    }
}
