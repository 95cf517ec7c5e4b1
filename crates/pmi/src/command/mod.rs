//! The table of PMI's commands. Encoder, decoder, documentation and the tests of them follow from it.
//!
//! Each command stands in the table once, with typed fields, and for each form in which it is spoken the name it
//! has there and the keys of its fields, in the order in which they are written.

mod attribute;
mod request;
mod response;
mod spawn;

use bstr::BString;
use thiserror::Error;

pub use attribute::Pairs;
pub use request::Request;
pub use response::Response;
pub use spawn::{Arguments, Spawn, SpawnBlocks, SpawnCommand, SpawnCommands, SpawnError};

use crate::{Form, wire::Attributes};

/// One row of the table: how a command looks in one form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The form.
    pub form: Form,
    /// The command's name there.
    pub name: &'static str,
    /// The keys of its attributes, in the order in which they are written.
    pub keys: &'static [&'static str],
}

/// One direction of the protocol. Behind the fields of each command stands how it is spoken: the form, the name,
/// and the keys; behind a `|` those that are understood too. A field that a form does not have is absent there.
macro_rules! commands {
    (
        $(#[$doc:meta])*
        enum $name:ident, last value $last:expr, {
            $(
                $(#[$variant_doc:meta])*
                $variant:ident { $( $(#[$field_doc:meta])* $field:ident: $type:ty, )* }
                => { $( $form:ident $command:literal
                        [ $( $attribute:ident = $key:literal $(| $alias:literal)* ),* ] ),* }
            )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $(
                $(#[$variant_doc])*
                $(
                    #[doc = concat!(
                        "\n\n", stringify!($form), ": `", $command, $(" ", $key, "=..",)* "`"
                    )]
                )*
                $variant { $( $(#[$field_doc])* $field: $type, )* },
            )*
        }

        impl $name {
            /// Each command of the table in each of its forms.
            pub const COMMANDS: &[$crate::command::Command] = &[ $( $(
                $crate::command::Command {
                    form: Form::$form,
                    name: $command,
                    keys: &[$($key),*],
                },
            )* )* ];

            /// The command's name in a form; `None` if it cannot be said there.
            pub fn name(&self, form: Form) -> Option<&'static str> {
                match self {
                    $( Self::$variant { .. } => match form {
                        $( Form::$form => Some($command), )*
                        #[allow(unreachable_patterns, reason = "some commands have all forms")]
                        _ => None,
                    }, )*
                }
            }

            /// Writes the message that says this behind what `out` holds. `thread` is the client's word for the
            /// thread that asks (`thrid`, in frames only).
            ///
            /// # Errors
            /// If the form does not know the command, the message would be too long, or a value would end it
            /// early. Nothing is written then.
            pub fn encode_into(
                &self,
                form: Form,
                thread: Option<&BStr>,
                out: &mut Vec<u8>,
            ) -> Result<(), EncodeError> {
                match self {
                    $( Self::$variant { $($field),* } => match form {
                        $( Form::$form => {
                            #[allow(unused_mut, reason = "some commands have no attributes")]
                            let mut writer = MessageWriter::new(out, form, $command, thread);
                            $( $attribute.write($key, &mut writer); )*
                            writer.finish()
                        } )*
                        #[allow(unreachable_patterns, reason = "some commands have all forms")]
                        _ => {
                            $( let _ = $field; )*
                            Err(EncodeError::Form { command: stringify!($variant), form })
                        }
                    }, )*
                }
            }

            /// The whole message that says this.
            ///
            /// # Errors
            /// As for [`encode_into`](Self::encode_into).
            pub fn encode(&self, form: Form, thread: Option<&BStr>) -> Result<Vec<u8>, EncodeError> {
                let mut message = Vec::new();
                self.encode_into(form, thread, &mut message)?;
                Ok(message)
            }

            /// Reads the command that a message holds. Attributes that are not in the table are ignored.
            ///
            /// # Errors
            /// If it does not begin with a command of the table, or an attribute that must be there is missing
            /// or malformed.
            pub fn decode(message: Message<'_>) -> Result<$crate::command::Decoded<Self>, DecodeError> {
                let attributes = Attributes::parse(message, $last);
                let command = attributes.command().ok_or(DecodeError::NoCommand)?;
                let form = attributes.form();
                let thread = $crate::command::thread_of(&attributes);
                $(
                    if false $( || (form == Form::$form && command == $command.as_bytes()) )* {
                        let mut spoken_as = "";
                        $( let mut $field: Option<$type> = None; )*
                        $( if form == Form::$form && command == $command.as_bytes() {
                            spoken_as = $command;
                            $(
                                $attribute = Some(
                                    Attribute::read(&attributes, &[$key $(, $alias)*]).ok_or(
                                        DecodeError::Attribute { command: $command, key: $key },
                                    )?,
                                );
                            )*
                        } )*
                        let _ = &mut spoken_as;
                        let command = Self::$variant { $(
                            $field: $field.or_else(Attribute::absent).ok_or(
                                DecodeError::Attribute { command: spoken_as, key: stringify!($field) },
                            )?,
                        )* };
                        return Ok($crate::command::Decoded { thread, command });
                    }
                )*
                Err(DecodeError::UnknownCommand { command: command.into(), thread })
            }
        }
    };
}
use commands;

/// A message that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded<C> {
    /// Which thread of the client asked, in the client's words: must be told it with the answer, byte by byte.
    pub thread: Option<BString>,
    /// The command: a request or a response.
    pub command: C,
}

/// Why a message cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A value holds a newline or a NUL.
    #[error("a value holds a newline or a NUL, which PMI-1 cannot carry; encode it, for example in hex")]
    Character,
    /// The form does not have the command.
    #[error("{command} cannot be said in a {form:?}")]
    Form {
        /// The command.
        command: &'static str,
        /// The form.
        form: Form,
    },
    /// The message would be longer than its form allows.
    #[error("the message takes {size} bytes, more than the {size_max} that are allowed")]
    TooLong {
        /// Its size in bytes.
        size: usize,
        /// The limit.
        size_max: usize,
    },
}

/// Why a message is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// An attribute that the command needs is missing or malformed.
    #[error("the PMI command {command} needs an attribute {key}, which is missing or malformed")]
    Attribute {
        /// The command.
        command: &'static str,
        /// The attribute's key.
        key: &'static str,
    },
    /// The message does not begin with its command.
    #[error("a PMI message begins with its command, \"cmd=\" or \"mcmd=\"")]
    NoCommand,
    /// The command is not in the table.
    #[error("{command:?} is no PMI command of this form and direction")]
    UnknownCommand {
        /// The name of the command in the message.
        command: BString,
        /// Who asked, if the client says so.
        thread: Option<BString>,
    },
}

/// Whose message it is: `thrid`, which only frames have.
fn thread_of(attributes: &Attributes<'_>) -> Option<BString> {
    if attributes.form() != Form::Frame {
        return None;
    }
    Some(attributes.value("thrid")?.into_owned().into())
}

#[cfg(test)]
mod tests;
