//! `ropewalk partner`: a host's part in the copies of a job's checkpoints. `ropewalk run` starts one on each host.

mod orders;
mod process;

pub(crate) use orders::{PartnerOrders, Ready, Said};
pub(crate) use process::partner_main;

/// One host's part in the copies of checkpoints
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The orders of whoever starts it.
    #[arg(num_args = PartnerOrders::ARGUMENTS, allow_hyphen_values = true)]
    pub(crate) orders: Vec<std::ffi::OsString>,
}
