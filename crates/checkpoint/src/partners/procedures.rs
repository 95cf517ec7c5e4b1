//! The procedures that hosts call on each other.

use std::collections::BTreeSet;

use bytes::Bytes;
use ropewalk_checkpoint_core::{
    Choice,
    partner::{Fetch, Inventory, Part},
};
use ropewalk_rpc::Procedure;
use serde::{Deserialize, Serialize};

use super::journals::Knowledge;

/// Reads and hashes all that a host has.
pub(super) struct TakeStock;

impl Procedure for TakeStock {
    const NAME: &'static str = "checkpoint.take_stock";
    type Input = ();
    type Output = Stock;
}

/// The inventory of a host, and the folder below which its files in place are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Stock {
    pub(super) inventory: Inventory,
    pub(super) root: Option<Vec<u8>>,
    /// How much it knows of the job, if it was looked.
    pub(super) journal: Option<Knowledge>,
}

/// The parts that a host has by its manifests, as of a moment ago.
pub(super) struct Listing;

impl Procedure for Listing {
    const NAME: &'static str = "checkpoint.listing";
    type Input = ();
    type Output = Stock;
}

/// The history of the job that a host knows, as the text of a journal; empty if it knows none.
pub(super) struct ReadJournal;

impl Procedure for ReadJournal {
    const NAME: &'static str = "checkpoint.read_journal";
    type Input = ();
    type Output = Bytes;
}

/// The text of a manifest.
pub(super) struct ReadManifest;

impl Procedure for ReadManifest {
    const NAME: &'static str = "checkpoint.read_manifest";
    type Input = Part;
    type Output = Bytes;
}

/// A piece of a file that a manifest lists, as long as asked for. The host that asks pulls it.
pub(super) struct ReadPiece;

impl Procedure for ReadPiece {
    const NAME: &'static str = "checkpoint.read_piece";
    type Input = Piece;
    type Output = Bytes;
}

/// Which piece of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) part: Part,
    /// True if the file is in the folder of the generation.
    pub(super) is_inside: bool,
    pub(super) path: Vec<u8>,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl Piece {
    /// The longest piece: what a host has in memory of another's files, twice.
    pub(super) const LENGTH_MAX: u32 = 4 << 20;
}

/// Fetches what the host lacks, puts aside what is not started from, and counts the start.
pub(super) struct Recover;

impl Procedure for Recover {
    const NAME: &'static str = "checkpoint.recover";
    type Input = Orders;
    type Output = Recovered;
}

/// The work of a host before the ranks start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) choice: Choice,
    pub(super) fetches: Vec<Fetch>,
    pub(super) root: Option<Vec<u8>>,
    /// The host whose journal the job goes on with, and the host that writes it from now on.
    pub(super) journal: Option<(usize, usize)>,
}

/// The result of these orders on a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Recovered {
    pub(super) quarantined: Vec<String>,
    pub(super) stuck: Vec<String>,
    /// The error of a fetch that failed, if one did; nothing was put aside then.
    pub(super) missing: Option<String>,
}

/// From now on what ranks save is copied.
pub(super) struct Begin;

impl Procedure for Begin {
    const NAME: &'static str = "checkpoint.begin";
    type Input = Beginning;
    type Output = ();
}

/// The generation that the ranks start from, and the number with which they go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Beginning {
    pub(super) base: Option<u64>,
    pub(super) fallbacks: BTreeSet<u64>,
    pub(super) next: u64,
}
