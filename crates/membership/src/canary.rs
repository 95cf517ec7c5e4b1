//! Known bugs, which a test puts back one by one: a simulation that does not find them is broken itself.
//!
//! Without the feature `canaries` none of them is in the code.

/// A bug of an agreement on views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A proposer proposes its own view, whatever was accepted before.
    AcceptedForgotten,
    /// Each half of a view decides.
    EitherHalfDecides,
    /// A member accepts proposals of attempts that are older than the one it promised to take part in.
    PromiseBroken,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::AcceptedForgotten,
        Self::EitherHalfDecides,
        Self::PromiseBroken,
    ];
}

#[cfg(feature = "canaries")]
thread_local! {
    static SINGING: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
}

/// Puts a bug back on this thread, or takes it out.
#[cfg(feature = "canaries")]
pub fn put_back(canary: Option<Canary>) {
    SINGING.set(canary);
}

/// Says if a bug is put back.
#[cfg(feature = "canaries")]
pub fn is_put_back(canary: Canary) -> bool {
    SINGING.get() == Some(canary)
}

/// Says if a bug is put back.
#[cfg(not(feature = "canaries"))]
pub const fn is_put_back(_: Canary) -> bool {
    false
}
