//! Memory that an agent holds, and a process that was forked off the one that contributes it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::AsFd;

use ropewalk_fabric::{LabelledMemfd, memfd::HeldMemfd};

/// A copy of the process, which drops all that it inherited, changes nothing of what counts.
#[test]
fn a_copy_of_the_process_changes_no_label() {
    let mut memory = LabelledMemfd::with("test", b"data", 4).unwrap();
    memory.set_label(b"parent's");
    // SAFETY: the copy, whose other threads are gone, neither allocates nor takes a lock before `_exit`.
    let child = unsafe {
        match libc::fork() {
            0 => {
                memory.clear_label();
                memory.set_label(b"child's");
                libc::_exit(0)
            }
            child => child,
        }
    };
    let mut status = 0;
    // SAFETY: the status is this process's own.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
    let held = HeldMemfd::of(memory.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let (label, data) = LabelledMemfd::left_in(held).unwrap().unwrap();
    assert_eq!((&label[..], &data[..4]), (&b"parent's"[..], &b"data"[..]));
}
