//! The effects around what is decided: files, clocks, other ranks.

mod coordination;
mod files;
mod journal_file;
mod quarantine;
mod restore;
mod run_advisor;
mod save;
mod store;
mod store_error;

pub use coordination::{Alone, Coordination, CoordinationError, SharedDirectory};
pub use files::{Entry, EntryKind, Files, RealFiles};
pub use journal_file::JournalFile;
pub use restore::{Restored, restore_all};
pub use run_advisor::{RunAdvisor, START_VARIABLE};
pub use save::Save;
pub use store::{Store, StoreOptions};
pub use store_error::StoreError;
