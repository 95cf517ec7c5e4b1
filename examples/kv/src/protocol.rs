//! The protocol between server and clients.

use bytes::Bytes;
use ropewalk_rpc::{BulkHandle, Procedure};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Values up to this many bytes travel in the calls.
pub const INLINE_MAX: usize = 4 << 10;
/// The longest key, in bytes.
pub(crate) const KEY_SIZE_MAX: usize = 1 << 10;

/// Stores a value, in place of an earlier one.
pub struct Put;

impl Procedure for Put {
    const NAME: &'static str = "kv.put";
    type Input = PutRequest;
    type Output = Result<(), Refusal>;
}

/// The key and the value that [`Put`] stores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutRequest {
    /// Under which key.
    pub key: String,
    /// The value.
    pub value: Value,
}

/// A value, or where it lies.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Value {
    /// The value itself.
    Inline(Bytes),
    /// To be pulled from here.
    Exposed(BulkHandle),
}

/// Why the server does not store a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Refusal {
    /// There is not enough room.
    #[error("the server has {free} bytes left, and the value needs {needed}")]
    Full {
        /// How many bytes it needs.
        needed: u64,
        /// How many there are.
        free: u64,
    },
    /// The key is too long.
    #[error("a key of {length} bytes is longer than the longest, {KEY_SIZE_MAX}")]
    KeyTooLong {
        /// Its length.
        length: u64,
    },
}

/// Gives the value of a key, if it has one.
pub struct Get;

impl Procedure for Get {
    const NAME: &'static str = "kv.get";
    type Input = String;
    type Output = Option<Value>;
}

/// Forgets a key and its value. The answer is whether there was one.
pub struct Delete;

impl Procedure for Delete {
    const NAME: &'static str = "kv.delete";
    type Input = String;
    type Output = bool;
}

/// Lists keys in order, a page at a time.
pub struct List;

impl Procedure for List {
    const NAME: &'static str = "kv.list";
    type Input = ListPage;
    type Output = Vec<Listed>;
}

/// Which keys to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListPage {
    /// Those that begin with this.
    pub prefix: String,
    /// Those after this one: the last of the page before.
    pub after: Option<String>,
}

impl ListPage {
    /// How many keys a page has at most; one with fewer is the last.
    pub const LENGTH_MAX: usize = 1000;
}

/// A key that is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The key.
    pub key: String,
    /// How many bytes its value has.
    pub length: u64,
}
