//! Endpoints of libfabric's `shm` that are kept open although nobody uses them any more.
//!
//! Two endpoints of one process reach into each other's memory there, and libfabric 1.17 does not notice when one of
//! them is closed: the other's next send ends the process with a segmentation fault. So those of one process
//! are closed together, when the last goes. A process that has one at a time notices nothing of it.

use std::{
    ffi::CStr,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use super::objects::Objects;

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

struct Open {
    objects: Arc<Objects>,
    is_used: bool,
}

/// The name of the provider.
pub(super) const SHM: &str = "shm";

/// Takes part in the life of an endpoint.
pub(super) fn park(objects: Arc<Objects>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_used = true;
    open.push(Open { objects, is_used });
}

/// Tells that an endpoint is not used any more. It is closed now, or with the last of this process.
pub(super) fn leave(objects: &Arc<Objects>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    for other in &mut *open {
        other.is_used &= !Arc::ptr_eq(&other.objects, objects);
    }
    if open.iter().all(|other| !other.is_used) {
        open.clear();
    }
}

/// Checks that somebody uses the endpoint of this name; without it, libfabric would try for ever.
///
/// # Errors
/// `ConnectionRefused` if not.
pub(super) fn check(name: &[u8]) -> io::Result<()> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(other) = open.iter().find(|other| other.objects.name() == name) {
        return match other.is_used {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionRefused.into()),
        };
    }
    // "fi_shm://PID:..", and a zero byte; the rest of it names the file of its shared memory.
    let text = CStr::from_bytes_until_nul(name)
        .ok()
        .and_then(|name| name.to_str().ok());
    let file = text.and_then(|text| text.split_once("://")).map(|(_, file)| file);
    match file.filter(|file| !file.is_empty() && !file.contains('/')) {
        None => Err(io::ErrorKind::InvalidInput.into()),
        Some(file) if Path::new("/dev/shm").join(file).exists() => Ok(()),
        Some(_) => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}
