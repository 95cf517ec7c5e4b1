//! Errors between a process and its process manager.

use std::{io, time::Duration};

use bstr::BString;
use thiserror::Error;

use ropewalk_pmi::{ClientCoreError, DecodeError, EncodeError, MessageError};

/// An error between a process and its process manager.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The process manager's answer is not understood.
    #[error("the process manager's answer is not understood")]
    Answer(#[from] ClientCoreError),
    /// The process manager closed the connection.
    #[error("the process manager closed the PMI connection")]
    Closed,
    /// `PMI_FD` does not name an open socket.
    #[error("PMI_FD={descriptor} names no open socket; was it closed by a wrapper around the program?")]
    Descriptor {
        /// The descriptor's number.
        descriptor: u32,
        /// The error of the system.
        source: io::Error,
    },
    /// The request does not fit PMI.
    #[error("the request cannot be sent")]
    Encode(#[from] EncodeError),
    /// A variable does not hold what it must.
    #[error("{variable}={text:?} is not what a process manager sets")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// Its value.
        text: String,
    },
    /// The operating system refused.
    #[error("the PMI connection failed")]
    Io(#[from] io::Error),
    /// The process manager that `PMI_PORT` names is not there.
    #[error("there is no process manager at PMI_PORT={port}")]
    Port {
        /// Where it should be.
        port: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The process manager says no.
    #[error("the process manager refused {command}: {message} (rc={rc})")]
    Refused {
        /// The name of the request.
        command: &'static str,
        /// The process manager's code.
        rc: i32,
        /// Its words.
        message: BString,
    },
    /// A key, or a value as it travels, that not every process manager carries.
    #[error(
        "{text:?} is too long for PMI; a value may have 674 bytes in PMI-1 and 1024 in PMI-2, where what is not \
         plain visible ASCII takes three, and a key 63, all of them plain"
    )]
    Text {
        /// The text.
        text: String,
    },
    /// No answer in time.
    #[error("the process manager did not answer {command} within {timeout:?}")]
    Timeout {
        /// The name of the request.
        command: &'static str,
        /// How long the wait was.
        timeout: Duration,
    },
    /// An answer to something else.
    #[error("the process manager answered {answer} to {command}")]
    Unexpected {
        /// The name of the request.
        command: &'static str,
        /// The name of the answer.
        answer: &'static str,
    },
}

impl From<DecodeError> for ClientError {
    fn from(error: DecodeError) -> Self {
        Self::Answer(error.into())
    }
}

impl From<MessageError> for ClientError {
    fn from(error: MessageError) -> Self {
        Self::Answer(error.into())
    }
}
