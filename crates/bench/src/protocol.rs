//! What the measuring process asks of the other one.

use ropewalk_rpc::{Procedure, RegionHandle};
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
    /// Is never answered.
    Hang: "bench.hang", () => ();
    /// Does nothing.
    Null: "bench.null", () => ();
    /// Offers a floor.
    Offer: "bench.offer", Floor => FloorAt;
    /// How many calls of [`Hang`] are held.
    Held: "bench.held", () => u64;
    /// Takes and fills that much memory, for good.
    Touch: "bench.touch", u64 => ();
    /// Nanoseconds of processor time that the process has used.
    Usage: "bench.usage", () => u64;
}
