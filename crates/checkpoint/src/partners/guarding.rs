//! Doing what a guard wants, of which nothing keeps the rest waiting.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    mem,
    path::Path,
    pin::Pin,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
    task::{Context, Poll, Waker},
    thread::{self, Thread},
    time::Instant,
};

use ropewalk_checkpoint_core::{
    Held,
    partner::{Action, Guard, Part},
};
use ropewalk_rpc::HandleCall;

use crate::copied::Copied;

use super::{
    blocking,
    copier::{ASK_TIMEOUT, Copier, with_causes},
    partner_error::PartnerError,
    procedures::Stock,
    service::lock,
};

/// Asks, copies and removes as a guard wants it, until the process ends. Copies are made by a thread of their own, and
/// answers are taken when they come. `say` is told what a user should know; `newest` of each newer generation that all
/// ranks have.
pub(super) fn run(
    guard: Guard,
    copier: &Copier<'_>,
    directory: &Path,
    say: &mut dyn FnMut(String),
    newest: &mut dyn FnMut(Held),
) -> Result<Infallible, PartnerError> {
    // Holds one order at most: a guard wants no other copy before it knows the end of the last one.
    let (orders, wanted) = channel();
    // Holds three at most: the end of one copy with that of its journal, and before them that of the journal before,
    // since the next order is given only after a look at the ends of all copies.
    let (sender, ended) = channel();
    let told = thread::current();
    thread::scope(|scope| {
        thread::Builder::new()
            .name("ropewalk-copy".to_owned())
            .spawn_scoped(scope, move || copy(copier, directory, &wanted, &sender, &told))
            .map_err(PartnerError::Thread)?;
        let guarding = Guarding {
            guard,
            copier,
            say,
            origin: Instant::now(),
            orders,
            questions: Questions {
                asked: Vec::new(),
                answers: Vec::new(),
                waker: blocking::waker(),
            },
            failing: BTreeSet::new(),
            is_unlisted: false,
        };
        guarding.run(&ended, &Copied::of(directory), newest)
    })
}

/// An order to the thread that copies: the host to copy from, and the part.
type Order = (usize, Part);

/// A report of that thread.
enum Ended {
    Copy(Order, Result<(), PartnerError>),
    /// The journal of the job could not be copied.
    Journal(PartnerError),
}

/// Copies one part after the other, as long as somebody wants it.
fn copy(
    copier: &Copier<'_>,
    directory: &Path,
    orders: &Receiver<Order>,
    ended: &Sender<Ended>,
    told: &Thread,
) {
    let tell = |what: Ended| {
        // Who is not there any more needs no copies either.
        let _ = ended.send(what);
        told.unpark();
    };
    while let Ok((from, part)) = orders.recv() {
        let copied = copier.copy(from, &part);
        let is_copied = copied.is_ok();
        tell(Ended::Copy((from, part), copied));
        // Rank 0 writes the journal, and with its part goes what is known by then.
        if is_copied
            && part.rank == 0
            && let Err(error) = copier.copy_journal(from, directory)
        {
            tell(Ended::Journal(error));
        }
    }
}

/// A host that was asked and has not answered.
struct Question {
    host: usize,
    since: Instant,
    call: Pin<Box<HandleCall<Stock>>>,
}

/// All of these, which the guard keeps few, and what has come of others.
struct Questions {
    asked: Vec<Question>,
    answers: Vec<(usize, Option<Stock>)>,
    waker: Waker,
}

impl Questions {
    fn ask(&mut self, host: usize, call: HandleCall<Stock>) {
        self.asked.push(Question {
            host,
            since: Instant::now(),
            call: Box::pin(call),
        });
        // Only what was polled wakes this thread up.
        self.poll();
        if !self.answers.is_empty() {
            self.waker.wake_by_ref();
        }
    }

    /// The answers to questions: `None` from a host that has answered with an error, or not in time.
    fn take_answers(&mut self) -> Vec<(usize, Option<Stock>)> {
        self.poll();
        mem::take(&mut self.answers)
    }

    fn poll(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        let answers = &mut self.answers;
        self.asked.retain_mut(|question| {
            let answer = match question.call.as_mut().poll(&mut context) {
                Poll::Ready(answer) => answer.ok(),
                Poll::Pending if question.since.elapsed() < ASK_TIMEOUT => return true,
                Poll::Pending => None,
            };
            answers.push((question.host, answer));
            false
        });
    }
}

struct Guarding<'a> {
    guard: Guard,
    copier: &'a Copier<'a>,
    say: &'a mut dyn FnMut(String),
    origin: Instant,
    orders: Sender<Order>,
    questions: Questions,
    /// Parts whose copy has failed.
    failing: BTreeSet<Part>,
    /// True if the own directory could not be read the last time.
    is_unlisted: bool,
}

impl Guarding<'_> {
    fn run(mut self, ended: &Receiver<Ended>, copied: &Copied, newest: &mut dyn FnMut(Held)) -> ! {
        let mut told = 0;
        let mut protected = None;
        loop {
            for (host, stock) in self.questions.take_answers() {
                let now = self.origin.elapsed();
                match stock {
                    Some(stock) => {
                        let parts = stock.inventory.parts.into_iter().collect();
                        self.guard.handle_parts(now, host, parts);
                    }
                    None => self.guard.handle_silence(now, host),
                }
            }
            loop {
                match ended.try_recv() {
                    Ok(what) => self.note_ended(what),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => panic!("the thread that copies has panicked"),
                }
            }
            self.look();
            while let Some(action) = self.guard.poll(self.origin.elapsed()) {
                self.begin(action);
            }
            if let Some(held) = self.guard.newest()
                && held.generation > told
            {
                told = held.generation;
                newest(held);
            }
            // The program waits for that to say it to the next save.
            let newest_protected = self.guard.protected();
            if newest_protected > protected {
                protected = newest_protected;
                if let Err(error) = copied.write(newest_protected.unwrap_or(0)) {
                    (self.say)(format!("cannot tell the ranks what is copied: {error}"));
                }
            }
            let now = self.origin.elapsed();
            // An answer, and the end of a copy, end it too.
            thread::park_timeout(self.guard.next_deadline(now).saturating_sub(now));
        }
    }

    /// Sees what is in the own directory. If it cannot be read it is taken for what it was.
    fn look(&mut self) {
        let parts = lock(self.copier.depot).parts();
        let was_unlisted = self.is_unlisted;
        self.is_unlisted = parts.is_err();
        match parts {
            Ok(parts) => self.guard.handle_own(parts),
            // Of what lasts is told once.
            Err(error) if !was_unlisted => (self.say)(with_causes(&error)),
            Err(_) => {}
        }
    }

    fn begin(&mut self, action: Action) {
        let name = |host: usize| &self.copier.names[host];
        let text = match action {
            Action::Ask { host } => {
                self.questions.ask(host, self.copier.ask(host));
                return;
            }
            Action::Copy { from, part } => {
                // If nobody takes it, that is noticed by the end that does not come.
                let _ = self.orders.send((from, part));
                return;
            }
            Action::Retire { generations } => match lock(self.copier.depot).retire(&generations) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            Action::Lost {
                host,
                guarded: Some(other),
            } => format!(
                "host {} does not answer: what host {} saves is copied here now",
                name(host),
                name(other)
            ),
            Action::Lost { host, guarded: None } => {
                format!("host {} does not answer: checkpoints have no copy", name(host))
            }
            Action::Behind { host } => format!(
                "host {} has not copied for long what the others have: they go on without it, and what is saved now \
                 may not outlive the loss of a host",
                name(host)
            ),
            Action::Found { host } => format!("host {} answers again", name(host)),
        };
        (self.say)(text);
    }

    fn note_ended(&mut self, what: Ended) {
        match what {
            Ended::Copy((_, part), Ok(())) => {
                self.failing.remove(&part);
                self.guard.handle_copied(part);
            }
            Ended::Copy((from, part), Err(error)) => {
                self.guard.handle_not_copied(self.origin.elapsed(), part);
                // What was removed meanwhile is no trouble; what fails again is.
                if !self.failing.insert(part) && self.failing.len() < FAILING_MAX {
                    let name = &self.copier.names[from];
                    (self.say)(format!("no copy from host {name}: {}", with_causes(&error)));
                }
            }
            Ended::Journal(error) => (self.say)(with_causes(&error)),
        }
    }
}

/// Of so many copies that fail again and again is told.
const FAILING_MAX: usize = 20;

#[cfg(test)]
mod tests;
