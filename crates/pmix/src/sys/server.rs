//! A PMIx server: libpmix, initialised.

use std::{ffi::c_char, path::PathBuf, ptr};

use ropewalk_launch_core::pmix::{ModexAsker, Process};
use thiserror::Error;

use super::{
    library::{Library, LoadError},
    module::{drop_infos, modex_response, module},
    types::{Status, status},
    values::{self, Infos, Item, c_text, proc_of},
};

/// libpmix, as the server of this process. It stays to its end.
pub(crate) struct Server {
    library: Library,
}

/// The reason why libpmix does not do something.
#[derive(Debug, Error)]
pub enum ServerError {
    /// It cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A function of libpmix failed.
    #[error("{function} of libpmix failed: {reason}")]
    Failed {
        /// The function.
        function: &'static str,
        /// The words of libpmix.
        reason: String,
    },
}

/// `PMIX_RANGE_LOCAL`: what the server tells, it tells the processes of its host; every host has a server.
const RANGE_LOCAL: u8 = 2;

impl Server {
    /// Loads libpmix and starts to serve. Calls come into the queue, which is there already.
    pub(crate) fn start(candidates: &[PathBuf], options: &[(&str, Item)]) -> Result<Self, ServerError> {
        let server = Self {
            library: Library::load(candidates)?,
        };
        let mut infos = Infos::new(options);
        let (first, count) = infos.as_parts();
        // libpmix of some versions keeps the pointer.
        let module = Box::leak(Box::new(module()));
        // SAFETY: the module has the layout of the header, and the infos live until the function returns.
        let status = unsafe { (server.library.init)(&raw mut *module, first, count) };
        server.check("PMIx_server_init", status)?;
        Ok(server)
    }

    pub(crate) fn version(&self) -> String {
        self.library.version_text()
    }

    /// A list of hosts, as libpmix writes it.
    pub(crate) fn node_map(&self, hosts: &str) -> Result<String, ServerError> {
        self.map("PMIx_generate_regex", self.library.generate_regex, hosts)
    }

    /// A list of the ranks of each host, as libpmix writes it.
    pub(crate) fn process_map(&self, ranks: &str) -> Result<String, ServerError> {
        self.map("PMIx_generate_ppn", self.library.generate_ppn, ranks)
    }

    fn map(
        &self,
        name: &'static str,
        function: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
        list: &str,
    ) -> Result<String, ServerError> {
        let mut map = ptr::null_mut();
        let list = c_text(list);
        // SAFETY: the list is a C string; the function writes a pointer to one that is the caller's to free.
        let text = unsafe {
            self.check(name, function(list.as_ptr(), &raw mut map))?;
            let text = values::text(map);
            libc::free(map.cast());
            text
        };
        Ok(text.unwrap_or_default())
    }

    /// Makes a process group known, of which so many processes are of this host.
    pub(crate) fn register(
        &self,
        namespace: &str,
        local: usize,
        items: &[(&str, Item)],
    ) -> Result<(), ServerError> {
        let name = proc_of(&wildcard(namespace)).namespace;
        let local = i32::try_from(local).unwrap_or(i32::MAX);
        let mut infos = Infos::new(items);
        let (first, count) = infos.as_parts();
        // SAFETY: the name is an array of the size of the header's; without a callback the function returns when it
        // is done, and until then the infos live.
        let status = unsafe {
            (self.library.register_nspace)(name.as_ptr(), local, first, count, None, ptr::null_mut())
        };
        self.check("PMIx_server_register_nspace", status)
    }

    /// Forgets a process group.
    pub(crate) fn deregister(&self, namespace: &str) {
        let name = proc_of(&wildcard(namespace)).namespace;
        // SAFETY: as for `register`.
        unsafe { (self.library.deregister_nspace)(name.as_ptr(), None, ptr::null_mut()) };
    }

    /// Makes a process of this host and user known. Returns the variables of its environment, as `NAME=VALUE`.
    pub(crate) fn register_client(&self, process: &Process) -> Result<Vec<String>, ServerError> {
        let process = proc_of(process);
        let mut environment: *mut *mut c_char = ptr::null_mut();
        // SAFETY: the process has the layout of the header's; without a callback the functions return when they are
        // done. The list that the second makes is the caller's to free, as its strings are.
        unsafe {
            let (user, group) = (libc::geteuid(), libc::getegid());
            let object = ptr::null_mut();
            let status = (self.library.register_client)(
                &raw const process,
                user,
                group,
                object,
                None,
                ptr::null_mut(),
            );
            self.check("PMIx_server_register_client", status)?;
            let status = (self.library.setup_fork)(&raw const process, &raw mut environment);
            self.check("PMIx_server_setup_fork", status)?;
            let variables = values::texts(environment);
            let mut text = environment;
            while !text.is_null() && !(*text).is_null() {
                libc::free((*text).cast());
                text = text.add(1);
            }
            libc::free(environment.cast());
            Ok(variables)
        }
    }

    /// Asks for what a process of this host has put; the answer comes into the queue.
    pub(crate) fn request_modex(&self, asker: ModexAsker, process: &Process) -> Result<(), ServerError> {
        let process = proc_of(process);
        let word = Box::into_raw(Box::new(asker));
        // SAFETY: libpmix copies the process; the word is taken back by the response, or below if there is none.
        unsafe {
            let status = (self.library.dmodex_request)(&raw const process, Some(modex_response), word.cast());
            if status != status::SUCCESS {
                drop(Box::from_raw(word));
            }
            self.check("PMIx_server_dmodex_request", status)
        }
    }

    /// Tells the processes of this host that registered for it that another failed.
    pub(crate) fn notify_failure(&self, failed: &Process) {
        let source = proc_of(failed);
        let item = Item::Process(failed.clone());
        let mut infos = Box::new(Infos::new(&[("pmix.evproc", item)]));
        let (first, count) = infos.as_parts();
        let word = Box::into_raw(infos);
        // SAFETY: libpmix copies the source; the infos live until it calls back, or are taken back below.
        unsafe {
            let status = (self.library.notify_event)(
                status::PROC_ABORTED,
                &raw const source,
                RANGE_LOCAL,
                first,
                count,
                Some(drop_infos),
                word.cast(),
            );
            if status != status::SUCCESS {
                drop(Box::from_raw(word));
            }
        }
    }

    fn check(&self, function: &'static str, status: Status) -> Result<(), ServerError> {
        match status {
            // Some functions are done when they return, and say so.
            status::SUCCESS | status::OPERATION_SUCCEEDED => Ok(()),
            status => Err(ServerError::Failed {
                function,
                reason: self.library.message(status),
            }),
        }
    }
}

fn wildcard(namespace: &str) -> Process {
    Process {
        namespace: namespace.to_owned(),
        rank: None,
    }
}
