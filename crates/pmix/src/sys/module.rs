//! The functions that libpmix calls, on its own thread: each puts an [`Upcall`] into the queue.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
};

use ropewalk_launch_core::pmix::{ModexAsker, Process};

use super::{
    replies::{InfoReply, LookupReply, ModexReply, OpReply, SpawnReply},
    types::{
        self, App, GROUP_CONSTRUCT, Info, InfoCallback, LookupCallback, ModexCallback, Module, OpCallback,
        Proc, SpawnCallback, Status, status,
    },
    upcalls::{SpawnedApp, Upcall, push},
    values::{self, Infos, Item},
};
use crate::queries::Query;

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
        unserved: [ptr::null(); 4],
        query: Some(query),
        tool_connected: ptr::null(),
        log: Some(log),
        allocate: ptr::null(),
        job_control: Some(job_control),
        unserved_too: [ptr::null(); 5],
        group: Some(group),
        fabric: ptr::null(),
        client_connected2: Some(client_connected2),
        later: [ptr::null(); 32],
    }
}

/// `PMIX_GROUP_LOCAL_ONLY`.
const GROUP_LOCAL_ONLY: &str = "pmix.grp.lcl";

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

unsafe extern "C" fn query(
    found: *mut Proc,
    queries: *mut types::Query,
    count: usize,
    callback: InfoCallback,
    word: *mut c_void,
) -> Status {
    // SAFETY: see above.
    let from = unsafe { process(found) };
    let (Some(from), false) = (from, queries.is_null()) else {
        return status::ERROR;
    };
    // SAFETY: see above.
    let queries = unsafe { std::slice::from_raw_parts(queries, count) };
    let read = |query: &types::Query| Query {
        // SAFETY: see above.
        keys: unsafe { values::texts(query.keys) },
        // SAFETY: see above.
        qualifiers: unsafe { values::items(query.qualifiers, query.qualifiers_count) },
    };
    push(Upcall::Query {
        from,
        queries: queries.iter().map(read).collect(),
        reply: InfoReply { callback, word },
    })
}

unsafe extern "C" fn log(
    found: *const Proc,
    data: *const Info,
    count: usize,
    directives: *const Info,
    directives_count: usize,
    callback: OpCallback,
    word: *mut c_void,
) {
    // SAFETY: see above.
    if let Some(from) = unsafe { process(found) } {
        push(Upcall::Log {
            from,
            // SAFETY: see above.
            data: unsafe { values::items(data, count) },
            // SAFETY: see above.
            directives: unsafe { values::items(directives, directives_count) },
            reply: OpReply { callback, word },
        });
    }
}

unsafe extern "C" fn group(
    operation: c_int,
    name: *const c_char,
    members: *const Proc,
    count: usize,
    directives: *const Info,
    directives_count: usize,
    callback: InfoCallback,
    word: *mut c_void,
) -> Status {
    let constructs = operation == GROUP_CONSTRUCT;
    // SAFETY: see above.
    let directives = unsafe { values::items(directives, directives_count) };
    let is_local = directives
        .iter()
        .any(|(key, item)| key == GROUP_LOCAL_ONLY && Item::is_true(item.as_ref()));
    // Its members are all of this host, and have come. libpmix 5.0 asks a second time if the answer comes later.
    if is_local && !constructs {
        return status::OPERATION_SUCCEEDED;
    }
    push(Upcall::Group {
        constructs,
        // SAFETY: see above.
        name: unsafe { values::text(name) }.unwrap_or_default(),
        // SAFETY: see above.
        members: unsafe { processes(members, count) },
        directives,
        reply: InfoReply { callback, word },
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
