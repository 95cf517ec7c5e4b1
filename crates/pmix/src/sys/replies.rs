//! Where the answers to the calls of libpmix go.

use std::{
    ffi::{c_char, c_void},
    ptr,
};

use ropewalk_launch_core::pmix::Process;

use super::{
    types::{Info, InfoCallback, LookupCallback, ModexCallback, OpCallback, SpawnCallback, Status},
    values::{self, Infos, Published},
};

/// Where the answer to a call goes: a function of libpmix and a word for it.
macro_rules! reply {
    ($(#[$attribute:meta])* $name:ident, $callback:ty) => {
        $(#[$attribute])*
        pub(crate) struct $name {
            pub(super) callback: $callback,
            pub(super) word: *mut c_void,
        }

        // SAFETY: the word is libpmix's own, which gives it from any thread and takes it on any (PMIx 4.1, section
        // 4.2: callbacks may be called by any thread of the host).
        unsafe impl Send for $name {}
    };
}

reply!(
    /// For calls that only end well or not.
    OpReply,
    OpCallback
);
reply!(
    /// For calls that want data of processes.
    ModexReply,
    ModexCallback
);
reply!(
    /// For calls that want what was published.
    LookupReply,
    LookupCallback
);
reply!(
    /// For calls that start processes.
    SpawnReply,
    SpawnCallback
);

reply!(
    /// For calls that want infos.
    InfoReply,
    InfoCallback
);

impl OpReply {
    pub(crate) fn send(self, status: Status) {
        if let Some(callback) = self.callback {
            // SAFETY: libpmix gave both for this, and each reply is sent once, for it is taken.
            unsafe { callback(status, self.word) };
        }
    }
}

impl ModexReply {
    pub(crate) fn send(self, status: Status, data: Vec<u8>) {
        let Some(callback) = self.callback else {
            return;
        };
        let data = Box::new(data);
        let (bytes, size) = (data.as_ptr().cast::<c_char>(), data.len());
        let data = Box::into_raw(data).cast::<c_void>();
        // SAFETY: as for `OpReply`; the data lives until libpmix calls `release`.
        unsafe { callback(status, bytes, size, self.word, Some(release), data) };
    }
}

/// libpmix has read the data of an answer.
unsafe extern "C" fn release(data: *mut c_void) {
    if !data.is_null() {
        // SAFETY: `ModexReply::send` gave this pointer, and libpmix releases it once.
        drop(unsafe { Box::from_raw(data.cast::<Vec<u8>>()) });
    }
}

impl InfoReply {
    /// Answers with these infos.
    pub(crate) fn send(self, status: Status, infos: Infos) {
        let Some(callback) = self.callback else {
            return;
        };
        let mut infos = Box::new(infos);
        let (first, count) = infos.as_parts();
        let first = if count == 0 {
            ptr::null_mut::<Info>()
        } else {
            first
        };
        let infos = Box::into_raw(infos).cast::<c_void>();
        // SAFETY: as for `OpReply`; the infos live until libpmix calls `release_infos`.
        unsafe { callback(status, first, count, self.word, Some(release_infos), infos) };
    }
}

/// libpmix has read the infos of an answer.
unsafe extern "C" fn release_infos(infos: *mut c_void) {
    if !infos.is_null() {
        // SAFETY: `InfoReply::send` gave this pointer, and libpmix releases it once.
        drop(unsafe { Box::from_raw(infos.cast::<Infos>()) });
    }
}

impl LookupReply {
    pub(crate) fn send(self, status: Status, found: &mut Published) {
        let (data, count) = found.as_parts();
        if let Some(callback) = self.callback {
            // SAFETY: as for `OpReply`; libpmix copies what was found before it returns.
            unsafe { callback(status, data, count, self.word) };
        }
    }
}

impl SpawnReply {
    pub(crate) fn send(self, status: Status, namespace: &str) {
        let process = Process {
            namespace: namespace.to_owned(),
            rank: None,
        };
        let mut process = values::proc_of(&process);
        if let Some(callback) = self.callback {
            // SAFETY: as for `OpReply`; libpmix copies the name before it returns.
            unsafe { callback(status, process.namespace.as_mut_ptr(), self.word) };
        }
    }
}
