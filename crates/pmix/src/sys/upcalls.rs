//! The calls of libpmix to its server, which come on its own thread: each becomes an [`Upcall`] in a queue, and its
//! answer goes back later.

use std::{
    collections::VecDeque,
    ffi::{c_char, c_int, c_void},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr,
    sync::{Mutex, OnceLock, PoisonError},
};

use ropewalk_launch_core::pmix::{ModexAsker, Process};
use rustix::event::{EventfdFlags, eventfd};

use super::{
    types::{
        App, Info, InfoCallback, LookupCallback, ModexCallback, Module, OpCallback, Proc, SpawnCallback,
        Status, status,
    },
    values::{self, Infos, Item, Published},
};

/// A call of libpmix.
pub(crate) enum Upcall {
    Connected(Process, OpReply),
    Finalized(Process, OpReply),
    Aborted {
        process: Process,
        exit_code: i32,
        message: String,
        reply: OpReply,
    },
    Fence {
        members: Vec<Process>,
        data: Vec<u8>,
        reply: ModexReply,
    },
    Modex(Process, ModexReply),
    Publish {
        from: Process,
        items: Vec<(String, Option<Item>)>,
        reply: OpReply,
    },
    Lookup {
        from: Process,
        keys: Vec<String>,
        options: Vec<(String, Option<Item>)>,
        reply: LookupReply,
    },
    Unpublish {
        from: Process,
        keys: Vec<String>,
        reply: OpReply,
    },
    Spawn {
        from: Process,
        apps: Vec<SpawnedApp>,
        reply: SpawnReply,
    },
    Connect {
        members: Vec<Process>,
        disconnects: bool,
        reply: OpReply,
    },
    /// The answer to a request for the data of a process here.
    ModexFound(ModexAsker, Option<Vec<u8>>),
}

/// A program that a process wants to have started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpawnedApp {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) directory: Option<String>,
    pub(crate) processes: u32,
    pub(crate) options: Vec<(String, Option<Item>)>,
}

/// Where the answer to a call goes: a function of libpmix and a word for it.
macro_rules! reply {
    ($(#[$attribute:meta])* $name:ident, $callback:ty) => {
        $(#[$attribute])*
        pub(crate) struct $name {
            callback: $callback,
            word: *mut c_void,
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

/// The calls that wait to be handled.
pub(crate) struct Queue {
    calls: Mutex<VecDeque<Upcall>>,
    wake: OwnedFd,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

impl Queue {
    /// The queue of this process, which has one server.
    pub(crate) fn start() -> io::Result<&'static Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let calls = Mutex::default();
        Ok(QUEUE.get_or_init(|| Self { calls, wake }))
    }

    /// All calls that came.
    pub(crate) fn take(&self) -> VecDeque<Upcall> {
        let mut counter = [0; 8];
        // Nothing to be read is no call.
        let _ = rustix::io::read(&self.wake, &mut counter);
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, call: Upcall) {
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(call);
        // A counter that is full wakes too.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Queue {
    /// Readable when a call has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn push(call: Upcall) -> Status {
    match QUEUE.get() {
        Some(queue) => {
            queue.push(call);
            status::SUCCESS
        }
        None => status::NOT_SUPPORTED,
    }
}

/// The functions that libpmix calls.
pub(crate) fn module() -> Module {
    Module {
        client_connected: Some(client_connected),
        client_finalized: Some(client_finalized),
        abort: Some(abort),
        fence: Some(fence),
        direct_modex: Some(direct_modex),
        publish: Some(publish),
        lookup: Some(lookup),
        unpublish: Some(unpublish),
        spawn: Some(spawn),
        connect: Some(connect),
        disconnect: Some(disconnect),
        unserved: [ptr::null(); 8],
        job_control: Some(job_control),
        unserved_too: [ptr::null(); 7],
        client_connected2: Some(client_connected2),
        later: [ptr::null(); 32],
    }
}

/// The process that a call is about.
///
/// # Safety
/// The pointer is null, or that of a process.
unsafe fn process(found: *const Proc) -> Option<Process> {
    // SAFETY: as the caller has promised.
    unsafe { found.as_ref() }.map(values::process)
}

/// # Safety
/// The pointer is null, or that of so many processes.
unsafe fn processes(found: *const Proc, count: usize) -> Vec<Process> {
    if found.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller has promised.
    let found = unsafe { std::slice::from_raw_parts(found, count) };
    found.iter().map(values::process).collect()
}

// In all functions below, SAFETY: libpmix calls them with what pmix_server.h says, which is valid until they return.

unsafe extern "C" fn client_connected(
    found: *const Proc,
    _object: *mut c_void,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    match unsafe { process(found) } {
        Some(process) => push(Upcall::Connected(process, OpReply { callback, word })),
        None => status::ERROR,
    }
}

unsafe extern "C" fn client_connected2(
    found: *const Proc,
    object: *mut c_void,
    _infos: *mut Info,
    _count: usize,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    unsafe { client_connected(found, object, callback, word) }
}

unsafe extern "C" fn client_finalized(
    found: *const Proc,
    _object: *mut c_void,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    match unsafe { process(found) } {
        Some(process) => push(Upcall::Finalized(process, OpReply { callback, word })),
        None => status::ERROR,
    }
}

unsafe extern "C" fn abort(
    found: *const Proc,
    _object: *mut c_void,
    exit_code: c_int,
    message: *const c_char,
    _victims: *mut Proc,
    _count: usize,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    match unsafe { process(found) } {
        Some(process) => push(Upcall::Aborted {
            process,
            exit_code,
            // SAFETY: see above.
            message: unsafe { values::text(message) }.unwrap_or_default(),
            reply: OpReply { callback, word },
        }),
        None => status::ERROR,
    }
}

unsafe extern "C" fn fence(
    members: *const Proc,
    count: usize,
    _infos: *const Info,
    _infos_count: usize,
    data: *mut c_char,
    size: usize,
    callback: ModexCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    let copied = unsafe { values::copy(data, size) };
    // SAFETY: the data is the host's to free (PMIx 4.1, section 17.4.4), and libpmix has it from malloc(3).
    unsafe { libc::free(data.cast()) };
    push(Upcall::Fence {
        // SAFETY: see above.
        members: unsafe { processes(members, count) },
        data: copied,
        reply: ModexReply { callback, word },
    })
}

unsafe extern "C" fn direct_modex(
    found: *const Proc,
    _infos: *const Info,
    _count: usize,
    callback: ModexCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    match unsafe { process(found) } {
        Some(process) => push(Upcall::Modex(process, ModexReply { callback, word })),
        None => status::ERROR,
    }
}

unsafe extern "C" fn publish(
    found: *const Proc,
    infos: *const Info,
    count: usize,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    match unsafe { process(found) } {
        Some(from) => push(Upcall::Publish {
            from,
            // SAFETY: see above.
            items: unsafe { values::items(infos, count) },
            reply: OpReply { callback, word },
        }),
        None => status::ERROR,
    }
}

unsafe extern "C" fn lookup(
    found: *const Proc,
    keys: *mut *mut c_char,
    infos: *const Info,
    count: usize,
    callback: LookupCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    match unsafe { process(found) } {
        Some(from) => push(Upcall::Lookup {
            from,
            // SAFETY: see above.
            keys: unsafe { values::texts(keys) },
            // SAFETY: see above.
            options: unsafe { values::items(infos, count) },
            reply: LookupReply { callback, word },
        }),
        None => status::ERROR,
    }
}

unsafe extern "C" fn unpublish(
    found: *const Proc,
    keys: *mut *mut c_char,
    _infos: *const Info,
    _count: usize,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    match unsafe { process(found) } {
        Some(from) => push(Upcall::Unpublish {
            from,
            // SAFETY: see above.
            keys: unsafe { values::texts(keys) },
            reply: OpReply { callback, word },
        }),
        None => status::ERROR,
    }
}

unsafe extern "C" fn spawn(
    found: *const Proc,
    _infos: *const Info,
    _infos_count: usize,
    apps: *const App,
    count: usize,
    callback: SpawnCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    let from = unsafe { process(found) };
    let (Some(from), false) = (from, apps.is_null()) else {
        return status::ERROR;
    };
    // SAFETY: see above.
    let apps = unsafe { std::slice::from_raw_parts(apps, count) };
    let read = |app: &App| {
        // SAFETY: see above.
        unsafe {
            SpawnedApp {
                program: values::text(app.command).unwrap_or_default(),
                arguments: values::texts(app.arguments),
                environment: values::texts(app.environment),
                directory: values::text(app.directory),
                processes: u32::try_from(app.processes).unwrap_or(0),
                options: values::items(app.infos, app.infos_count),
            }
        }
    };
    push(Upcall::Spawn {
        from,
        apps: apps.iter().map(read).collect(),
        reply: SpawnReply { callback, word },
    })
}

unsafe extern "C" fn connect(
    members: *const Proc,
    count: usize,
    _infos: *const Info,
    _infos_count: usize,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    push(Upcall::Connect {
        // SAFETY: see above.
        members: unsafe { processes(members, count) },
        disconnects: false,
        reply: OpReply { callback, word },
    })
}

unsafe extern "C" fn disconnect(
    members: *const Proc,
    count: usize,
    _infos: *const Info,
    _infos_count: usize,
    callback: OpCallback,
    word: *mut c_void,
) -> Status {
    push(Upcall::Connect {
        // SAFETY: see above.
        members: unsafe { processes(members, count) },
        disconnects: true,
        reply: OpReply { callback, word },
    })
}

/// Nothing is controlled here. libpmix itself keeps which files are to be removed when a process ends, but only for
/// servers that have this function.
unsafe extern "C" fn job_control(
    _from: *const Proc,
    _targets: *const Proc,
    _count: usize,
    _directives: *const Info,
    _directives_count: usize,
    _callback: InfoCallback,
    _word: *mut c_void,
) -> Status {
    status::NOT_SUPPORTED
}

/// The answer of libpmix to a request for the data of a process here; `word` is a boxed [`ModexAsker`].
pub(crate) unsafe extern "C" fn modex_response(
    found: Status,
    data: *mut c_char,
    size: usize,
    word: *mut c_void,
) {
    // SAFETY: the server gave this word with its request, which is answered once.
    let asker = unsafe { Box::from_raw(word.cast::<ModexAsker>()) };
    // SAFETY: the data is valid until this returns.
    let data = (found == status::SUCCESS).then(|| unsafe { values::copy(data, size) });
    push(Upcall::ModexFound(*asker, data));
}

/// Infos that libpmix may read until it calls [`drop_infos`] with them.
pub(crate) unsafe extern "C" fn drop_infos(_status: Status, word: *mut c_void) {
    // SAFETY: the server gave this word with its notice, which ends once.
    drop(unsafe { Box::from_raw(word.cast::<Infos>()) });
}
