//! Where an answer goes.

use bstr::BString;

use super::{BridgeToken, ConnectionId};
use crate::Form;

/// A request whose answer is owed.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) connection: ConnectionId,
    pub(super) form: Form,
    /// The client's word for its thread, to be repeated.
    pub(super) thread: Option<BString>,
    /// The word of a fence of a part of the group, to be repeated.
    pub(super) tag: Option<BString>,
}

/// Who waits in a fence.
#[derive(Clone, Debug)]
pub(super) enum FenceWaiter {
    /// A request of a process.
    Request(Waiter),
    /// A bridge, for a process.
    Bridge(BridgeToken),
}
