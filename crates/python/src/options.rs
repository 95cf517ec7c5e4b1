//! The choices of a call, as Python names them.

use std::time::Duration;

use pyo3::{
    Bound, PyAny, PyErr, PyResult,
    exceptions::{PyTypeError, PyValueError},
    types::{PyAnyMethods, PyDict, PyDictMethods},
};
use ropewalk_reduce::{OnLoss, Order, Protection, Rank, ReduceOptions, RootFailure};

/// The options that a dictionary has.
///
/// # Errors
/// `TypeError` for a name that is none, `ValueError` for a value that is none.
pub(crate) fn options_of(named: Option<&Bound<'_, PyDict>>) -> PyResult<ReduceOptions> {
    let mut options = ReduceOptions::default();
    let (mut copies, mut acknowledged) = (0, false);
    for (name, value) in named.into_iter().flat_map(|named| named.iter()) {
        let name: String = name.extract()?;
        match name.as_str() {
            "acknowledged" => acknowledged = value.extract()?,
            "copies" => copies = value.extract()?,
            "id" => options.id = value.extract()?,
            "on_loss" => {
                options.on_loss = match text(&value)?.as_str() {
                    "exclude" => OnLoss::Exclude,
                    "fail" => OnLoss::Fail,
                    _ => return Err(unknown(&name, &value, "\"exclude\" or \"fail\"")),
                }
            }
            "on_root_loss" => options.on_root_loss = root_failure(&value)?,
            "order" => {
                options.order = match text(&value)?.as_str() {
                    "any" => Order::Any,
                    "ordered" => Order::Ordered,
                    _ => return Err(unknown(&name, &value, "\"any\" or \"ordered\"")),
                }
            }
            "protection" => {
                options.protection = match text(&value)?.as_str() {
                    "none" => Protection::None,
                    "process" => Protection::Process,
                    _ => return Err(unknown(&name, &value, "\"none\" or \"process\"")),
                }
            }
            "timeout" => options.timeout = timeout(&value)?,
            _ => {
                return Err(PyTypeError::new_err(format!(
                    "unknown option {name:?}; the options are acknowledged, copies, id, on_loss, on_root_loss, order, \
                     protection and timeout"
                )));
            }
        }
    }
    if copies > 0 {
        options.protection = Protection::Hosts { copies, acknowledged };
    }
    Ok(options)
}

fn root_failure(value: &Bound<'_, PyAny>) -> PyResult<RootFailure> {
    if let Ok(rank) = value.extract::<u32>() {
        return Ok(RootFailure::MoveTo(Rank(rank)));
    }
    match text(value)?.as_str() {
        "fail" => Ok(RootFailure::Fail),
        "lowest" => Ok(RootFailure::MoveToLowest),
        _ => Err(unknown("on_root_loss", value, "\"fail\", \"lowest\" or a rank")),
    }
}

fn timeout(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    let seconds: Option<f64> = value.extract()?;
    let duration = seconds.map(Duration::try_from_secs_f64).transpose();
    duration.map_err(|_| unknown("timeout", value, "a number of seconds, 0 or more, or None"))
}

fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.extract()
}

fn unknown(name: &str, value: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{name} is {value}; expected {expected}"))
}
