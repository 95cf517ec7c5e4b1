//! Where the process begins, with unsafe code to be called by the C library.
//!
//! What Rust does before its own `main` takes a twentieth of the time that a job of one process takes: it reads
//! `/proc/self/maps` to find the end of the stack, and installs a handler that tells when that is reached. Here is what else
//! it does, and programs rely on.

use std::{
    ffi::{c_char, c_int},
    panic::catch_unwind,
    process::{self, ExitCode, abort},
};

/// As after a panic in Rust's own `main`.
const PANICKED: i32 = 101;

/// What the C library calls. The standard library knows the arguments without it.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "tests have a beginning of their own"))]
extern "C" fn main(_count: c_int, _words: *const *const c_char) -> c_int {
    open_standard_streams();
    // SAFETY: no handler is installed. Whoever writes to a pipe without a reader gets an error.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let code = catch_unwind(crate::start).map_or(PANICKED, number);
    // Writes out what is left to be written.
    process::exit(code)
}

/// If one of them is closed, a file that is opened later must not take its place.
fn open_standard_streams() {
    for stream in 0..=2 {
        // SAFETY: the one takes numbers and changes nothing, the other takes a string that lasts, and the lowest number that is free,
        // which is the one that is wanted.
        let is_open = unsafe {
            libc::fcntl(stream, libc::F_GETFD) >= 0
                || libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == stream
        };
        if !is_open {
            abort();
        }
    }
}

/// The number of an exit code, which does not tell it.
fn number(code: ExitCode) -> c_int {
    let mut numbers = 0..=u8::MAX;
    numbers
        .find(|&number| ExitCode::from(number) == code)
        .map_or(PANICKED, c_int::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_have_numbers() {
        for code in 0..=u8::MAX {
            assert_eq!(number(ExitCode::from(code)), c_int::from(code));
        }
    }
}
