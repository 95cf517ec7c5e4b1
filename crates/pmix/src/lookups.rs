//! Requests for published values, some of which wait until the values are there.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ropewalk_launch_core::pmix::Process;
use serde::{Deserialize, Serialize};

use crate::{
    meetings::MeetingReply,
    sys::{
        replies::LookupReply,
        types::{data_type, status},
        values::{Item, Published},
    },
};

/// A value as the root of the job keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) owner: (String, u32),
    pub(crate) value: KeptValue,
    /// Who reads it first takes it away.
    pub(crate) is_taken_by_reader: bool,
}

impl Kept {
    /// The sign of a process group that has met.
    pub(crate) fn sign() -> Self {
        Self {
            owner: (String::new(), 0),
            value: KeptValue::Bytes(Vec::new()),
            is_taken_by_reader: false,
        }
    }
}

/// A value that can be published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeptValue {
    Text(String),
    Bytes(Vec<u8>),
    Number { data_type: u16, bits: u64 },
}

impl KeptValue {
    pub(crate) fn of(item: Item) -> Option<Self> {
        Some(match item {
            Item::Text(text) => Self::Text(text),
            Item::Bytes(bytes) => Self::Bytes(bytes),
            Item::Number { data_type, bits } => Self::Number { data_type, bits },
            Item::Rank(rank) => Self::Number {
                data_type: data_type::PROC_RANK,
                bits: rank.into(),
            },
            _ => return None,
        })
    }

    fn item(self) -> Item {
        match self {
            Self::Text(text) => Item::Text(text),
            Self::Bytes(bytes) => Item::Bytes(bytes),
            Self::Number { data_type, bits } => Item::Number { data_type, bits },
        }
    }
}

/// Who waits for values.
pub(crate) enum Reader {
    /// A process that looks them up.
    Process(LookupReply),
    /// Processes of several groups that connect: they wait for the others, and not for values.
    Meeting(MeetingReply),
}

/// A request for values under several keys.
pub(crate) struct Lookup {
    pub(crate) from: Process,
    reader: Reader,
    found: BTreeMap<String, Kept>,
    missing: Vec<String>,
    /// How many of the missing are being asked for.
    asking: usize,
    /// It waits until all are there.
    waits: bool,
    deadline: Instant,
    next: Instant,
    pause: Duration,
}

/// How long a request waits if it does not say for how long.
const PATIENCE: Duration = Duration::from_secs(600);
/// The pauses between two questions for what is not there yet.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

impl Lookup {
    pub(crate) fn new(
        from: Process,
        keys: Vec<String>,
        options: &[(String, Option<Item>)],
        reader: Reader,
        now: Instant,
    ) -> Self {
        let option = |wanted: &str| {
            let found = options.iter().find(|(key, _)| key == wanted);
            match found {
                Some((_, Some(Item::Number { bits, .. }))) => Some(*bits as u32),
                _ => None,
            }
        };
        let is_meeting = matches!(reader, Reader::Meeting(_));
        let waits = is_meeting || options.iter().any(|(key, _)| key == "pmix.wait");
        let patience = option("pmix.timeout").filter(|seconds| *seconds > 0);
        let patience = patience.map_or(PATIENCE, |seconds| Duration::from_secs(seconds.into()));
        Self {
            from,
            reader,
            found: BTreeMap::new(),
            asking: keys.len(),
            missing: keys,
            waits,
            deadline: now + patience,
            next: now,
            pause: PAUSE_MIN,
        }
    }

    /// The keys to be asked for at once.
    pub(crate) fn keys(&self) -> &[String] {
        &self.missing
    }

    /// The answer to a question for a key has come.
    pub(crate) fn handle_answer(&mut self, now: Instant, key: &str, kept: Option<Kept>) {
        self.asking = self.asking.saturating_sub(1);
        if let Some(kept) = kept {
            self.missing.retain(|missing| missing != key);
            self.found.insert(key.to_owned(), kept);
        }
        if self.asking == 0 {
            self.next = now + self.pause;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }

    /// When it is to be looked at again; `None` while it is being asked for.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.asking == 0).then_some(self.next)
    }

    /// Returns true if it can be answered, or waits no longer.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.asking == 0 && (self.missing.is_empty() || !self.waits || now >= self.deadline)
    }

    /// Its missing keys are asked for again.
    pub(crate) fn ask_again(&mut self) -> Vec<String> {
        self.asking = self.missing.len();
        self.missing.clone()
    }

    pub(crate) fn answer(self) {
        let status = match (self.missing.is_empty(), self.waits, self.found.is_empty()) {
            (true, ..) => status::SUCCESS,
            (false, true, _) => status::TIMEOUT,
            (false, false, true) => status::NOT_FOUND,
            (false, false, false) => status::SUCCESS,
        };
        let mut published = Published::default();
        for (key, kept) in self.found {
            let (namespace, rank) = kept.owner;
            let owner = Process {
                namespace,
                rank: Some(rank),
            };
            published.push(&owner, &key, &kept.value.item());
        }
        match self.reader {
            Reader::Process(reply) => reply.send(status, &mut published),
            Reader::Meeting(reply) => reply.send(status),
        }
    }
}
