//! Programs and libraries, and the cache of the dynamic loader: no file takes more than it may, and a path
//! that is found in the cache stands there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_launch_core::mpi::{
    elf::{NEEDED_MAX, read_dynamic},
    loader_cache::path_of,
};

fuzz_target!(|bytes: &[u8]| {
    let read = |offset: u64, buffer: &mut [u8]| {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| bytes.get(offset..));
        let rest = rest.unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        length
    };
    if let Some(dynamic) = read_dynamic(&read) {
        assert!(dynamic.needed.len() <= NEEDED_MAX);
        assert!(dynamic.needed.iter().all(|name| !name.contains('\0')));
    }
    if let Some(path) = path_of(bytes, "libmpi.so.40") {
        assert!(bytes.windows(path.len()).any(|window| window == path.as_bytes()));
    }
});
