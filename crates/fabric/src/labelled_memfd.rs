//! Memory that says by itself, at any time, if it counts and what is in it.

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd},
};

use bytes::Bytes;
use ropewalk_names::Held;

use crate::{
    fork_guard::ForkGuard,
    memfd::{HeldMemfd, WritableMemfd},
};

/// A memfd with a label, for an agent that keeps it for all that will ever be in it: with
/// [`ToAgent::HoldLabelled`](crate::ToAgent::HoldLabelled) it is handed over once. It counts as held from
/// [`set_label`](Self::set_label) on until [`clear_label`](Self::clear_label), and no message says so.
#[derive(Debug)]
pub struct LabelledMemfd {
    memory: WritableMemfd,
    /// Bytes before the label.
    room: usize,
    guard: ForkGuard,
}

impl LabelledMemfd {
    /// Bytes behind the data: the label, and before it a word that is 0 if there is none, and else 1 more than its
    /// length.
    const LABEL_ROOM: usize = (WORD + Held::LABEL_SIZE_MAX).next_multiple_of(PAGE);

    /// Memory without a label that begins with a copy of `data` and has room for `room` bytes, in whole pages.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    ///
    /// # Panics
    /// If the data are longer than the room.
    pub fn with(name: &str, data: &[u8], room: usize) -> io::Result<Self> {
        let room = room.next_multiple_of(PAGE);
        assert!(data.len() <= room, "{} bytes for a room of {room}", data.len());
        let memory = WritableMemfd::with(name, &[data], room + Self::LABEL_ROOM)?;
        let guard = ForkGuard::new()?;
        Ok(Self { memory, room, guard })
    }

    /// From now on the memory counts, under this label. In a process that was forked off the one that made the memory
    /// nothing happens: it is not that process whose memory is held.
    ///
    /// # Panics
    /// If the label is longer than [`Held::LABEL_SIZE_MAX`].
    pub fn set_label(&mut self, label: &[u8]) {
        assert!(
            label.len() <= Held::LABEL_SIZE_MAX,
            "a label of {} bytes is too long",
            label.len()
        );
        self.clear_label();
        if !self.guard.is_forked() {
            let begin = self.room + WORD;
            self.memory[begin..begin + label.len()].copy_from_slice(label);
            self.memory.store(self.room, label.len() as u64 + 1);
        }
    }

    /// The memory does not count any more. It may be filled anew afterwards. In a forked process nothing happens.
    pub fn clear_label(&mut self) {
        if !self.guard.is_forked() {
            self.memory.store(self.room, 0);
        }
    }

    /// The label and the data of memory whose process is gone; `None` if it did not count.
    ///
    /// # Errors
    /// If the system is out of memory or address space, or the memory is none of this kind.
    pub fn left_in(memory: HeldMemfd) -> io::Result<Option<(Vec<u8>, Bytes)>> {
        Self::parse(memory.into_bytes()?)
    }

    pub(crate) fn parse(bytes: Bytes) -> io::Result<Option<(Vec<u8>, Bytes)>> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the memory has no room for a label");
        let room = bytes.len().checked_sub(Self::LABEL_ROOM).ok_or_else(invalid)?;
        let (word, label) = bytes[room..].split_first_chunk::<WORD>().ok_or_else(invalid)?;
        let Some(length) = u64::from_le_bytes(*word).checked_sub(1) else {
            return Ok(None);
        };
        let length = usize::try_from(length).ok();
        let length = length.filter(|length| *length <= Held::LABEL_SIZE_MAX);
        let label = label[..length.ok_or_else(invalid)?].to_vec();
        Ok(Some((label, bytes.slice(..room))))
    }
}

impl AsFd for LabelledMemfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Deref for LabelledMemfd {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.room]
    }
}

impl DerefMut for LabelledMemfd {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.room]
    }
}

const WORD: usize = size_of::<u64>();
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is found with its label and its data while it counts, and not otherwise.
    #[test]
    fn memory_counts_while_it_has_a_label() {
        let left = |change: &dyn Fn(&mut LabelledMemfd)| {
            let mut memory = LabelledMemfd::with("test", b"first", 5).unwrap();
            change(&mut memory);
            let held = HeldMemfd::of(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
            drop(memory);
            LabelledMemfd::left_in(held).unwrap()
        };
        assert_eq!(left(&|_| {}), None);
        assert_eq!(
            left(&|memory| {
                memory.set_label(b"a");
                memory.clear_label();
            }),
            None
        );
        let longest = vec![7; Held::LABEL_SIZE_MAX];
        let (label, data) = left(&|memory| {
            memory.set_label(b"a");
            memory.clear_label();
            memory[..6].copy_from_slice(b"second");
            memory.set_label(&longest);
        })
        .unwrap();
        assert_eq!((label, &data[..7], data.len()), (longest, &b"second\0"[..], PAGE));
        let (label, data) = left(&|memory| memory.set_label(b"")).unwrap();
        assert_eq!((label, &data[..5]), (Vec::new(), &b"first"[..]));
    }

    /// Other memory, and a label that cannot be, is an error.
    #[test]
    fn other_memory_is_an_error() {
        let held = |memory: WritableMemfd| HeldMemfd::of(memory.as_fd().try_clone_to_owned().unwrap());
        let short = WritableMemfd::with("test", &[b"abc"], PAGE).unwrap();
        assert!(LabelledMemfd::left_in(held(short).unwrap()).is_err());
        let mut odd = WritableMemfd::with("test", &[], PAGE + LabelledMemfd::LABEL_ROOM).unwrap();
        odd.store(PAGE, u64::MAX);
        assert!(LabelledMemfd::left_in(held(odd).unwrap()).is_err());
    }
}
