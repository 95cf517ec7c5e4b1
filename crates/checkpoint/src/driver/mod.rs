//! The effects around what is decided: files, clocks, other ranks.

mod announcements;
#[cfg(feature = "object-store")]
mod archive;
#[cfg(any(feature = "object-store", feature = "partner"))]
mod arrival;
mod coordination;
mod copied;
#[cfg(any(feature = "object-store", feature = "partner"))]
mod depot;
mod environment;
mod files;
mod follower;
mod journal_file;
#[cfg(feature = "partner")]
mod partner;
mod quarantine;
mod restore;
mod retirement;
mod run_advisor;
mod save;
mod saver_lock;
mod slowest;
mod store;
mod store_error;
mod survey;
#[cfg(feature = "object-store")]
mod uploader;

#[cfg(feature = "object-store")]
pub use archive::{Archive, ArchiveError};
pub use coordination::{Alone, Coordination, CoordinationError, SharedDirectory};
#[cfg(any(feature = "object-store", feature = "partner"))]
pub use depot::{Depot, PutAside};
pub use environment::{
    DIRECTORY_VARIABLE, Decided, GENERATION_VARIABLE, HOST_MTBF_VARIABLE, MTBF_DEFAULT_VARIABLE,
    MTBF_KNOWN_VARIABLE, MTBF_VARIABLE, NEXT_VARIABLE, RESTORE_STEP_VARIABLE, RESTORE_VARIABLE,
    START_VARIABLE, decided_of_job, default_mtbf_of_job, directory_of_job, host_mtbf_of_job, mtbf_of_job,
    start_of_job,
};
pub use files::{Entry, EntryKind, Files, RealFiles};
pub use follower::JournalFollower;
pub use journal_file::JournalFile;
#[cfg(feature = "partner")]
pub use partner::{PartnerError, Report, Service, ServiceOptions, history_of_host};
pub use restore::{Restored, newest_whole, open_all, restore_all};
pub use run_advisor::{JOURNAL, RunAdvisor};
pub use save::Save;
pub use store::{Store, StoreOptions};
pub use store_error::StoreError;
pub use survey::{State, Survey, SurveyError, Surveyed, quarantined, survey};
#[cfg(feature = "object-store")]
pub use uploader::Uploader;
