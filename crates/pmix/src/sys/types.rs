//! The types of pmix.h and pmix_server.h (PMIx 4 and later), as far as a server needs them.
//!
//! Their sizes and places are those that a C compiler finds on 64-bit Linux; `tests/layout.rs` compares them.

use std::ffi::{c_char, c_int, c_void};

/// `pmix_status_t`.
pub(crate) type Status = c_int;
/// `pmix_rank_t`.
pub(crate) type RankNumber = u32;

/// `PMIX_MAX_NSLEN`, with the zero at the end.
pub(crate) const NAMESPACE_SIZE: usize = 256;
/// `PMIX_MAX_KEYLEN`, with the zero at the end.
pub(crate) const KEY_SIZE: usize = 512;
/// `PMIX_RANK_WILDCARD`.
pub(crate) const RANK_WILDCARD: RankNumber = u32::MAX - 1;

/// Numbers of `pmix_status_t`.
pub(crate) mod status {
    use super::Status;

    pub(crate) const SUCCESS: Status = 0;
    pub(crate) const ERROR: Status = -1;
    pub(crate) const PROC_ABORTED: Status = -7;
    pub(crate) const TIMEOUT: Status = -24;
    pub(crate) const UNREACH: Status = -25;
    pub(crate) const RESOURCE_BUSY: Status = -28;
    pub(crate) const NO_MEMORY: Status = -32;
    pub(crate) const NOT_FOUND: Status = -46;
    pub(crate) const NOT_SUPPORTED: Status = -47;
    pub(crate) const PARTIAL_SUCCESS: Status = -52;
    pub(crate) const DUPLICATE_KEY: Status = -53;
    pub(crate) const LOST_CONNECTION: Status = -61;
    /// The request is done already.
    pub(crate) const OPERATION_SUCCEEDED: Status = -157;
}

/// Numbers of `pmix_data_type_t`.
pub(crate) mod data_type {
    pub(crate) const BOOL: u16 = 1;
    pub(crate) const STRING: u16 = 3;
    pub(crate) const SIZE: u16 = 4;
    pub(crate) const UINT16: u16 = 13;
    pub(crate) const UINT32: u16 = 14;
    pub(crate) const STATUS: u16 = 20;
    pub(crate) const PROC: u16 = 22;
    pub(crate) const INFO: u16 = 24;
    pub(crate) const BYTE_OBJECT: u16 = 27;
    pub(crate) const PERSIST: u16 = 30;
    pub(crate) const PROC_INFO: u16 = 38;
    pub(crate) const DATA_ARRAY: u16 = 39;
    pub(crate) const PROC_RANK: u16 = 40;
    /// Types up to this one, but for the two above with pointers, are numbers in the first eight bytes.
    pub(crate) const NUMBERS_END: u16 = STATUS;
}

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Proc {
    pub(crate) namespace: [c_char; NAMESPACE_SIZE],
    pub(crate) rank: RankNumber,
}

/// Numbers of `pmix_proc_state_t`.
pub(crate) mod process_state {
    pub(crate) const RUNNING: u8 = 5;
    pub(crate) const CONNECTED: u8 = 6;
}

/// `pmix_proc_info_t`.
#[repr(C)]
pub(crate) struct ProcInfo {
    pub(crate) process: Proc,
    pub(crate) host: *mut c_char,
    pub(crate) program: *mut c_char,
    pub(crate) pid: c_int,
    pub(crate) exit_code: c_int,
    pub(crate) state: u8,
}

/// `pmix_query_t`.
#[repr(C)]
pub(crate) struct Query {
    pub(crate) keys: *mut *mut c_char,
    pub(crate) qualifiers: *mut Info,
    pub(crate) qualifiers_count: usize,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ByteObject {
    pub(crate) bytes: *mut c_char,
    pub(crate) size: usize,
}

/// `pmix_data_array_t`.
#[repr(C)]
pub(crate) struct DataArray {
    pub(crate) data_type: u16,
    pub(crate) size: usize,
    pub(crate) array: *mut c_void,
}

/// The union in `pmix_value_t`; its largest member is `pmix_envar_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Data {
    pub(crate) flag: bool,
    pub(crate) number: u64,
    pub(crate) string: *mut c_char,
    pub(crate) integer: c_int,
    pub(crate) uint16: u16,
    pub(crate) uint32: u32,
    pub(crate) process: *mut Proc,
    pub(crate) bytes: ByteObject,
    pub(crate) array: *mut DataArray,
    pub(crate) all: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Value {
    pub(crate) data_type: u16,
    pub(crate) data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) key: [c_char; KEY_SIZE],
    pub(crate) flags: u32,
    pub(crate) value: Value,
}

/// `pmix_pdata_t`.
#[repr(C)]
pub(crate) struct PublishedData {
    pub(crate) process: Proc,
    pub(crate) key: [c_char; KEY_SIZE],
    pub(crate) value: Value,
}

/// `pmix_app_t`.
#[repr(C)]
pub(crate) struct App {
    pub(crate) command: *mut c_char,
    pub(crate) arguments: *mut *mut c_char,
    pub(crate) environment: *mut *mut c_char,
    pub(crate) directory: *mut c_char,
    pub(crate) processes: c_int,
    pub(crate) infos: *mut Info,
    pub(crate) infos_count: usize,
}

/// `pmix_op_cbfunc_t`.
pub(crate) type OpCallback = Option<unsafe extern "C" fn(Status, *mut c_void)>;
/// `pmix_release_cbfunc_t`.
pub(crate) type ReleaseCallback = Option<unsafe extern "C" fn(*mut c_void)>;
/// `pmix_modex_cbfunc_t`.
pub(crate) type ModexCallback =
    Option<unsafe extern "C" fn(Status, *const c_char, usize, *mut c_void, ReleaseCallback, *mut c_void)>;
/// `pmix_lookup_cbfunc_t`.
pub(crate) type LookupCallback = Option<unsafe extern "C" fn(Status, *mut PublishedData, usize, *mut c_void)>;
/// `pmix_spawn_cbfunc_t`.
pub(crate) type SpawnCallback = Option<unsafe extern "C" fn(Status, *mut c_char, *mut c_void)>;
/// `pmix_dmodex_response_fn_t`.
pub(crate) type ModexResponse = Option<unsafe extern "C" fn(Status, *mut c_char, usize, *mut c_void)>;

/// `pmix_server_client_connected2_fn_t`.
pub(crate) type Connected2 =
    unsafe extern "C" fn(*const Proc, *mut c_void, *mut Info, usize, OpCallback, *mut c_void) -> Status;
/// `pmix_server_client_finalized_fn_t`, and that of a client that connects.
pub(crate) type Finalized = unsafe extern "C" fn(*const Proc, *mut c_void, OpCallback, *mut c_void) -> Status;
/// `pmix_server_abort_fn_t`.
pub(crate) type Abort = unsafe extern "C" fn(
    *const Proc,
    *mut c_void,
    c_int,
    *const c_char,
    *mut Proc,
    usize,
    OpCallback,
    *mut c_void,
) -> Status;
/// `pmix_server_fencenb_fn_t`.
pub(crate) type Fence = unsafe extern "C" fn(
    *const Proc,
    usize,
    *const Info,
    usize,
    *mut c_char,
    usize,
    ModexCallback,
    *mut c_void,
) -> Status;
/// `pmix_server_dmodex_req_fn_t`.
pub(crate) type DirectModex =
    unsafe extern "C" fn(*const Proc, *const Info, usize, ModexCallback, *mut c_void) -> Status;
/// `pmix_server_publish_fn_t`.
pub(crate) type Publish =
    unsafe extern "C" fn(*const Proc, *const Info, usize, OpCallback, *mut c_void) -> Status;
/// `pmix_server_lookup_fn_t`.
pub(crate) type Lookup = unsafe extern "C" fn(
    *const Proc,
    *mut *mut c_char,
    *const Info,
    usize,
    LookupCallback,
    *mut c_void,
) -> Status;
/// `pmix_server_unpublish_fn_t`.
pub(crate) type Unpublish = unsafe extern "C" fn(
    *const Proc,
    *mut *mut c_char,
    *const Info,
    usize,
    OpCallback,
    *mut c_void,
) -> Status;
/// `pmix_server_spawn_fn_t`.
pub(crate) type Spawn = unsafe extern "C" fn(
    *const Proc,
    *const Info,
    usize,
    *const App,
    usize,
    SpawnCallback,
    *mut c_void,
) -> Status;
/// `pmix_server_connect_fn_t` and `pmix_server_disconnect_fn_t`.
pub(crate) type Connect =
    unsafe extern "C" fn(*const Proc, usize, *const Info, usize, OpCallback, *mut c_void) -> Status;

/// `pmix_info_cbfunc_t`.
pub(crate) type InfoCallback =
    Option<unsafe extern "C" fn(Status, *mut Info, usize, *mut c_void, ReleaseCallback, *mut c_void)>;
/// `pmix_server_job_control_fn_t`.
pub(crate) type JobControl = unsafe extern "C" fn(
    *const Proc,
    *const Proc,
    usize,
    *const Info,
    usize,
    InfoCallback,
    *mut c_void,
) -> Status;

/// `pmix_server_query_fn_t`.
pub(crate) type QueryFunction =
    unsafe extern "C" fn(*mut Proc, *mut Query, usize, InfoCallback, *mut c_void) -> Status;
/// `pmix_server_log_fn_t`.
pub(crate) type Log =
    unsafe extern "C" fn(*const Proc, *const Info, usize, *const Info, usize, OpCallback, *mut c_void);
/// `pmix_server_grp_fn_t`; its first argument is a `pmix_group_operation_t`.
pub(crate) type Group = unsafe extern "C" fn(
    c_int,
    *const c_char,
    *const Proc,
    usize,
    *const Info,
    usize,
    InfoCallback,
    *mut c_void,
) -> Status;
/// `PMIX_GROUP_CONSTRUCT`.
pub(crate) const GROUP_CONSTRUCT: c_int = 0;

/// `pmix_server_module_t` of PMIx 4, to whose end later versions add. What is not served is null.
#[repr(C)]
pub(crate) struct Module {
    pub(crate) client_connected: Option<Finalized>,
    pub(crate) client_finalized: Option<Finalized>,
    pub(crate) abort: Option<Abort>,
    pub(crate) fence: Option<Fence>,
    pub(crate) direct_modex: Option<DirectModex>,
    pub(crate) publish: Option<Publish>,
    pub(crate) lookup: Option<Lookup>,
    pub(crate) unpublish: Option<Unpublish>,
    pub(crate) spawn: Option<Spawn>,
    pub(crate) connect: Option<Connect>,
    pub(crate) disconnect: Option<Connect>,
    /// From `register_events` to `notify_event`.
    pub(crate) unserved: [*const c_void; 4],
    pub(crate) query: Option<QueryFunction>,
    pub(crate) tool_connected: *const c_void,
    pub(crate) log: Option<Log>,
    pub(crate) allocate: *const c_void,
    pub(crate) job_control: Option<JobControl>,
    /// From `monitor` to `push_stdin`.
    pub(crate) unserved_too: [*const c_void; 5],
    pub(crate) group: Option<Group>,
    pub(crate) fabric: *const c_void,
    pub(crate) client_connected2: Option<Connected2>,
    /// Room for what later versions add.
    pub(crate) later: [*const c_void; 32],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Proc>() == 260 && offset_of!(Proc, rank) == 256);
    assert!(size_of::<DataArray>() == 24 && offset_of!(DataArray, array) == 16);
    assert!(size_of::<Value>() == 32 && offset_of!(Value, data) == 8);
    assert!(size_of::<Info>() == 552 && offset_of!(Info, flags) == 512 && offset_of!(Info, value) == 520);
    assert!(
        size_of::<ProcInfo>() == 296
            && offset_of!(ProcInfo, host) == 264
            && offset_of!(ProcInfo, state) == 288
    );
    assert!(size_of::<Query>() == 24 && offset_of!(Query, qualifiers) == 8);
    assert!(size_of::<PublishedData>() == 808 && offset_of!(PublishedData, value) == 776);
    assert!(size_of::<App>() == 56 && offset_of!(App, processes) == 32 && offset_of!(App, infos_count) == 48);
    assert!(offset_of!(Module, fence) == 24 && offset_of!(Module, spawn) == 64);
    assert!(
        offset_of!(Module, query) == 120
            && offset_of!(Module, log) == 136
            && offset_of!(Module, job_control) == 152
            && offset_of!(Module, group) == 200
            && offset_of!(Module, client_connected2) == 216
            && offset_of!(Module, later) == 224
    );
};
