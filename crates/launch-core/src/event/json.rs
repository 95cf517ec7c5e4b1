//! The data of events in the form in which they are serialized.

use core::time::Duration;

use ropewalk_membership::{Cause, Departure};
use ropewalk_names::Rank;
use serde::{Serialize, Serializer};

use crate::{outcome::JobOutcome, restart::Attempt, verdict::Failure};

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
        exit_code: Option<i32>,
        signal: Option<i32>,
    }
    let (exit_code, signal) = match departure.cause {
        Cause::Exited(code) => (Some(code), None),
        Cause::Signalled(signal) => (None, Some(signal)),
        _ => (None, None),
    };
    let fields = Fields {
        rank: departure.rank,
        cause: departure.cause.to_string(),
        exit_code,
        signal,
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

pub(super) fn outcome<S: Serializer>(outcome: &JobOutcome, serializer: S) -> Result<S::Ok, S::Error> {
    let end = End {
        exit_code: outcome.exit_code(),
        verdict: outcome.to_string(),
    };
    end.serialize(serializer)
}

pub(super) fn attempt<S: Serializer>(attempt: &Attempt, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields {
        attempt: u32,
        after_s: f64,
        #[serde(flatten)]
        end: End,
    }
    let fields = Fields {
        attempt: attempt.number,
        after_s: attempt.lasted.as_secs_f64(),
        end: End {
            exit_code: attempt.verdict.exit_code(),
            verdict: attempt.verdict.to_string(),
        },
    };
    fields.serialize(serializer)
}

#[derive(Serialize)]
struct End {
    exit_code: i32,
    verdict: String,
}
