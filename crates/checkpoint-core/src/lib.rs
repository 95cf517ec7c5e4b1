//! When to save a long computation so that failures cost least.
//!
//! A computation that loses all since its last save at each failure has to choose: to save often costs time, to save
//! seldom loses more. Failures come at random, on average one each *mean time between failures* (MTBF), and may strike
//! while the program computes, saves or restores. From that follow the best time between two saves
//! ([`optimal_interval`]) and, since a program can save only at the end of a time step, the best step to do it at
//! ([`Policy`]). The model is that of "Checkpoint period optimization for application development frameworks of
//! computational fluid dynamics" (the paper); where this crate does better than its rule, the item says so.
//!
//! All times are in seconds, and the caller passes the time in: this crate reads no clock, opens no file and draws no
//! random number. The crate `ropewalk-checkpoint` adds the files, the clock and the other ranks.
//!
//! # Examples
//! ```
//! use ropewalk_checkpoint_core::{Costs, Moment, Policy, Rate};
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
//! # Ok::<(), ropewalk_checkpoint_core::CostsError>(())
//! ```

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

mod advisor;
mod costs;
mod equal_steps;
mod failure_log;
mod generation;
mod interval;
mod journal;
mod manifest;
mod named_state;
pub mod partner;
mod plan;
mod policy;
mod redistribution;
mod rehearsal;
mod state_plan;
mod supervision;
mod timestamp;
mod two_levels;
mod two_levels_in_steps;
mod uploads;

pub use advisor::{Advice, Advisor, AdvisorOptions, FastLevel, Level, MTBF_AT_FIRST, Mtbf};
pub use costs::{Costs, CostsError};
pub use failure_log::{FailureLog, FailureLogError, MtbfEstimate};
pub use generation::{
    Choice, Held, Holdings, KEEP_MIN, Restarts, choose, choose_any, of_other_ranks, retirable,
};
pub use interval::{daly_first_order, daly_higher_order, optimal_interval, young};
pub use journal::{COMMAND_BITS, Failing, History, Note, Record, Totals};
pub use manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestError, Place, SavedFile, is_safe};
pub use named_state::{
    STATE_ALIGNMENT, STATE_HEADER_MAX, STATE_PREFIX, StateEntry, StateHeader, StateHeaderError, StateMismatch,
};
pub use plan::Plan;
pub use policy::{Decision, FixedSeconds, FixedSteps, Moment, Nearest, Paper, Policy, Rate, Reason};
pub use redistribution::{RedistributionError, Transfer, redistribute};
pub use rehearsal::{Rehearsal, Rehearsed};
pub use state_plan::{EntrySource, PartitionError, SavedPart, check_partitions, plan_restore};
pub use supervision::{
    Account, AttemptEnd, LastWord, LastWords, PastAttempt, Progress, Supervision, SupervisionOptions,
};
pub use two_levels::TwoLevels;
pub use two_levels_in_steps::TwoLevelsInSteps;
pub use uploads::{UploadAction, Uploads};
