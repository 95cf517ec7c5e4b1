//! The subcommands, one file each.

pub(crate) mod agent;
mod bars;
pub(crate) mod checkpoints;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod info;
pub(crate) mod man;
pub(crate) mod nameserver;
mod output_file;
mod page;
pub(crate) mod partner;
pub(crate) mod plan;
pub(crate) mod reduce;
pub(crate) mod reduce_worker;
pub(crate) mod rehearse;
pub(crate) mod run;
mod times;
