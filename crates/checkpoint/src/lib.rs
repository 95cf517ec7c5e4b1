//! When to save a long computation so that failures cost least.
//!
//! A computation that loses all since its last save at each failure has to choose: to save often costs time, to save
//! seldom loses more. Failures come at random, on average one each *mean time between failures* (MTBF), and may strike
//! while the program computes, saves or restores. From that follow the best time between two saves
//! ([`optimal_interval`]) and, since a program can save only at the end of a time step, the best step to do it at
//! ([`Policy`]). The model is that of "Checkpoint period optimization for application development frameworks of
//! computational fluid dynamics" (the paper); where this crate does better than its rule, the item says so.
//!
//! A [`Store`] keeps the saves, and never restores one that is torn, changed, or not there on all ranks.
//!
//! All times are in seconds. The crate `ropewalk-checkpoint-core` decides, without a clock or a file; its
//! items are here too.
//!
//! # Examples
//! ```
//! use ropewalk_checkpoint::{Costs, Moment, Policy, Rate};
//!
//! let costs = Costs::new(0.6, 0.6, 25.0)?;
//! assert_eq!(format!("{:.3}", costs.interval()), "5.085");
//! // Steps of two seconds: it is cheaper to save after three of them than after two.
//! let after = |steps: u32| Moment {
//!     elapsed: 2.0 * f64::from(steps),
//!     next_step: 2.0,
//!     steps: steps.into(),
//!     remaining: None,
//!     equal_steps: true,
//! };
//! assert!(!Rate.decide(&costs, &after(2)).save);
//! assert!(Rate.decide(&costs, &after(3)).save);
//! # Ok::<(), ropewalk_checkpoint::CostsError>(())
//! ```

#![forbid(unsafe_code)]

mod announcements;
mod any_ranks;
#[cfg(feature = "object-store")]
mod archive;
#[cfg(any(feature = "object-store", feature = "partner"))]
mod arrival;
mod background;
mod coordination;
mod copied;
#[cfg(any(feature = "object-store", feature = "partner"))]
mod depot;
mod environment;
mod files;
mod follower;
mod journal_file;
mod named;
#[cfg(feature = "partner")]
mod partners;
mod quarantine;
mod rank_files;
mod restore;
mod retirement;
mod run_advisor;
mod save;
mod saver_lock;
mod slowest;
mod store;
mod store_error;
mod supervisor;
mod survey;
#[cfg(feature = "object-store")]
mod uploader;

pub use ropewalk_checkpoint_core::*;

#[cfg(feature = "object-store")]
pub use archive::{Archive, ArchiveError};
pub use background::{BackgroundStore, Ended};
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
pub use named::{Named, RunError, RunOptions, SavedRun, SavedValue, StateElement};
#[cfg(feature = "partner")]
pub use partners::{
    Agreed, HostJournals, PartnerError, Partners, PartnersError, Service, ServiceOptions, attempt_end,
    history_of_host, partner_main,
};
pub use restore::{Restored, newest_whole, open_all, restore_all};
pub use run_advisor::{JOURNAL, RunAdvisor};
pub use save::Save;
pub use store::{Store, StoreOptions};
pub use store_error::StoreError;
pub use supervisor::{Found, Supervisor, SupervisorError, Variables};
pub use survey::{State, Survey, SurveyError, Surveyed, quarantined, survey};
#[cfg(feature = "object-store")]
pub use uploader::Uploader;
