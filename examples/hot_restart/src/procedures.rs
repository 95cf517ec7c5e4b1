//! The procedures of the server.

use ropewalk_rpc::{Procedure, RegionHandle};

use crate::ledger::Deposit;

/// Counts a deposit, if it was not counted before.
pub(crate) struct Put;

impl Procedure for Put {
    const NAME: &'static str = "hot_restart.put";
    type Input = Deposit;
    type Output = ();
}

/// Tells the sum of all deposits.
pub(crate) struct Balance;

impl Procedure for Balance {
    const NAME: &'static str = "hot_restart.balance";
    type Input = ();
    type Output = u64;
}

/// Asks the server to count no more, and for its ledger: encoded, in a region to be pulled.
pub(crate) struct HandOver;

impl Procedure for HandOver {
    const NAME: &'static str = "hot_restart.hand_over";
    type Input = ();
    type Output = RegionHandle;
}

/// Tells the server that the caller has its ledger and takes its place: it ends.
pub(crate) struct Leave;

impl Procedure for Leave {
    const NAME: &'static str = "hot_restart.leave";
    type Input = ();
    type Output = ();
}
