//! OpenFOAM under our store: solvers that are killed, and what their results and times are compared with. It takes
//! OpenFOAM, Open MPI and, but for [`trials`], OpenFOAM's examples.

mod build;
pub mod cases;
mod cavity;
mod command;
mod solver;
mod tests;
pub mod trials;
pub mod tutorials;
mod users;

pub use self::{
    build::build,
    cases::paper::{Killed, KilledRow, PaperCase, kill, measure},
    tests::test,
};
