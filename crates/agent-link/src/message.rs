//! The messages: a tag of one byte, and a number of eight in little-endian order.
//!
//! | direction | tag | message | number |
//! |---|---|---|---|
//! | to the agent | 1 | `Hello` | bits 0 to 31 rank, 32 to 39 kind, 40 to 47 version, 48 to 63 directory |
//! | | 2 | `Steps` | steps done by this process |
//! | | 3 | `Committed` | the generation |
//! | | 4 | `Saved` | 0 |
//! | to the program | 1 | `Notice` | milliseconds left |
//! | | 2 | `KnownEnd` | milliseconds left |

use thiserror::Error;

/// The size of every message, in bytes.
pub const MESSAGE_SIZE: usize = 9;

/// The number of milliseconds of a [`ToProgram::Notice`] after which nobody ends the job by force.
pub const NO_END: u64 = u64::MAX;

/// The version of the messages; the two sides of a link have to agree on it.
const VERSION: u8 = 1;

/// Who is at the program's end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The advisor that decides when to save.
    Advisor,
    /// The store of one rank.
    Store {
        /// A hash of the directory, by which the stores that different ranks have of the same checkpoints are known.
        directory: u16,
    },
}

/// From a program to the agent of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToAgent {
    /// The first message: who is there.
    Hello {
        /// The rank in the job, as the agent has named it in the variable.
        rank: u32,
        /// The kind of program that connects.
        kind: Kind,
    },
    /// The program has done this many steps since it started. Not every step is told.
    Steps(u64),
    /// A store has committed this generation of its rank.
    Committed {
        /// The generation's number.
        generation: u64,
    },
    /// The save that a notice or a known end asked for is committed, as far as the advisor's process is concerned.
    Saved,
}

/// From the agent to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToProgram {
    /// The job will be ended: save at the end of the step if that fits.
    Notice {
        /// How long there is, in milliseconds; [`NO_END`] if the job is not ended before it has saved.
        left_ms: u64,
    },
    /// The job's time will be over then: make the last save so that it fits before.
    KnownEnd {
        /// How long there is, in milliseconds.
        left_ms: u64,
    },
}

/// A packet is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MessageError {
    /// It has another length than messages have.
    #[error("a message of {0} bytes came over an advisor link, where all have 9")]
    Size(usize),
    /// Its tag is unknown.
    #[error("the unknown message {0} came over an advisor link")]
    Tag(u8),
    /// Its number is none that its tag may have.
    #[error("the message {0} with the number {1:#x} came over an advisor link")]
    Number(u8, u64),
}

impl ToAgent {
    /// The bytes of the message.
    pub fn encode(self) -> [u8; MESSAGE_SIZE] {
        match self {
            Self::Hello { rank, kind } => {
                let (kind, directory) = match kind {
                    Kind::Advisor => (0, 0),
                    Kind::Store { directory } => (1, directory),
                };
                let [directory, version] = [u64::from(directory), u64::from(VERSION)];
                encode(1, directory << 48 | version << 40 | kind << 32 | u64::from(rank))
            }
            Self::Steps(steps) => encode(2, steps),
            Self::Committed { generation } => encode(3, generation),
            Self::Saved => encode(4, 0),
        }
    }

    /// The message of these bytes.
    ///
    /// # Errors
    /// If they are none.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (tag, number) = split(bytes)?;
        let wrong = MessageError::Number(tag, number);
        match tag {
            1 => {
                let directory = (number >> 48) as u16;
                let kind = match ((number >> 40) as u8, (number >> 32) as u8, directory) {
                    (VERSION, 0, 0) => Kind::Advisor,
                    (VERSION, 1, _) => Kind::Store { directory },
                    _ => return Err(wrong),
                };
                let rank = number as u32;
                Ok(Self::Hello { rank, kind })
            }
            2 => Ok(Self::Steps(number)),
            3 => Ok(Self::Committed { generation: number }),
            4 if number == 0 => Ok(Self::Saved),
            4 => Err(wrong),
            _ => Err(MessageError::Tag(tag)),
        }
    }
}

impl ToProgram {
    /// The bytes of the message.
    pub fn encode(self) -> [u8; MESSAGE_SIZE] {
        match self {
            Self::Notice { left_ms } => encode(1, left_ms),
            Self::KnownEnd { left_ms } => encode(2, left_ms),
        }
    }

    /// The message of these bytes.
    ///
    /// # Errors
    /// If they are none.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        match split(bytes)? {
            (1, left_ms) => Ok(Self::Notice { left_ms }),
            (2, left_ms) => Ok(Self::KnownEnd { left_ms }),
            (tag, _) => Err(MessageError::Tag(tag)),
        }
    }
}

fn encode(tag: u8, number: u64) -> [u8; MESSAGE_SIZE] {
    let mut bytes = [tag; MESSAGE_SIZE];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn split(bytes: &[u8]) -> Result<(u8, u64), MessageError> {
    let wrong = MessageError::Size(bytes.len());
    let (&tag, number) = bytes.split_first().ok_or(wrong)?;
    let number = number.try_into().map_err(|_| wrong)?;
    Ok((tag, u64::from_le_bytes(number)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every message comes out as it went in.
    #[test]
    fn messages_survive_the_way() {
        let to_agent = [
            ToAgent::Hello {
                rank: u32::MAX,
                kind: Kind::Store { directory: 0xfedc },
            },
            ToAgent::Hello {
                rank: 0,
                kind: Kind::Advisor,
            },
            ToAgent::Steps(1 << 40),
            ToAgent::Committed { generation: 17 },
            ToAgent::Saved,
        ];
        for message in to_agent {
            assert_eq!(ToAgent::parse(&message.encode()), Ok(message));
        }
        for left_ms in [0, 10_000, NO_END] {
            for message in [ToProgram::Notice { left_ms }, ToProgram::KnownEnd { left_ms }] {
                assert_eq!(ToProgram::parse(&message.encode()), Ok(message));
            }
        }
    }

    /// Other versions, kinds, tags and lengths are errors.
    #[test]
    fn other_bytes_are_no_messages() {
        let mut hello = ToAgent::Hello {
            rank: 1,
            kind: Kind::Advisor,
        }
        .encode();
        hello[6] = 2;
        assert!(matches!(ToAgent::parse(&hello), Err(MessageError::Number(1, _))));
        assert_eq!(ToAgent::parse(&[9; 9]), Err(MessageError::Tag(9)));
        assert_eq!(ToProgram::parse(&[]), Err(MessageError::Size(0)));
        assert_eq!(ToProgram::parse(&[1; 10]), Err(MessageError::Size(10)));
    }

    proptest! {
        /// Parsing never panics, and what it accepts is written the same way.
        #[test]
        fn what_is_parsed_is_written_alike(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            if let Ok(message) = ToAgent::parse(&bytes) {
                prop_assert_eq!(&message.encode()[..], &bytes[..]);
            }
            if let Ok(message) = ToProgram::parse(&bytes) {
                prop_assert_eq!(&message.encode()[..], &bytes[..]);
            }
        }
    }
}
