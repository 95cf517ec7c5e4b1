//! Operations that are functions in Python.

use std::panic::resume_unwind;

use pyo3::{Bound, Py, PyAny, PyErr, PyResult, Python, exceptions::PyValueError, types::PyAnyMethods};
use ropewalk_reduce::{DecodeError, ObjectReducer};

use crate::{
    element::ElementType,
    memory::{Memory, bytes_of},
};

/// A function of two whole vectors, the left and the right one, that returns a third one of the same length.
pub(crate) struct Function {
    pub(crate) function: Py<PyAny>,
    pub(crate) element: ElementType,
    pub(crate) shape: Vec<usize>,
}

impl Function {
    fn call(&self, py: Python<'_>, left: Vec<u8>, right: Vec<u8>) -> PyResult<Vec<u8>> {
        let expected = left.len();
        if right.len() != expected {
            let found = right.len();
            return Err(PyValueError::new_err(format!(
                "vectors of {expected} and {found} bytes are combined"
            )));
        }
        let [left, right] = [left, right].map(|vector| Memory::new(vector, self.element, &self.shape));
        let combined: Bound<'_, PyAny> = self.function.bind(py).call1((left, right))?;
        let combined = bytes_of(&combined)?;
        match combined.len() == expected {
            true => Ok(combined),
            false => Err(PyValueError::new_err(format!(
                "the operation returned {} bytes for vectors of {expected}",
                combined.len()
            ))),
        }
    }
}

impl ObjectReducer for Function {
    type Value = Vec<u8>;

    /// An exception is a panic, which ends the call on all ranks with its message.
    fn combine(&self, left: Vec<u8>, right: Vec<u8>) -> Vec<u8> {
        let combined = Python::try_attach(|py| {
            let message = |error: PyErr| error.to_string();
            self.call(py, left, right).map_err(message)
        });
        // The panic hook would print what the exception says.
        match combined {
            Some(Ok(combined)) => combined,
            Some(Err(message)) => resume_unwind(Box::new(message)),
            None => resume_unwind(Box::new("Python has ended".to_owned())),
        }
    }

    fn encode(&self, value: &Vec<u8>) -> Vec<u8> {
        value.clone()
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }
}
