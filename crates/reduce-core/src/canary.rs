//! Known bugs, which a test puts back one by one: a simulation that does not find them is broken itself.
//!
//! Without the feature `canaries` none of them is in the code.

/// A bug. Each was one of this crate or of one before it, or a sentence of the design forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// An agent says that its rank is lost before it says what it has inherited.
    DepartureFirst,
    /// A chunk that comes before its row is forgotten.
    EarlyChunkForgotten,
    /// A grant that comes before its row is forgotten.
    EarlyGrantForgotten,
    /// A worker gives up an older plan, although that keeps chunks.
    KeptPlanForgotten,
    /// The seat's own site lets go of its contribution before any other site has heard the end.
    LetGoFirst,
    /// A new seat plans with contributions of sites that were lost while it asked.
    LostSiteAsked,
    /// A new seat does not ask the root which shares it has.
    MergedForgotten,
    /// A new seat plans members again which the root has in a share.
    MergedPlannedAgain,
    /// A chunk counts as merged when the fold has ended, and not when it begins.
    MergedTooLate,
    /// A worker follows the plans of an older seat.
    OldTermFollowed,
    /// A plan that was made ahead is followed whatever the call is.
    PlanAheadOfAnyCall,
    /// Messages that a relay has not carried when it is lost are not sent again.
    RelayTrusted,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::DepartureFirst,
        Self::EarlyChunkForgotten,
        Self::EarlyGrantForgotten,
        Self::KeptPlanForgotten,
        Self::LetGoFirst,
        Self::LostSiteAsked,
        Self::MergedForgotten,
        Self::MergedPlannedAgain,
        Self::MergedTooLate,
        Self::OldTermFollowed,
        Self::PlanAheadOfAnyCall,
        Self::RelayTrusted,
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
