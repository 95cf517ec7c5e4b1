//! The requests of the measuring process to the other one.

use ropewalk_rpc::{Amount, BulkHandle, ByteBuf, Pipeline, Procedure, RegionHandle};
use serde::{Deserialize, Serialize};

use super::floors::{Floor, FloorAt};

/// Which memory the target exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Memory {
    /// That of its endpoint, which peers on the same host can map.
    Arena,
    /// That of its allocator.
    Heap,
}

/// How the target pulls what a client writes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Cut {
    /// How many buffers are in flight.
    pub(super) depth: u32,
    /// The bytes of each.
    pub(super) buffer: u32,
    /// Every byte is looked at, which takes longer than to move it.
    pub(super) is_checked: bool,
}

impl Cut {
    pub(super) fn pipeline(self) -> Pipeline {
        Pipeline {
            depth: Amount::Exactly(self.depth as usize),
            chunk: Amount::Exactly(self.buffer as usize),
        }
    }
}

/// The work of clients, each one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Work {
    /// Null calls.
    Call,
    /// Calls of [`Write`].
    Write,
}

/// The calls that clients have made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    /// How many calls of each client ended.
    pub(super) calls: Vec<u64>,
    pub(super) nanoseconds: u64,
}

/// Typed arguments, such as those of a write to a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arguments {
    pub(super) path: String,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) times: [u64; 2],
    pub(super) is_appended: bool,
}

macro_rules! procedures {
    ($($(#[$doc:meta])* $name:ident: $text:literal, $input:ty => $output:ty;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Procedure for $name {
            const NAME: &'static str = $text;
            type Input = $input;
            type Output = $output;
        }
    )*};
}

procedures! {
    /// Exposes filled memory, in place of what was exposed before.
    Expose: "bench.expose", (Memory, u64) => RegionHandle;
    /// Takes an array of numbers.
    Doubles: "bench.doubles", Vec<f64> => ();
    /// Is never answered.
    Hang: "bench.hang", () => ();
    /// Has clients work for so many nanoseconds.
    Load: "bench.load", (Work, u64) => Done;
    /// Does nothing.
    Null: "bench.null", () => ();
    /// Offers a floor.
    Offer: "bench.offer", Floor => FloorAt;
    /// How many calls of [`Hang`] are held.
    Held: "bench.held", () => u64;
    /// Takes bytes.
    Raw: "bench.raw", ByteBuf => ();
    /// Bytes of memory that the process has in use.
    Resident: "bench.resident", () => u64;
    /// Takes and fills that much memory, for good.
    Touch: "bench.touch", u64 => ();
    /// Takes typed arguments.
    Typed: "bench.typed", Arguments => ();
    /// Nanoseconds of processor time that the process has used.
    Usage: "bench.usage", () => u64;
    /// Pulls what the caller exposes. Returns how many bytes that were, or their sum if they are checked.
    Write: "bench.write", (BulkHandle, Cut) => u64;
}
