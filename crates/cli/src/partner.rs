//! `ropewalk partner`: a host's part in the copies of a job's checkpoints. `ropewalk run` starts one on each host.

use std::ffi::OsString;

use ropewalk_checkpoint::partner::PartnerOrders;

/// One host's part in the copies of checkpoints
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The orders of whoever starts it.
    #[arg(num_args = PartnerOrders::ARGUMENTS, allow_hyphen_values = true)]
    pub(crate) orders: Vec<OsString>,
}
