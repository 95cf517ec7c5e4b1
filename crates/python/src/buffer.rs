//! Memory of Python's arrays that calls take without a copy.

use std::{
    any::Any,
    ffi::{c_int, c_void},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytemuck::Pod;
use pyo3::{
    Bound, Py, PyAny, PyErr, PyResult, Python,
    exceptions::PyBufferError,
    ffi, pyclass, pymethods,
    types::{PyAnyMethods, PyDict, PyDictMethods, PyMemoryView, PyTuple},
};

use crate::{element::ElementType, memory::Layout};

/// Memory of fixed shape that a call takes without a copy and gives back at its end; ``Job.buffer`` makes it.
///
/// ``numpy.asarray(buffer)`` and ``memoryview(buffer)`` are views of it, by which it is read and written. Nobody has
/// access while a call has it: a call takes it only if there is no view, and there is no view of it until the call has
/// ended. Both raise ``BufferError``.
#[pyclass(frozen, module = "ropewalk")]
pub(crate) struct Buffer {
    place: Arc<Place>,
    layout: Layout,
    dtype: Py<PyAny>,
}

/// The place of the memory, to which it comes back.
struct Place(Mutex<State>);

enum State {
    Here {
        /// A `ropewalk_reduce::Buffer` of the type of elements.
        memory: Box<dyn Any + Send>,
        start: Start,
        /// Views that Python has of it.
        views: usize,
    },
    Gone,
    Lent,
}

/// The first byte of the memory, to which only views point.
#[derive(Clone, Copy)]
struct Start(*mut c_void);

// SAFETY: a pointer into memory that belongs to the process; only Python's threads use it, through views.
unsafe impl Send for Start {}

impl Buffer {
    /// The memory, which has the elements of the layout.
    pub(crate) fn new<T: Pod + Send>(
        memory: ropewalk_reduce::Buffer<T>,
        layout: Layout,
        dtype: Py<PyAny>,
    ) -> Self {
        assert_eq!(
            size_of_val(&*memory),
            layout.bytes(),
            "memory has the elements of its layout"
        );
        Self {
            place: Arc::new(Place(Mutex::new(State::here(memory)))),
            layout,
            dtype,
        }
    }

    pub(crate) fn element(&self) -> ElementType {
        self.layout.element()
    }

    pub(crate) fn dimensions(&self) -> Vec<usize> {
        self.layout.shape()
    }

    /// Takes the memory for a call.
    ///
    /// # Errors
    /// `BufferError` if there are views, or another call has it.
    pub(crate) fn lend<T: Pod + Send>(&self) -> PyResult<(ropewalk_reduce::Buffer<T>, Loan)> {
        let mut state = self.place.lock();
        match std::mem::replace(&mut *state, State::Lent) {
            State::Here { memory, views: 0, .. } => {
                let memory = memory
                    .downcast()
                    .expect("the memory has the elements of its layout");
                Ok((*memory, Loan(Arc::clone(&self.place))))
            }
            refused => {
                *state = refused;
                Err(state.error())
            }
        }
    }
}

/// A call that has the memory of a buffer. If it is dropped without giving it back the memory is gone.
pub(crate) struct Loan(Arc<Place>);

impl Loan {
    /// The call has ended.
    pub(crate) fn give_back<T: Pod + Send>(self, memory: ropewalk_reduce::Buffer<T>) {
        *self.0.lock() = State::here(memory);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if matches!(*state, State::Lent) {
            *state = State::Gone;
        }
    }
}

#[pymethods]
impl Buffer {
    /// The type of the elements, as it was given: one of NumPy, or a letter.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyAny> {
        self.dtype.clone_ref(py)
    }

    /// The lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.layout.shape())
    }

    /// The same as ``numpy.asarray`` of a view. NumPy asks for it when it got no view, whose error it does not show.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let view = PyMemoryView::from(&slf)?;
        let options = PyDict::new(py);
        options.set_item("dtype", dtype)?;
        options.set_item("copy", copy)?;
        py.import("numpy")?
            .getattr("array")?
            .call((view,), Some(&options))
    }

    /// Fills a view (PEP 3118).
    ///
    /// # Safety
    /// Python calls it, with a view to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let buffer = slf.get();
        let mut state = buffer.place.lock();
        match &mut *state {
            State::Here { start, views, .. } => {
                // SAFETY: Python gives the view. The memory has the bytes of the layout, and no call takes it before
                // Python has released the view.
                unsafe { buffer.layout.fill(view, flags, start.0, slf.clone().into_any())? };
                *views += 1;
                Ok(())
            }
            absent => Err(absent.error()),
        }
    }

    /// Counts a view less.
    ///
    /// # Safety
    /// Python calls it, once for each view.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        if let State::Here { views, .. } = &mut *self.place.lock() {
            *views -= 1;
        }
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn here<T: Pod + Send>(mut memory: ropewalk_reduce::Buffer<T>) -> Self {
        Self::Here {
            start: Start(memory.as_mut_ptr().cast()),
            memory: Box::new(memory),
            views: 0,
        }
    }

    /// The error of a call or a view that cannot have the memory.
    fn error(&self) -> PyErr {
        PyBufferError::new_err(match self {
            Self::Gone => {
                "the buffer is gone with the Reduction that had it, which was dropped before its end; keep that, and \
                 call result()"
            }
            Self::Here { .. } => {
                "the buffer has views, as that of numpy.asarray, by which it could be written during the call; delete \
                 them before, or contribute a view, which is copied"
            }
            Self::Lent => "a call under way has the buffer; it comes back with the result() of that call",
        })
    }
}
