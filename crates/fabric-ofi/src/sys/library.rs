//! libfabric, loaded.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem,
    sync::OnceLock,
};

use thiserror::Error;

use super::types::{fi_fabric_attr, fi_info, fid_fabric};

type Fabric = unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;
type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;

/// The functions that libfabric exports. Once loaded it stays: its providers leave threads and handlers behind
/// that cannot be unloaded.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// `fi_version`(3): major version in the upper 16 bits, minor in the lower.
    pub version: unsafe extern "C" fn() -> u32,
    /// `fi_getinfo`(3).
    pub getinfo: GetInfo,
    /// `fi_freeinfo`(3).
    pub freeinfo: unsafe extern "C" fn(*mut fi_info),
    /// `fi_dupinfo`(3); of null it is `fi_allocinfo`.
    pub dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    /// `fi_fabric`(3).
    pub fabric: Fabric,
    /// `fi_strerror`(3).
    pub strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Library {
    /// The file that the dynamic loader is asked for.
    pub const FILE: &CStr = c"libfabric.so.1";

    /// libfabric of this process; loaded by the first call.
    ///
    /// # Errors
    /// If the dynamic loader does not find it, or it lacks a function.
    pub fn load() -> Result<&'static Self, LoadError> {
        static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
        LIBRARY.get_or_init(Self::open).as_ref().map_err(LoadError::clone)
    }

    fn open() -> Result<Self, LoadError> {
        // SAFETY: the name is a C string. Loading runs libfabric's initialisers, which it is made for.
        let handle = unsafe { libc::dlopen(Self::FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(LoadError::NotFound {
                reason: loader_message(),
            });
        }
        // SAFETY: the types are those by which libfabric's headers declare the functions.
        unsafe {
            Ok(Self {
                version: mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(symbol(
                    handle,
                    c"fi_version",
                )?),
                getinfo: mem::transmute::<*mut c_void, GetInfo>(symbol(handle, c"fi_getinfo")?),
                freeinfo: mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut fi_info)>(symbol(
                    handle,
                    c"fi_freeinfo",
                )?),
                dupinfo: mem::transmute::<*mut c_void, unsafe extern "C" fn(*const fi_info) -> *mut fi_info>(
                    symbol(handle, c"fi_dupinfo")?,
                ),
                fabric: mem::transmute::<*mut c_void, Fabric>(symbol(handle, c"fi_fabric")?),
                strerror: mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(
                    symbol(handle, c"fi_strerror")?,
                ),
            })
        }
    }

    /// libfabric's text for one of its own error numbers, with or without sign.
    pub fn message(&self, number: c_int) -> String {
        // SAFETY: it takes any positive number and returns a string that lives as long as the library.
        let text = unsafe { CStr::from_ptr((self.strerror)(number.saturating_abs())) };
        text.to_string_lossy().into_owned()
    }
}

fn symbol(handle: *mut c_void, name: &'static CStr) -> Result<*mut c_void, LoadError> {
    // SAFETY: the handle is one of `dlopen`, never closed, and the name a C string.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if symbol.is_null() {
        let name = name.to_str().unwrap_or("?");
        return Err(LoadError::Incomplete { name });
    }
    Ok(symbol)
}

fn loader_message() -> String {
    // SAFETY: it returns null or a string that lives until this thread's next call of the dynamic loader.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: it is not null, see above.
    let message = unsafe { CStr::from_ptr(message) };
    message.to_string_lossy().into_owned()
}

/// Why there is no libfabric.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It lacks a function.
    #[error("libfabric.so.1 has no function {name}: expected libfabric 1.17 or later")]
    Incomplete {
        /// Which.
        name: &'static str,
    },
    /// The dynamic loader did not find it.
    #[error("libfabric is not there ({reason}); on Debian: apt-get install libfabric1")]
    NotFound {
        /// The message of the dynamic loader.
        reason: String,
    },
}
