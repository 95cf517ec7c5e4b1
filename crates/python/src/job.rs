//! This process's membership in its job.

use std::{
    borrow::Cow,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use bytemuck::Pod;
use pyo3::{
    Bound, Py, PyAny, PyResult, Python,
    exceptions::{PyRuntimeError, PyValueError},
    pyclass, pymethods,
};
use ropewalk_reduce::{Buffer, Rank, ReduceError};

use crate::{
    element::with_type,
    errors,
    group::Group,
    memory::{Layout, ObjectBuffer},
    spare::SpareBuffers,
};

/// A membership in a job. `ropewalk.Job` is around it.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Job {
    shared: Arc<Shared>,
}

/// The part of a job that its groups need too.
pub(crate) struct Shared {
    /// `None` once the job has been left.
    job: RwLock<Option<ropewalk_reduce::Job>>,
    pub(crate) rank: Rank,
    size: u32,
    pub(crate) spare: SpareBuffers,
}

impl Shared {
    /// Memory that a call is lent.
    ///
    /// # Errors
    /// If there is none, or the job has been left.
    pub(crate) fn buffer<T: Pod>(&self, length: usize) -> Result<Buffer<T>, ReduceError> {
        let job = self.job.read().unwrap_or_else(PoisonError::into_inner);
        job.as_ref().ok_or(ReduceError::JobEnded)?.buffer(length)
    }

    fn take(&self) -> Option<ropewalk_reduce::Job> {
        self.job.write().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A process joins its job once.
static HAS_JOINED: AtomicBool = AtomicBool::new(false);

#[pymethods]
impl Job {
    /// Joins the job that this process was started for.
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        if HAS_JOINED.swap(true, Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err(
                "this process has joined its job before; a process makes one Job",
            ));
        }
        let job = py.detach(ropewalk_reduce::Job::from_env);
        let job = job.map_err(|error| errors::of_bootstrap(py, &error))?;
        Ok(Self {
            shared: Arc::new(Shared {
                rank: job.rank(),
                size: job.size(),
                job: RwLock::new(Some(job)),
                spare: SpareBuffers::default(),
            }),
        })
    }

    /// The number of this process, from 0.
    #[getter]
    fn rank(&self) -> u32 {
        self.shared.rank.0
    }

    /// The number of processes that the job was started with.
    #[getter]
    fn size(&self) -> u32 {
        self.shared.size
    }

    /// The group of all ranks.
    fn world(&self, py: Python<'_>) -> PyResult<Group> {
        let world = self.read(py, ropewalk_reduce::Job::world);
        let world = world.ok_or_else(|| errors::of_call(py, &ReduceError::JobEnded))?;
        Ok(Group::new(world, Arc::clone(&self.shared)))
    }

    /// Memory of zero elements that calls are lent. `like` has no elements, but their format; beside it stands if its
    /// 16-bit integers are the bits of `bf16`.
    fn buffer(
        &self,
        py: Python<'_>,
        shape: Vec<usize>,
        like: (Bound<'_, PyAny>, bool),
        dtype: Py<PyAny>,
    ) -> PyResult<crate::buffer::Buffer> {
        let like = ObjectBuffer::new(&like.0, like.1)?;
        let layout = Layout::new(like.element(), Cow::Owned(like.format().to_owned()), &shape);
        let layout = layout.ok_or_else(|| {
            PyValueError::new_err("a buffer of this shape is longer than the address space")
        })?;
        with_type!(like.element(), T => {
            let memory = py.detach(|| self.shared.buffer::<T>(shape.iter().product()));
            let memory = memory.map_err(|error| errors::of_call(py, &error))?;
            Ok(crate::buffer::Buffer::new(memory, layout, dtype))
        })
    }

    /// Takes in the ranks that have come back, and returns them.
    fn admit(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let admitted = py.detach(|| {
            let mut job = self.shared.job.write().unwrap_or_else(PoisonError::into_inner);
            job.as_mut().ok_or(ReduceError::JobEnded)?.admit()
        });
        let admitted = admitted.map_err(|error| errors::of_call(py, &error))?;
        Ok(admitted.into_iter().map(|rank| rank.0).collect())
    }

    /// The ranks that were lost when ranks were admitted last, and those that were there before, ascending.
    fn lost_and_stayed(&self, py: Python<'_>) -> (Vec<u32>, Vec<u32>) {
        let numbers = |ranks: Vec<Rank>| ranks.into_iter().map(|rank| rank.0).collect();
        let told = self.read(py, |job| (numbers(job.lost()), numbers(job.stayed())));
        told.unwrap_or_default()
    }

    /// Says if this process replaces an earlier one of its rank.
    #[getter]
    fn has_come_back(&self, py: Python<'_>) -> bool {
        self.read(py, ropewalk_reduce::Job::has_come_back)
            .unwrap_or_default()
    }

    /// Tells whoever watches the job how far a part of the work is.
    fn progress(&self, py: Python<'_>, label: &str, done: u64, total: u64) {
        self.read(py, |job| job.progress(label, done, total));
    }

    /// Leaves the job after all other ranks that live want to leave too.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        let left = py.detach(|| self.shared.take().map(ropewalk_reduce::Job::finalize));
        left.transpose().map_err(|error| errors::of_leaving(py, &error))?;
        Ok(())
    }

    /// Leaves the job at once: this rank counts as lost when its process is gone.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| drop(self.shared.take()));
    }
}

impl Job {
    /// Asks the job, unless it has been left. Another thread may wait for all ranks in it; Python goes on meanwhile.
    fn read<R: Send>(&self, py: Python<'_>, ask: impl Fn(&ropewalk_reduce::Job) -> R + Sync) -> Option<R> {
        let job = &self.shared.job;
        py.detach(|| {
            job.read()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .map(&ask)
        })
    }
}

impl Drop for Job {
    /// Ends the job's thread, which may need Python's lock for an operation in Python until then.
    fn drop(&mut self) {
        let end = || drop(self.shared.take());
        if Python::try_attach(|py| py.detach(end)).is_none() {
            end();
        }
    }
}
