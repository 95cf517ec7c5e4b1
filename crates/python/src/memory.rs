//! Memory that Python and this module share: contributions and results.

use std::{
    any::Any,
    borrow::Cow,
    ffi::{CStr, c_int, c_void},
    ptr,
};

use bytemuck::Pod;
use pyo3::{
    Bound, PyAny, PyResult,
    buffer::PyUntypedBuffer,
    exceptions::{PyBufferError, PyTypeError, PyValueError},
    ffi, pyclass, pymethods,
    types::{PyAnyMethods, PyTypeMethods},
};

use crate::element::ElementType;

/// The buffer of an object: whole elements of a known type, one after the other.
pub(crate) struct ObjectBuffer {
    buffer: PyUntypedBuffer,
    element: ElementType,
}

impl ObjectBuffer {
    /// The buffer of an object. `is_bf16` says that its 16-bit integers are the bits of `bf16`.
    ///
    /// # Errors
    /// `TypeError` if the object has no buffer, or one of elements that are not supported; `ValueError` if its elements
    /// do not lie one after the other in C order.
    pub(crate) fn new(object: &Bound<'_, PyAny>, is_bf16: bool) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object).map_err(|error| {
            if !error.is_instance_of::<PyTypeError>(object.py()) {
                return error;
            }
            let class = object.get_type();
            let class = class.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!(
                "expected an array or another object with the buffer protocol, not {class}; numpy.asarray makes \
                 arrays of numbers and lists, and broadcast_object sends other objects"
            ))
        })?;
        let element = match ElementType::from_format(buffer.format(), buffer.item_size()) {
            Some(ElementType::U16) if is_bf16 => ElementType::Bf16,
            Some(element) => element,
            None => {
                let format = buffer.format().to_string_lossy();
                return Err(PyTypeError::new_err(format!(
                    "elements of format {format:?} are not supported; supported are bool, int8 to int64, uint8 to \
                     uint64, float16 to float64, bfloat16, complex64 and complex128, in this machine's byte order; and \
                     structures of a value (an integer or a float of 32 or 64 bits) and an index (int32 or int64) \
                     without a gap, as numpy.dtype([(\"value\", \"f8\"), (\"index\", \"i4\")])"
                )));
            }
        };
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err(
                "the elements of a buffer must lie one after the other in C order; use numpy.ascontiguousarray",
            ));
        }
        Ok(Self { buffer, element })
    }

    /// The buffer of an object that results are written to.
    ///
    /// # Errors
    /// As [`new`](Self::new), and `ValueError` if it is read-only.
    pub(crate) fn writable(object: &Bound<'_, PyAny>, is_bf16: bool) -> PyResult<Self> {
        let buffer = Self::new(object, is_bf16)?;
        match buffer.buffer.readonly() {
            true => Err(PyValueError::new_err("the buffer for the result is read-only")),
            false => Ok(buffer),
        }
    }

    pub(crate) fn element(&self) -> ElementType {
        self.element
    }

    pub(crate) fn shape(&self) -> &[usize] {
        self.buffer.shape()
    }

    /// The format by which the object describes its elements.
    pub(crate) fn format(&self) -> &CStr {
        self.buffer.format()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len_bytes()
    }

    /// Copies the elements out of it.
    pub(crate) fn copy_to<T: Pod>(&self, elements: &mut [T]) {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(elements);
        assert_eq!(
            bytes.len(),
            self.bytes(),
            "the destination has the length of the buffer"
        );
        if !bytes.is_empty() {
            // SAFETY: the exporter keeps that many bytes in place until the buffer is released, and the destination is
            // memory of its own. A thread of Python that writes meanwhile leaves a mixture, as it does with NumPy.
            unsafe {
                ptr::copy_nonoverlapping(self.buffer.buf_ptr().cast(), bytes.as_mut_ptr(), bytes.len())
            };
        }
    }

    /// Copies elements into it.
    fn copy_from(&self, memory: &Memory) {
        assert_eq!(
            memory.layout.bytes(),
            self.bytes(),
            "the result has the length of the buffer"
        );
        if self.bytes() > 0 {
            // SAFETY: as in `copy_to`; the buffer is writable, as was asked when it was made.
            unsafe {
                ptr::copy_nonoverlapping(
                    memory.pointer.cast::<u8>(),
                    self.buffer.buf_ptr().cast(),
                    self.bytes(),
                )
            };
        }
    }
}

/// The elements of some memory, as views describe them.
pub(crate) struct Layout {
    element: ElementType,
    format: Cow<'static, CStr>,
    item_bytes: isize,
    shape: Box<[isize]>,
    strides: Box<[isize]>,
}

impl Layout {
    /// Elements in C order. `None` if their strides are longer than the address space.
    pub(crate) fn new(element: ElementType, format: Cow<'static, CStr>, shape: &[usize]) -> Option<Self> {
        let item_bytes = crate::element::with_type!(element, E => size_of::<E>()) as isize;
        let mut strides = vec![0; shape.len()];
        let mut stride = item_bytes;
        for (place, &length) in shape.iter().enumerate().rev() {
            strides[place] = stride;
            stride = stride.checked_mul(isize::try_from(length).ok()?.max(1))?;
        }
        Some(Self {
            element,
            format,
            item_bytes,
            shape: shape.iter().map(|&length| length as isize).collect(),
            strides: strides.into(),
        })
    }

    pub(crate) fn element(&self) -> ElementType {
        self.element
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        self.shape.iter().map(|&length| length as usize).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.shape.iter().product::<isize>() * self.item_bytes) as usize
    }

    /// Fills a view (PEP 3118) of writable memory that begins at `pointer`.
    ///
    /// # Safety
    /// Python asks for the view. The memory has the bytes of this layout, and both stay as long as `owner` lives.
    pub(crate) unsafe fn fill(
        &self,
        view: *mut ffi::Py_buffer,
        flags: c_int,
        pointer: *mut c_void,
        owner: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let wishes = |flag: c_int| flags & flag == flag;
        let (shape, strides) = (self.shape.as_ptr().cast_mut(), self.strides.as_ptr().cast_mut());
        // SAFETY: the view is Python's to be filled. It points to what lives as long as the owner, to which it has a
        // reference; nobody writes through the pointers to format, shape and strides.
        unsafe {
            (*view).buf = pointer;
            (*view).len = self.bytes() as isize;
            (*view).readonly = 0;
            (*view).itemsize = self.item_bytes;
            (*view).format = match wishes(ffi::PyBUF_FORMAT) {
                true => self.format.as_ptr().cast_mut(),
                false => ptr::null_mut(),
            };
            (*view).ndim = self.shape.len() as c_int;
            (*view).shape = if wishes(ffi::PyBUF_ND) {
                shape
            } else {
                ptr::null_mut()
            };
            (*view).strides = if wishes(ffi::PyBUF_STRIDES) {
                strides
            } else {
                ptr::null_mut()
            };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
            (*view).obj = owner.into_ptr();
        }
        Ok(())
    }
}

/// The memory of a result, which Python reads and writes through the buffer protocol.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Memory {
    /// The vector that `pointer` points into, which nothing else looks at any more.
    _owner: Box<dyn Any + Send + Sync>,
    pointer: *mut c_void,
    layout: Layout,
}

// SAFETY: the pointer is to memory that `_owner` owns, and only Python's threads use it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory of a vector; `shape` has as many elements.
    pub(crate) fn new<T: Pod + Send + Sync>(
        mut vector: Vec<T>,
        element: ElementType,
        shape: &[usize],
    ) -> Self {
        let layout = Layout::new(element, Cow::Borrowed(element.format()), shape)
            .expect("the shape is that of memory, with more ranks at most than there can be");
        assert_eq!(
            layout.bytes(),
            size_of_val(vector.as_slice()),
            "a result has the elements of its shape"
        );
        Self {
            pointer: vector.as_mut_ptr().cast(),
            _owner: Box::new(vector),
            layout,
        }
    }
}

#[pymethods]
impl Memory {
    /// Copies the elements into another buffer of the same type and length.
    fn copy_into(&self, object: &Bound<'_, PyAny>, is_bf16: bool) -> PyResult<()> {
        let buffer = ObjectBuffer::writable(object, is_bf16)?;
        let (element, bytes) = (self.layout.element(), self.layout.bytes());
        if (buffer.element(), buffer.bytes()) != (element, bytes) {
            return Err(PyValueError::new_err(format!(
                "the result has {bytes} bytes of {}, and the buffer for it {} of {}",
                element.name(),
                buffer.bytes(),
                buffer.element().name()
            )));
        }
        object.py().detach(|| buffer.copy_from(self));
        Ok(())
    }

    /// Fills a view (PEP 3118).
    ///
    /// # Safety
    /// Python calls it, with a view to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get();
        let (layout, pointer) = (&memory.layout, memory.pointer);
        // SAFETY: Python gives the view; the vector has the bytes of the layout, and both belong to this object.
        unsafe { layout.fill(view, flags, pointer, slf.clone().into_any()) }
    }
}

/// Copies the bytes of an object with a buffer.
///
/// # Errors
/// `TypeError` if it has no buffer, `ValueError` if that is not contiguous.
pub(crate) fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("bytes must lie one after the other"));
    }
    let mut bytes = vec![0; buffer.len_bytes()];
    if !bytes.is_empty() {
        // SAFETY: the exporter keeps that many bytes in place until the buffer is released.
        unsafe { ptr::copy_nonoverlapping(buffer.buf_ptr().cast(), bytes.as_mut_ptr(), bytes.len()) };
    }
    Ok(bytes)
}
