//! A gate that lets a fixed number pass at once.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// Lets a fixed number pass at once, in the order in which they come.
#[derive(Clone)]
pub(crate) struct Gate {
    queue: Arc<Mutex<Queue>>,
}

struct Queue {
    inside_max: usize,
    inside: usize,
    next: u64,
    waiting: BTreeMap<u64, Option<Waker>>,
}

/// A place at the gate, or inside it until it is dropped.
pub(crate) struct Pass {
    gate: Gate,
    number: u64,
    is_inside: bool,
}

impl Gate {
    pub(crate) fn new(inside_max: usize) -> Self {
        Self {
            queue: Arc::new(Mutex::new(Queue {
                inside_max,
                inside: 0,
                next: 0,
                waiting: BTreeMap::new(),
            })),
        }
    }

    /// Waits until it is the caller's turn.
    pub(crate) async fn enter(&self) -> Pass {
        let mut pass = self.line_up();
        poll_fn(|context| pass.poll(context)).await;
        pass
    }

    fn line_up(&self) -> Pass {
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.insert(number, None);
        Pass {
            gate: self.clone(),
            number,
            is_inside: false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Wakes the next one if there is room for it.
    fn wake_next(&mut self) {
        if self.inside < self.inside_max
            && let Some(mut first) = self.waiting.first_entry()
            && let Some(waker) = first.get_mut().take()
        {
            waker.wake();
        }
    }
}

impl Pass {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.gate.lock();
        let is_first = queue.waiting.keys().next() == Some(&self.number);
        if !is_first || queue.inside >= queue.inside_max {
            queue.waiting.insert(self.number, Some(context.waker().clone()));
            return Poll::Pending;
        }
        queue.waiting.remove(&self.number);
        queue.inside += 1;
        queue.wake_next();
        drop(queue);
        self.is_inside = true;
        Poll::Ready(())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut queue = self.gate.lock();
        match self.is_inside {
            true => queue.inside -= 1,
            false => drop(queue.waiting.remove(&self.number)),
        }
        queue.wake_next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pass at once, the others in order, and one that gives up holds nobody up.
    #[test]
    fn passes_are_given_in_order() {
        let gate = Gate::new(2);
        let mut context = Context::from_waker(Waker::noop());
        let mut passes: Vec<_> = (0..5).map(|_| gate.line_up()).collect();
        let mut polled = |pass: &mut Pass| pass.poll(&mut context).is_ready();
        assert!(!polled(&mut passes[1]));
        assert!(polled(&mut passes[0]));
        assert!(polled(&mut passes[1]));
        assert!(!polled(&mut passes[2]));
        drop(passes.remove(2));
        drop(passes.remove(0));
        assert!(!polled(&mut passes[2]));
        assert!(polled(&mut passes[1]));
        assert!(!polled(&mut passes[2]));
    }
}
