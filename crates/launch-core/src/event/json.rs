//! The data of events in the form in which they are serialized.

use core::time::Duration;

use ropewalk_membership::Departure;
use ropewalk_names::Rank;
use serde::{Serialize, Serializer};

use crate::verdict::{Attempt, Failure, Verdict};

pub(super) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    time.as_secs_f64().serialize(serializer)
}

pub(super) fn seconds_if_any<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}

pub(super) fn departure<S: Serializer>(departure: &Departure, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields {
        rank: Rank,
        cause: String,
    }
    let fields = Fields {
        rank: departure.rank,
        cause: departure.cause.to_string(),
    };
    fields.serialize(serializer)
}

pub(super) fn failure<S: Serializer>(failure: &Failure, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields<'a> {
        rank: Rank,
        host: &'a str,
        cause: String,
    }
    let fields = Fields {
        rank: failure.rank,
        host: &failure.host,
        cause: failure.to_string(),
    };
    fields.serialize(serializer)
}

pub(super) fn verdict<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    Outcome::of(verdict).serialize(serializer)
}

pub(super) fn attempt<S: Serializer>(attempt: &Attempt, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields {
        attempt: u32,
        after_s: f64,
        #[serde(flatten)]
        outcome: Outcome,
    }
    let fields = Fields {
        attempt: attempt.number,
        after_s: attempt.lasted.as_secs_f64(),
        outcome: Outcome::of(&attempt.verdict),
    };
    fields.serialize(serializer)
}

#[derive(Serialize)]
struct Outcome {
    exit_code: i32,
    verdict: String,
}

impl Outcome {
    fn of(verdict: &Verdict) -> Self {
        Self {
            exit_code: verdict.exit_code(),
            verdict: verdict.to_string(),
        }
    }
}
