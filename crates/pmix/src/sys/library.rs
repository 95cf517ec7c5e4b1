//! libpmix, loaded.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::types::{Info, ModexResponse, Module, OpCallback, Proc, Status};

/// The functions of libpmix that a server calls. Once loaded it stays: its threads cannot be unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    pub(crate) version: unsafe extern "C" fn() -> *const c_char,
    pub(crate) error_string: unsafe extern "C" fn(Status) -> *const c_char,
    pub(crate) init: unsafe extern "C" fn(*mut Module, *mut Info, usize) -> Status,
    pub(crate) generate_regex: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
    pub(crate) generate_ppn: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
    pub(crate) register_nspace:
        unsafe extern "C" fn(*const c_char, c_int, *mut Info, usize, OpCallback, *mut c_void) -> Status,
    pub(crate) deregister_nspace: unsafe extern "C" fn(*const c_char, OpCallback, *mut c_void),
    pub(crate) register_client: unsafe extern "C" fn(
        *const Proc,
        libc::uid_t,
        libc::gid_t,
        *mut c_void,
        OpCallback,
        *mut c_void,
    ) -> Status,
    pub(crate) setup_fork: unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> Status,
    pub(crate) dmodex_request: unsafe extern "C" fn(*const Proc, ModexResponse, *mut c_void) -> Status,
    pub(crate) notify_event:
        unsafe extern "C" fn(Status, *const Proc, u8, *const Info, usize, OpCallback, *mut c_void) -> Status,
}

impl Library {
    /// Loads the first of these files that is there: a path, or a name that the dynamic loader looks for.
    ///
    /// # Errors
    /// If none can be loaded, or it lacks a function.
    pub(crate) fn load(candidates: &[PathBuf]) -> Result<Self, LoadError> {
        let mut last = LoadError::NotFound {
            reason: "no file is named".to_owned(),
        };
        for candidate in candidates {
            match open(candidate) {
                Ok(handle) => return Self::of(handle),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn of(handle: *mut c_void) -> Result<Self, LoadError> {
        // SAFETY: the fields have the types by which pmix.h and pmix_server.h declare the functions.
        unsafe {
            Ok(Self {
                version: function(handle, c"PMIx_Get_version")?,
                error_string: function(handle, c"PMIx_Error_string")?,
                init: function(handle, c"PMIx_server_init")?,
                generate_regex: function(handle, c"PMIx_generate_regex")?,
                generate_ppn: function(handle, c"PMIx_generate_ppn")?,
                register_nspace: function(handle, c"PMIx_server_register_nspace")?,
                deregister_nspace: function(handle, c"PMIx_server_deregister_nspace")?,
                register_client: function(handle, c"PMIx_server_register_client")?,
                setup_fork: function(handle, c"PMIx_server_setup_fork")?,
                dmodex_request: function(handle, c"PMIx_server_dmodex_request")?,
                notify_event: function(handle, c"PMIx_Notify_event")?,
            })
        }
    }

    /// The words of libpmix for a status.
    pub(crate) fn message(&self, status: Status) -> String {
        // SAFETY: it takes any number, and returns a string that lives as long as the library.
        unsafe { text((self.error_string)(status)) }
    }

    /// The version, as in `OpenPMIx 4.2.2 ..`.
    pub(crate) fn version_text(&self) -> String {
        // SAFETY: it returns a string that lives as long as the library.
        let text = unsafe { text((self.version)()) };
        text.split([',', '('])
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

/// # Safety
/// The pointer is null or that of a C string that is alive.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: as the caller has promised.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn open(file: &Path) -> Result<*mut c_void, LoadError> {
    let name = CString::new(file.as_os_str().as_bytes()).map_err(|error| LoadError::NotFound {
        reason: error.to_string(),
    })?;
    // Its components are libraries of their own that need its functions.
    // SAFETY: the name is a C string. Loading runs initialisers, which the library is made for.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        // SAFETY: it returns null or a string that lives until this thread's next call of the dynamic loader.
        let reason = unsafe { text(libc::dlerror()) };
        return Err(LoadError::NotFound { reason });
    }
    Ok(handle)
}

/// A function of a library.
///
/// # Safety
/// The function has the type `T`, a pointer to functions.
unsafe fn function<T: Copy>(handle: *mut c_void, name: &'static CStr) -> Result<T, LoadError> {
    const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
    let symbol = symbol(handle, name)?;
    // SAFETY: as the caller has promised; both have the same size.
    Ok(unsafe { mem::transmute_copy::<*mut c_void, T>(&symbol) })
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

/// The reason why there is no libpmix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It lacks a function.
    #[error("libpmix has no function {name}: expected PMIx 4 or later")]
    Incomplete {
        /// The function.
        name: &'static str,
    },
    /// The dynamic loader did not find it.
    #[error("libpmix cannot be loaded ({reason}); on Debian: apt-get install libpmix2")]
    NotFound {
        /// The words of the dynamic loader.
        reason: String,
    },
}
