//! Errors as exceptions of the module `ropewalk.errors`.

use pyo3::{
    Bound, PyAny, PyErr, PyResult, Python,
    types::{PyAnyMethods, PyDict, PyDictMethods},
};
use ropewalk_reduce::{BootstrapError, LeaveError, Rank, ReduceError, ReductionError};

/// The data of an exception beside its text.
#[derive(Default)]
struct Facts {
    /// The class in `ropewalk.errors`.
    class: &'static str,
    /// The rank that the error is about.
    rank: Option<Rank>,
    /// All ranks that it is about.
    ranks: Vec<Rank>,
    /// The error is about the host of this process.
    is_of_this_host: bool,
}

/// The exception of a call that has no result.
pub(crate) fn of_call(py: Python<'_>, error: &ReduceError) -> PyErr {
    let facts = match error {
        ReduceError::Reduction(error) => facts(error),
        ReduceError::JobEnded => class("JobEndedError"),
        ReduceError::Memory(_) | ReduceError::Protection(_) => Facts {
            is_of_this_host: true,
            ..class("ResourceError")
        },
        ReduceError::NotMember { rank } | ReduceError::RootNotMember { root: rank } => Facts {
            rank: Some(*rank),
            ..class("UsageError")
        },
        ReduceError::Decode(_) => class("OperationError"),
        _ => class("UsageError"),
    };
    exception(py, error, facts)
}

/// The exception of a job that was not joined.
pub(crate) fn of_bootstrap(py: Python<'_>, error: &BootstrapError) -> PyErr {
    let class_name = match error {
        BootstrapError::JobOver { .. } => "JobOver",
        _ => "JobError",
    };
    exception(py, error, class(class_name))
}

/// The exception of a job that was not left together with all others.
pub(crate) fn of_leaving(py: Python<'_>, error: &LeaveError) -> PyErr {
    exception(py, error, class("JobError"))
}

fn class(class: &'static str) -> Facts {
    Facts {
        class,
        ..Facts::default()
    }
}

fn facts(error: &ReductionError) -> Facts {
    let one = |name, rank: &Rank| Facts {
        rank: Some(*rank),
        ranks: vec![*rank],
        ..class(name)
    };
    let here = |facts| Facts {
        is_of_this_host: true,
        ..facts
    };
    match error {
        ReductionError::AgentLost => here(class("FencedError")),
        ReductionError::ContributionLost { ranks } => Facts {
            rank: ranks.first().copied(),
            ranks: ranks.clone(),
            ..class("LostError")
        },
        ReductionError::Fenced { rank, .. }
        | ReductionError::Minority { rank, .. }
        | ReductionError::NoMajority { rank, .. } => here(one("FencedError", rank)),
        ReductionError::IdReused { .. } => class("UsageError"),
        ReductionError::Mismatch { odd, .. } => one("MismatchError", odd),
        ReductionError::Operation { rank, .. } | ReductionError::Source { rank, .. } => {
            one("OperationError", rank)
        }
        ReductionError::RootLost { rank } | ReductionError::SchedulerLost { rank } => one("LostError", rank),
        ReductionError::Timeout { rank, missing } => Facts {
            rank: Some(*rank),
            ranks: missing.clone(),
            ..class("TimeoutError")
        },
        ReductionError::Cancelled { rank, missing } => Facts {
            rank: Some(*rank),
            ranks: missing.clone(),
            ..class("CancelledError")
        },
        ReductionError::Unreachable { one, other } => Facts {
            rank: Some(*one),
            ranks: vec![*one, *other],
            ..class("LostError")
        },
        ReductionError::Withdrawn { rank, .. } => one("LostError", rank),
        _ => class("ReduceError"),
    }
}

fn exception(py: Python<'_>, error: &dyn std::error::Error, facts: Facts) -> PyErr {
    made(py, error, &facts).map_or_else(|error| error, PyErr::from_value)
}

fn made<'py>(py: Python<'py>, error: &dyn std::error::Error, facts: &Facts) -> PyResult<Bound<'py, PyAny>> {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    let module = py.import("ropewalk.errors")?;
    let host = match facts.is_of_this_host {
        true => Some(py.import("socket")?.call_method0("gethostname")?),
        false => None,
    };
    let data = PyDict::new(py);
    data.set_item("rank", facts.rank.map(|rank| rank.0))?;
    data.set_item("ranks", facts.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>())?;
    data.set_item("host", host)?;
    module.getattr(facts.class)?.call((message,), Some(&data))
}
