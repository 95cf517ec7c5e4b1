//! The futures that an engine polls while it is driven.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake},
};

use ropewalk_fabric::Waker;

use crate::lock::lock;

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Futures, and which of them are to be polled.
pub(crate) struct TaskSet {
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    ready: Arc<Ready>,
    /// Those of the ready that are being polled now, the next one last.
    polling: Vec<Arc<TaskWaker>>,
}

struct Task {
    /// Not here while it is polled.
    future: Option<TaskFuture>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    index: usize,
    /// True if it is among the ready already, so that it is there at most once.
    queued: AtomicBool,
    ready: Arc<Ready>,
}

struct Ready {
    queue: Mutex<Vec<Arc<TaskWaker>>>,
    any: AtomicBool,
    waker: Waker,
}

impl TaskSet {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            tasks: Vec::new(),
            free: Vec::new(),
            ready: Arc::new(Ready {
                queue: Mutex::default(),
                any: AtomicBool::new(false),
                waker,
            }),
            polling: Vec::new(),
        }
    }

    /// How many have not ended.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Takes a future in, to be polled by the next [`poll`](Self::poll), for which nobody is woken.
    pub(crate) fn spawn(&mut self, future: TaskFuture) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        });
        let waker = Arc::new(TaskWaker {
            index,
            queued: AtomicBool::new(true),
            ready: self.ready.clone(),
        });
        waker.enqueue();
        self.tasks[index] = Some(Task {
            future: Some(future),
            waker,
        });
    }

    /// Returns true if there are tasks to be polled.
    pub(crate) fn any_ready(&self) -> bool {
        !self.polling.is_empty() || self.ready.any.load(Ordering::SeqCst)
    }

    /// Polls those that were woken before, each once. Returns how many.
    ///
    /// # Panics
    /// With the panic of a task, which is gone then; the others are whole.
    pub(crate) fn poll(&mut self) -> usize {
        if self.polling.is_empty() && self.ready.any.load(Ordering::SeqCst) {
            let mut queue = lock(&self.ready.queue);
            self.ready.any.store(false, Ordering::SeqCst);
            std::mem::swap(&mut *queue, &mut self.polling);
            drop(queue);
            self.polling.reverse();
        }
        let mut polled = 0;
        while let Some(waker) = self.polling.pop() {
            polled += usize::from(self.poll_one(waker));
        }
        polled
    }

    fn poll_one(&mut self, waker: Arc<TaskWaker>) -> bool {
        waker.queued.store(false, Ordering::SeqCst);
        let index = waker.index;
        let Some(task) = &mut self.tasks[index] else {
            return false;
        };
        // Its place may have gone to another since.
        if !Arc::ptr_eq(&task.waker, &waker) {
            return false;
        }
        let mut future = task.future.take().expect("a task is polled by one thread only");
        let waker = waker.into();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            future.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        if let (Ok(Poll::Pending), Some(task)) = (&polled, &mut self.tasks[index]) {
            task.future = Some(future);
            return true;
        }
        self.tasks[index] = None;
        self.free.push(index);
        if let Err(panic) = polled {
            resume_unwind(panic);
        }
        true
    }
}

impl Drop for TaskSet {
    /// The wakers in the queue hold the queue.
    fn drop(&mut self) {
        let left = std::mem::take(&mut *lock(&self.ready.queue));
        drop(left);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::SeqCst) && self.enqueue() {
            self.ready.waker.wake();
        }
    }
}

impl TaskWaker {
    /// Returns whether it is the first among the ready, so that somebody has to be woken.
    fn enqueue(self: &Arc<Self>) -> bool {
        let mut queue = lock(&self.ready.queue);
        queue.push(self.clone());
        self.ready.any.store(true, Ordering::SeqCst);
        queue.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::AtomicUsize,
        task::{self},
    };

    use ropewalk_fabric::{Endpoint, EndpointOptions, Identity, JobKey, Role};
    use ropewalk_names::{Incarnation, JobId, Rank};

    use super::*;

    fn task_set() -> TaskSet {
        let identity = Identity {
            role: Role::Rank,
            rank: Rank(0),
            incarnation: Incarnation(0),
        };
        let key = JobKey::from_bytes([0; 32]);
        let endpoint = Endpoint::bind(EndpointOptions::new(JobId([0; 16]), key, identity)).unwrap();
        TaskSet::new(endpoint.waker())
    }

    /// A task is polled once when it is spawned and once for all wakes since, and its place is used again.
    #[test]
    fn tasks_are_polled_when_woken() {
        let mut tasks = task_set();
        let polls = Arc::new(AtomicUsize::new(0));
        let kept: Arc<Mutex<Option<task::Waker>>> = Arc::default();
        let (counter, keep) = (polls.clone(), kept.clone());
        tasks.spawn(Box::pin(poll_fn(move |context| {
            *lock(&keep) = Some(context.waker().clone());
            match counter.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })));
        assert_eq!((tasks.poll(), tasks.poll()), (1, 0));
        for _ in 0..3 {
            lock(&kept).as_ref().unwrap().wake_by_ref();
        }
        assert_eq!((tasks.poll(), tasks.poll(), tasks.len()), (1, 0, 1));
        lock(&kept).as_ref().unwrap().wake_by_ref();
        assert_eq!((tasks.poll(), tasks.len()), (1, 0));
        // A wake of one that ended harms nobody, also when another has its place.
        lock(&kept).as_ref().unwrap().wake_by_ref();
        tasks.spawn(Box::pin(async {}));
        assert_eq!((tasks.poll(), tasks.len(), tasks.tasks.len()), (1, 0, 1));
        assert_eq!(polls.load(Ordering::SeqCst), 3);
    }

    /// A task that panics is gone; those after it are polled by the next round.
    #[test]
    fn a_panic_ends_one_task() {
        let mut tasks = task_set();
        tasks.spawn(Box::pin(async { panic!("as meant") }));
        tasks.spawn(Box::pin(async {}));
        assert!(catch_unwind(AssertUnwindSafe(|| tasks.poll())).is_err());
        assert_eq!((tasks.len(), tasks.poll(), tasks.len()), (1, 1, 0));
    }
}
