//! The effects around what is decided: files, clocks, other ranks.

mod coordination;
mod files;
mod quarantine;
mod restore;
mod save;
mod store;
mod store_error;

pub use coordination::{Alone, Coordination, CoordinationError, SharedDirectory};
pub use files::{Entry, EntryKind, Files, RealFiles};
pub use restore::{Restored, restore_all};
pub use save::Save;
pub use store::{Store, StoreOptions};
pub use store_error::StoreError;
