//! The table of PMI-1's commands. Encoder, decoder and documentation follow from it.

use bstr::BString;
use thiserror::Error;

use crate::{LINE_SIZE_MAX, line::Attributes};

/// One direction of the protocol: each command with the name it has on the wire and its attributes in the order
/// in which they are written. An `Option` may be absent.
macro_rules! commands {
    (
        $(#[$doc:meta])*
        enum $name:ident {
            $(
                $(#[$variant_doc:meta])*
                $variant:ident = $command:literal {
                    $( $(#[$field_doc:meta])* $field:ident: $type:ty = $key:literal, )*
                }
            )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $(
                $(#[$variant_doc])*
                #[doc = concat!("\n\nOn the wire: `cmd=", $command, $(" ", $key, "=..",)* "`")]
                $variant { $( $(#[$field_doc])* $field: $type, )* },
            )*
        }

        impl $name {
            /// Each command of the table with the keys of its attributes.
            pub const COMMANDS: &[(&str, &[&str])] = &[ $( ($command, &[$($key),*]), )* ];

            /// The command's name on the wire.
            pub fn name(&self) -> &'static str {
                match self { $( Self::$variant { .. } => $command, )* }
            }

            /// The line that says this, with its end.
            ///
            /// # Errors
            /// If the line would be too long, or a value would end it early.
            pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
                let mut line = Line(format!("cmd={}", self.name()).into_bytes());
                match self {
                    $( Self::$variant { $($field),* } => { $( $field.write($key, &mut line); )* } )*
                }
                line.finish()
            }

            /// What a line without its end says. Attributes that are not in the table are ignored.
            ///
            /// # Errors
            /// If it does not begin with a command of the table, or an attribute that must be there is not
            /// or is no number where it has to be one.
            pub fn decode(line: &[u8]) -> Result<Self, DecodeError> {
                let attributes = Attributes::parse(line);
                match attributes.first("cmd").ok_or(DecodeError::NoCommand)? {
                    $(
                        command if command == $command.as_bytes() => Ok(Self::$variant {
                            $(
                                $field: Attribute::read(attributes.value($key)).ok_or(
                                    DecodeError::Attribute { command: $command, key: $key },
                                )?,
                            )*
                        }),
                    )*
                    command => Err(DecodeError::UnknownCommand { command: command.into() }),
                }
            }
        }
    };
}

commands! {
    /// What a client asks.
    enum Request {
        /// End the whole job with this exit code. Not answered.
        Abort = "abort" {
            /// The job's exit code.
            exit_code: i32 = "exitcode",
            /// Why (PMI 1.2).
            message: Option<BString> = "message",
        }
        /// Wait for all processes of the group.
        BarrierIn = "barrier_in" {
            /// A part of the group (PMI 1.2).
            group: Option<BString> = "group",
        }
        /// The process is done with PMI.
        Finalize = "finalize" {}
        /// What was put under a key?
        Get = "get" {
            /// The key-value space.
            kvsname: BString = "kvsname",
            /// The key.
            key: BString = "key",
        }
        /// Which part of an MPMD program is this?
        GetAppnum = "get_appnum" {}
        /// How long may names, keys and values be?
        GetMaxes = "get_maxes" {}
        /// What is the process group's key-value space called?
        GetMyKvsname = "get_my_kvsname" {}
        /// How many processes could there be?
        GetUniverseSize = "get_universe_size" {}
        /// The first message.
        Init = "init" {
            /// The major version the client wants to speak.
            version: u32 = "pmi_version",
            /// The minor version.
            subversion: u32 = "pmi_subversion",
        }
        /// Which port was published under a name?
        LookupName = "lookup_name" {
            /// The name.
            service: BString = "service",
        }
        /// Make a port known under a name.
        PublishName = "publish_name" {
            /// The name.
            service: BString = "service",
            /// The port.
            port: BString = "port",
        }
        /// Keep a value under a key.
        Put = "put" {
            /// The key-value space.
            kvsname: BString = "kvsname",
            /// The key.
            key: BString = "key",
            /// The value.
            value: BString = "value",
        }
        /// Forget a published name.
        UnpublishName = "unpublish_name" {
            /// The name.
            service: BString = "service",
        }
    }
}

commands! {
    /// What a server answers. `rc` is 0 when all went well, and absent means 0.
    enum Response {
        /// To [`Request::GetAppnum`].
        Appnum = "appnum" {
            /// The index of the MPMD segment.
            appnum: i32 = "appnum",
        }
        /// To [`Request::BarrierIn`], when all are there.
        BarrierOut = "barrier_out" {
            /// Not 0 if the barrier can never complete.
            rc: Option<i32> = "rc",
            /// Why not.
            message: Option<BString> = "msg",
        }
        /// To [`Request::Finalize`].
        FinalizeAck = "finalize_ack" {}
        /// To [`Request::Get`].
        GetResult = "get_result" {
            /// Not 0 if there is no such key.
            rc: Option<i32> = "rc",
            /// In words.
            message: Option<BString> = "msg",
            /// The value.
            value: Option<BString> = "value",
        }
        /// To [`Request::LookupName`].
        LookupResult = "lookup_result" {
            /// The port.
            port: Option<BString> = "port",
            /// `ok`, or anything else for failure.
            info: Option<BString> = "info",
            /// Not 0 if there is no such name.
            rc: Option<i32> = "rc",
            /// In words.
            message: Option<BString> = "msg",
        }
        /// To [`Request::GetMaxes`]: sizes in bytes.
        Maxes = "maxes" {
            /// Of a key-value space's name.
            kvsname_max: u32 = "kvsname_max",
            /// Of a key.
            key_max: u32 = "keylen_max",
            /// Of a value.
            value_max: u32 = "vallen_max",
        }
        /// To [`Request::GetMyKvsname`].
        MyKvsname = "my_kvsname" {
            /// The name.
            kvsname: BString = "kvsname",
        }
        /// To [`Request::PublishName`].
        PublishResult = "publish_result" {
            /// `ok`, or anything else for failure.
            info: Option<BString> = "info",
            /// Not 0 if the name is taken.
            rc: Option<i32> = "rc",
            /// In words.
            message: Option<BString> = "msg",
        }
        /// To [`Request::Put`].
        PutResult = "put_result" {
            /// Not 0 if the value was not taken.
            rc: Option<i32> = "rc",
            /// In words.
            message: Option<BString> = "msg",
        }
        /// To [`Request::Init`].
        ResponseToInit = "response_to_init" {
            /// The major version the server speaks.
            version: u32 = "pmi_version",
            /// The minor version.
            subversion: u32 = "pmi_subversion",
            /// Not 0 if the versions do not fit together.
            rc: Option<i32> = "rc",
        }
        /// To a block of `mcmd=spawn`.
        SpawnResult = "spawn_result" {
            /// Not 0 if nothing was started.
            rc: Option<i32> = "rc",
            /// Why not.
            message: Option<BString> = "msg",
        }
        /// To [`Request::GetUniverseSize`].
        UniverseSize = "universe_size" {
            /// How many processes there could be, -1 if nobody knows.
            size: i32 = "size",
        }
        /// To [`Request::UnpublishName`].
        UnpublishResult = "unpublish_result" {
            /// `ok`, or anything else for failure.
            info: Option<BString> = "info",
            /// Not 0 if there is no such name.
            rc: Option<i32> = "rc",
            /// In words.
            message: Option<BString> = "msg",
        }
    }
}

/// Why a message cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A value holds a newline or a NUL.
    #[error("a value holds a newline or a NUL, which PMI-1 cannot carry; encode it, for example in hex")]
    Character,
    /// The line would be longer than [`LINE_SIZE_MAX`].
    #[error("the message takes {size} bytes, more than the {LINE_SIZE_MAX} of a PMI-1 line")]
    TooLong {
        /// Its size in bytes.
        size: usize,
    },
}

/// Why a line is no message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// An attribute that the command needs is missing or malformed.
    #[error("the PMI-1 command {command} needs an attribute {key}, which is missing or malformed")]
    Attribute {
        /// The command.
        command: &'static str,
        /// The attribute's key.
        key: &'static str,
    },
    /// The line does not begin with `cmd=`.
    #[error("a PMI-1 message begins with \"cmd=\"")]
    NoCommand,
    /// The command is not in the table.
    #[error("{command:?} is no PMI-1 command of this direction")]
    UnknownCommand {
        /// What stands there.
        command: BString,
    },
}

/// A line being written.
struct Line(Vec<u8>);

impl Line {
    fn attribute(&mut self, key: &str, value: &[u8]) {
        self.0.push(b' ');
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        self.0.extend_from_slice(value);
    }

    fn finish(mut self) -> Result<Vec<u8>, EncodeError> {
        if self.0.iter().any(|&byte| byte == b'\n' || byte == 0) {
            return Err(EncodeError::Character);
        }
        self.0.push(b'\n');
        match self.0.len() {
            size if size > LINE_SIZE_MAX => Err(EncodeError::TooLong { size }),
            _ => Ok(self.0),
        }
    }
}

/// What may stand as a field in the table.
trait Attribute: Sized {
    /// The value from the wire; `None` if it is missing or malformed.
    fn read(value: Option<&[u8]>) -> Option<Self>;
    fn write(&self, key: &str, line: &mut Line);
}

impl Attribute for BString {
    fn read(value: Option<&[u8]>) -> Option<Self> {
        value.map(Self::from)
    }

    fn write(&self, key: &str, line: &mut Line) {
        line.attribute(key, self);
    }
}

impl<T: Attribute> Attribute for Option<T> {
    fn read(value: Option<&[u8]>) -> Option<Self> {
        match value {
            Some(value) => T::read(Some(value)).map(Some),
            None => Some(None),
        }
    }

    fn write(&self, key: &str, line: &mut Line) {
        if let Some(value) = self {
            value.write(key, line);
        }
    }
}

macro_rules! number_attribute {
    ($($type:ty),*) => { $(
        impl Attribute for $type {
            fn read(value: Option<&[u8]>) -> Option<Self> {
                std::str::from_utf8(value?).ok()?.trim().parse().ok()
            }

            fn write(&self, key: &str, line: &mut Line) {
                line.attribute(key, self.to_string().as_bytes());
            }
        }
    )* };
}

number_attribute!(i32, u32);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Both directions of the table say what they mean: what is written reads as the same.
    #[test]
    fn messages_survive_the_wire() {
        let put = Request::Put {
            kvsname: "kvs".into(),
            key: "-bcast-1-0".into(),
            value: "segments=3".into(),
        };
        let line = put.encode().unwrap();
        assert_eq!(line, b"cmd=put kvsname=kvs key=-bcast-1-0 value=segments=3\n");
        assert_eq!(Request::decode(&line[..line.len() - 1]), Ok(put));

        let result = Response::LookupResult {
            port: Some("p".into()),
            info: Some("ok".into()),
            rc: Some(0),
            message: None,
        };
        let line = result.encode().unwrap();
        assert_eq!(line, b"cmd=lookup_result port=p info=ok rc=0\n");
        assert_eq!(Response::decode(&line[..line.len() - 1]), Ok(result));
    }

    /// "Unknown keys are ignored by all clients", and Slurm's order of attributes is as good as Hydra's.
    #[test]
    fn order_and_unknown_attributes_do_not_matter() {
        assert_eq!(
            Response::decode(b"cmd=maxes rc=0 vallen_max=3 kvsname_max=1 keylen_max=2"),
            Ok(Response::Maxes {
                kvsname_max: 1,
                key_max: 2,
                value_max: 3,
            })
        );
    }

    /// What is not in the table, or lacks what it needs, is named.
    #[test]
    fn malformed_messages_are_named() {
        assert_eq!(Request::decode(b"GET / HTTP/1.1"), Err(DecodeError::NoCommand));
        assert_eq!(
            Request::decode(b"key=1 cmd=finalize"),
            Err(DecodeError::NoCommand)
        );
        assert_eq!(
            Request::decode(b"cmd=dance"),
            Err(DecodeError::UnknownCommand {
                command: "dance".into()
            })
        );
        assert_eq!(
            Request::decode(b"cmd=abort exitcode=seven"),
            Err(DecodeError::Attribute {
                command: "abort",
                key: "exitcode"
            })
        );
    }

    /// "S must keep every response line <= 1023 bytes": a longer one is an error, as is a value that would end
    /// the line.
    #[test]
    fn lines_that_no_client_could_read_are_not_written() {
        let kvsname = |value: &[u8]| Response::MyKvsname {
            kvsname: value.into(),
        };
        let overhead = kvsname(b"").encode().unwrap().len();
        assert!(kvsname(&vec![b'x'; LINE_SIZE_MAX - overhead]).encode().is_ok());
        assert_eq!(
            kvsname(&vec![b'x'; LINE_SIZE_MAX - overhead + 1]).encode(),
            Err(EncodeError::TooLong {
                size: LINE_SIZE_MAX + 1
            })
        );
        assert_eq!(kvsname(b"a\nb").encode(), Err(EncodeError::Character));
    }

    proptest! {
        /// Garbage is an error or a message, never a panic; and a message reads as itself when written again.
        #[test]
        fn garbage_never_panics(command in 0..20_usize, tail in "( ?[a-z_]{1,8}=?[ -~]{0,12}){0,6}") {
            let names = Request::COMMANDS.iter().chain(Response::COMMANDS);
            let name = names.cycle().nth(command).map_or("", |(name, _)| name);
            let line = format!("cmd={name} {tail}");
            if let Ok(request) = Request::decode(line.as_bytes()) {
                let again = request.encode().unwrap();
                prop_assert_eq!(Request::decode(&again[..again.len() - 1]), Ok(request));
            }
            let _ = Response::decode(line.as_bytes());
        }
    }
}
