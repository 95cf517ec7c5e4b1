//! Groups of ranks and their calls.

use std::sync::Arc;

use pyo3::{
    Bound, PyAny, PyErr, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pyclass, pymethods,
    types::{PyAnyMethods, PyDict},
};
use ropewalk_reduce::{Rank, ReduceError};

use crate::{
    buffer::Buffer,
    call::{Call, Kind, end_of_bytes},
    element::{ElementType, with_type},
    errors,
    job::Shared,
    memory::{ObjectBuffer, bytes_of},
    operator::{Element, Operator},
    options::options_of,
    pending::{Pending, Underway},
};

/// A group of ranks. `ropewalk.Group` is around it.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Group {
    group: ropewalk_reduce::Group,
    shared: Arc<Shared>,
}

impl Group {
    pub(crate) fn new(group: ropewalk_reduce::Group, shared: Arc<Shared>) -> Self {
        Self { group, shared }
    }
}

#[pymethods]
impl Group {
    /// The ranks of the group, in order.
    fn ranks(&self) -> Vec<u32> {
        self.group.ranks().iter().map(|rank| rank.0).collect()
    }

    /// The rank of this process.
    fn rank(&self) -> u32 {
        self.shared.rank.0
    }

    /// A group of some ranks of this one.
    fn subgroup(&self, py: Python<'_>, ranks: Vec<u32>) -> PyResult<Self> {
        let ranks: Vec<_> = ranks.into_iter().map(Rank).collect();
        let group = self.group.subgroup(&ranks);
        let group = group.map_err(|error| errors::of_call(py, &error))?;
        Ok(Self::new(group, Arc::clone(&self.shared)))
    }

    /// The group without some ranks.
    fn without(&self, py: Python<'_>, ranks: Vec<u32>) -> PyResult<Self> {
        let ranks: Vec<_> = ranks.into_iter().map(Rank).collect();
        let group = self.group.without(&ranks);
        let group = group.map_err(|error| errors::of_call(py, &error))?;
        Ok(Self::new(group, Arc::clone(&self.shared)))
    }

    /// The group of the ranks that name the same color; `None` without one.
    #[pyo3(signature = (color, key, options))]
    fn split(
        &self,
        py: Python<'_>,
        color: Option<u32>,
        key: i64,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Self>> {
        let options = options_of(options)?;
        let group = py.detach(|| self.group.split(color, key, &options));
        let group = group.map_err(|error| errors::of_call(py, &error))?;
        Ok(group.map(|group| Self::new(group, Arc::clone(&self.shared))))
    }

    /// Begins a collective on a buffer; beside it stands if its 16-bit integers are the bits of `bf16`. `operation` is
    /// a name, a function of two buffers, or `None` if nothing is folded.
    #[pyo3(signature = (kind, data, operation, root, options))]
    fn begin(
        &self,
        py: Python<'_>,
        kind: &str,
        data: (Bound<'_, PyAny>, bool),
        operation: Option<&Bound<'_, PyAny>>,
        root: u32,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Pending> {
        let kind = Kind::from_name(kind);
        let kind = kind.ok_or_else(|| PyValueError::new_err("there is no such collective"))?;
        let options = options_of(options)?;
        let call = Call {
            group: &self.group,
            shared: &self.shared,
            kind,
            root: Rank(root),
            options: &options,
        };
        let begun = match operation.filter(|_| kind.folds()) {
            Some(function) if function.is_callable() => {
                begin_with_function(py, &call, &ObjectBuffer::new(&data.0, data.1)?, function)?
            }
            operation => {
                let operator = operation.map(operator_of).transpose()?;
                match data.0.cast::<Buffer>() {
                    Ok(buffer) if kind.lends() && operator != Some(Operator::ExactSum) => {
                        Ok(begin_lent(py, &call, buffer.get(), operator)?)
                    }
                    _ => begin_copied(py, &call, &ObjectBuffer::new(&data.0, data.1)?, operator)?,
                }
            }
        };
        begun
            .map(Pending::new)
            .map_err(|error| errors::of_call(py, &error))
    }

    /// Begins a broadcast of bytes of which only the root knows the length.
    #[pyo3(signature = (data, root, options))]
    fn broadcast_bytes(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        root: u32,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Pending> {
        let (bytes, options) = (bytes_of(data)?, options_of(options)?);
        let begun = py.detach(|| self.group.broadcast_bytes(bytes, Rank(root), &options));
        let begun = begun.map_err(|error| errors::of_call(py, &error))?;
        Ok(Pending::new(end_of_bytes(begun)))
    }

    /// Begins a barrier, whose outcome has no value.
    #[pyo3(signature = (options))]
    fn barrier(&self, py: Python<'_>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Pending> {
        let options = options_of(options)?;
        let begun = py.detach(|| self.group.barrier(&options));
        let begun = begun.map_err(|error: ReduceError| errors::of_call(py, &error))?;
        Ok(Pending::new(crate::call::end_of_barrier(begun)))
    }
}

fn begin_with_function(
    py: Python<'_>,
    call: &Call<'_>,
    buffer: &ObjectBuffer,
    function: &Bound<'_, PyAny>,
) -> PyResult<Result<Underway, ReduceError>> {
    if call.kind == Kind::ReduceScatter {
        return Err(PyTypeError::new_err(
            "reduce_scatter cuts vectors, which a function combines as a whole; use a named operation",
        ));
    }
    let function = function.clone().unbind();
    Ok(py.detach(|| call.begin_with_function(buffer, function)))
}

/// Begins a call with a copy of a contribution.
fn begin_copied(
    py: Python<'_>,
    call: &Call<'_>,
    buffer: &ObjectBuffer,
    operator: Option<Operator>,
) -> PyResult<Result<Underway, ReduceError>> {
    Ok(match (operator, buffer.element()) {
        (Some(Operator::ExactSum), ElementType::F32) => py.detach(|| call.begin_exact::<f32>(buffer)),
        (Some(Operator::ExactSum), ElementType::F64) => py.detach(|| call.begin_exact::<f64>(buffer)),
        (operator, element) => with_type!(element, T => {
            let folding = operator.map(|operator| folding::<T>(operator, element)).transpose()?;
            py.detach(|| call.begin::<T>(buffer, folding))
        }),
    })
}

/// Begins a call with a buffer, which comes back when the call has ended.
fn begin_lent(
    py: Python<'_>,
    call: &Call<'_>,
    buffer: &Buffer,
    operator: Option<Operator>,
) -> PyResult<Underway> {
    let (element, shape) = (buffer.element(), buffer.dimensions());
    with_type!(element, T => {
        let folding = operator.map(|operator| folding::<T>(operator, element)).transpose()?;
        let (memory, loan) = buffer.lend::<T>()?;
        let give_back = move |memory| loan.give_back(memory);
        Ok(py.detach(|| call.begin_lent(memory, folding, element, &shape, give_back)))
    })
}

fn operator_of(name: &Bound<'_, PyAny>) -> PyResult<Operator> {
    let unknown = |_: PyErr| PyTypeError::new_err("an operation is a name, or a function of two arrays");
    let text: String = name.extract().map_err(unknown)?;
    Operator::from_name(&text).ok_or_else(|| {
        let names = Operator::names(|_| true);
        PyValueError::new_err(format!("there is no operation {text:?}; the names are {names}"))
    })
}

fn folding<T: Element>(
    operator: Operator,
    element: ElementType,
) -> PyResult<ropewalk_reduce::Operation<Vec<T>>> {
    T::operation(operator).ok_or_else(|| {
        let is_exact = matches!(element, ElementType::F32 | ElementType::F64);
        let element = element.name();
        let name = Operator::names(|other| other == operator);
        let names = Operator::names(|other| match other {
            Operator::ExactSum => is_exact,
            other => T::operation(other).is_some(),
        });
        PyTypeError::new_err(format!(
            "the operation {name} is not defined for elements of type {element}; their operations are {names}"
        ))
    })
}
