//! The functions that C calls. What each does stands in `include/pmi2.h`; what their callers promise is what C always
//! promises: that pointers point to what the header says, or are null where null makes sense.

use std::ffi::{c_char, c_int, c_void};

use ropewalk_pmi::{Dialect, Spawn, SpawnCommand};
use ropewalk_pmi_abi::{
    Status, array, close, copy_text, fill, guarded, is_open, item, open, session, slots, text, texts, write,
};

/// `struct MPID_Info`: a key and its value.
#[repr(C)]
pub struct Info {
    handle: c_int,
    mutex: c_int,
    references: c_int,
    next: *mut Self,
    key: *const c_char,
    value: *const c_char,
}

/// Declares functions of the library. Their bodies give a status, and do not panic across the border.
macro_rules! exports {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block )*) => { $(
        #[doc = concat!("`", stringify!($name), "`: see `include/pmi2.h`.")]
        ///
        /// # Safety
        /// Its pointers are as the header says.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the name is the interface's")]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            guarded(|| $body)
        }
    )* };
}

/// `PMI2_Initialized`: 1 between `PMI2_Init` and `PMI2_Finalize`, else 0.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is the interface's")]
pub extern "C" fn PMI2_Initialized() -> c_int {
    c_int::from(is_open())
}

exports! {
    fn PMI2_Init(spawned: *mut c_int, size: *mut c_int, rank: *mut c_int, appnum: *mut c_int) {
        let session = open(Dialect::Pmi2)?;
        // SAFETY: the caller promises it.
        unsafe {
            write(spawned, c_int::from(session.is_spawned()))?;
            write(size, session.size() as c_int)?;
            write(rank, session.rank() as c_int)?;
            write(appnum, session.appnum()?)
        }
    }

    fn PMI2_Finalize() {
        close()
    }

    fn PMI2_Abort(_is_world: c_int, message: *const c_char) {
        // SAFETY: the caller promises it, and null is no message.
        let message = unsafe { text(message) }.ok();
        if let Ok(session) = session()
            && let Some(client) = session.client()
        {
            // The process ends in any case.
            let _ = client.abort(ABORTED, message);
        }
        std::process::exit(ABORTED)
    }

    fn PMI2_Job_Spawn(
        count: c_int,
        commands: *const *const c_char,
        argument_counts: *const c_int,
        arguments: *const *const *const c_char,
        processes: *const c_int,
        info_sizes: *const c_int,
        infos: *const *const Info,
        preput_size: c_int,
        preput: *const *const Info,
        job: *mut c_char,
        job_size: c_int,
        errors: *mut c_int,
    ) {
        // SAFETY: the caller promises it.
        let spawn = unsafe {
            spawn_of(count, commands, argument_counts, arguments, processes, info_sizes, infos, preput_size, preput)
        }?;
        let spawned = session()?.spawn(&spawn)?;
        if !errors.is_null() {
            // SAFETY: the caller promises room for a code of each process.
            let errors = unsafe { slots(errors, spawn.processes() as c_int) }?;
            for (index, error) in errors.iter_mut().enumerate() {
                *error = spawned.errcodes.get(index).copied().unwrap_or(0);
            }
        }
        match job.is_null() {
            true => Ok(()),
            // SAFETY: the caller promises it.
            false => unsafe { copy_text(job, job_size, &spawned.kvsname) },
        }
    }

    fn PMI2_Job_GetId(job: *mut c_char, size: c_int) {
        // SAFETY: the caller promises it.
        unsafe { copy_text(job, size, session()?.kvsname()) }
    }

    fn PMI2_Job_GetRank(rank: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(rank, session()?.rank() as c_int) }
    }

    fn PMI2_Info_GetSize(size: *mut c_int) {
        let session = session()?;
        // SAFETY: the caller promises it.
        unsafe { write(size, session.clique()?.len() as c_int) }
    }

    fn PMI2_Job_Connect(job: *const c_char, _connection: *mut c_void) {
        // SAFETY: the caller promises it.
        let job = unsafe { text(job) }?;
        match session()?.client() {
            Some(client) => Ok(client.connect_job(job)?),
            None => Err(Status::FAIL),
        }
    }

    fn PMI2_Job_Disconnect(job: *const c_char) {
        // SAFETY: the caller promises it.
        let job = unsafe { text(job) }?;
        match session()?.client() {
            Some(client) => Ok(client.disconnect_job(job)?),
            None => Err(Status::FAIL),
        }
    }

    fn PMI2_KVS_Put(key: *const c_char, value: *const c_char) {
        // SAFETY: the caller promises it.
        let (key, value) = unsafe { (text(key)?, text(value)?) };
        session()?.put(key, value)
    }

    fn PMI2_KVS_Get(
        job: *const c_char,
        _source: c_int,
        key: *const c_char,
        value: *mut c_char,
        value_size: c_int,
        length: *mut c_int,
    ) {
        // SAFETY: the caller promises it, and no job is this job.
        let (job, key) = unsafe { (text(job).ok(), text(key)?) };
        let found = session()?.get(job, key)?.ok_or(Status::OTHER)?;
        let whole = c_int::try_from(found.len()).map_err(|_| Status::INVALID_VALUE_LENGTH)?;
        // "length of value returned, or, if the length is not long enough, -1 times the actual length".
        // SAFETY: the caller promises it.
        unsafe {
            fill(value, value_size, &found)?;
            write(length, if whole < value_size { whole } else { -whole })
        }
    }

    fn PMI2_KVS_Fence() {
        session()?.fence()
    }

    fn PMI2_Info_GetNodeAttr(
        name: *const c_char,
        value: *mut c_char,
        value_size: c_int,
        found: *mut c_int,
        wait: c_int,
    ) {
        // SAFETY: the caller promises it.
        let name = unsafe { text(name) }?;
        let attribute = session()?.node_attribute(name, wait != 0)?;
        // SAFETY: the caller promises it.
        unsafe { attribute_out(attribute, value, value_size, found) }
    }

    fn PMI2_Info_GetNodeAttrIntArray(
        name: *const c_char,
        array: *mut c_int,
        size: c_int,
        length: *mut c_int,
        found: *mut c_int,
    ) {
        // SAFETY: the caller promises it.
        let name = unsafe { text(name) }?;
        let attribute = session()?.node_attribute(name, false)?;
        // SAFETY: the caller promises it.
        unsafe { numbers_out(attribute, array, size, length, found) }
    }

    fn PMI2_Info_PutNodeAttr(name: *const c_char, value: *const c_char) {
        // SAFETY: the caller promises it.
        let (name, value) = unsafe { (text(name)?, text(value)?) };
        session()?.put_node_attribute(name, value)
    }

    fn PMI2_Info_GetJobAttr(name: *const c_char, value: *mut c_char, value_size: c_int, found: *mut c_int) {
        // SAFETY: the caller promises it.
        let name = unsafe { text(name) }?;
        let attribute = session()?.job_attribute(name)?;
        // SAFETY: the caller promises it.
        unsafe { attribute_out(attribute, value, value_size, found) }
    }

    fn PMI2_Info_GetJobAttrIntArray(
        name: *const c_char,
        array: *mut c_int,
        size: c_int,
        length: *mut c_int,
        found: *mut c_int,
    ) {
        // SAFETY: the caller promises it.
        let name = unsafe { text(name) }?;
        let attribute = session()?.job_attribute(name)?;
        // SAFETY: the caller promises it.
        unsafe { numbers_out(attribute, array, size, length, found) }
    }

    fn PMI2_Nameserv_publish(service: *const c_char, _info: *const Info, port: *const c_char) {
        // SAFETY: the caller promises it.
        let (service, port) = unsafe { (text(service)?, text(port)?) };
        session()?.publish(service, port)
    }

    fn PMI2_Nameserv_lookup(service: *const c_char, _info: *const Info, port: *mut c_char, size: c_int) {
        // SAFETY: the caller promises it.
        let found = session()?.lookup(unsafe { text(service) }?)?;
        // SAFETY: the caller promises it.
        unsafe { copy_text(port, size, &found) }
    }

    fn PMI2_Nameserv_unpublish(service: *const c_char, _info: *const Info) {
        // SAFETY: the caller promises it.
        session()?.unpublish(unsafe { text(service) }?)
    }

    fn PMIX_Ring(
        value: *const c_char,
        rank: *mut c_int,
        ranks: *mut c_int,
        left: *mut c_char,
        right: *mut c_char,
        size: c_int,
    ) {
        use std::sync::atomic::{AtomicU32, Ordering};

        // Each process's rings are the same as the others', in the same order.
        static RINGS: AtomicU32 = AtomicU32::new(0);
        let ring = RINGS.fetch_add(1, Ordering::Relaxed);
        let session = session()?;
        let (own, all) = (session.rank(), session.size());
        let key = |of: u32| format!("-ring-{ring}-{of}");
        // SAFETY: the caller promises it.
        session.put(key(own).as_bytes(), unsafe { text(value) }?)?;
        session.fence()?;
        for (neighbour, out) in [((own + all - 1) % all, left), ((own + 1) % all, right)] {
            let found = session.get(None, key(neighbour).as_bytes())?.ok_or(Status::OTHER)?;
            // SAFETY: the caller promises it.
            unsafe { copy_text(out, size, &found) }?;
        }
        // SAFETY: the caller promises it.
        unsafe {
            write(rank, own as c_int)?;
            write(ranks, all as c_int)
        }
    }
}

/// The exit code of a job that is aborted: PMI-2 has a message, and no code.
const ABORTED: c_int = 1;

/// # Safety
/// The pointers are those of a function that gives an attribute.
unsafe fn attribute_out(
    attribute: Option<Vec<u8>>,
    value: *mut c_char,
    value_size: c_int,
    found: *mut c_int,
) -> Result<(), Status> {
    // SAFETY: as the caller promises.
    unsafe {
        if let Some(attribute) = &attribute {
            copy_text(value, value_size, attribute)?;
        }
        write(found, c_int::from(attribute.is_some()))
    }
}

/// Numbers with commas between them.
///
/// # Safety
/// The pointers are those of a function that gives an attribute as numbers.
unsafe fn numbers_out(
    attribute: Option<Vec<u8>>,
    array: *mut c_int,
    size: c_int,
    length: *mut c_int,
    found: *mut c_int,
) -> Result<(), Status> {
    let numbers: Option<Vec<c_int>> = attribute.as_ref().map(|attribute| {
        let text = String::from_utf8_lossy(attribute);
        text.split(',')
            .filter_map(|number| number.trim().parse().ok())
            .collect()
    });
    // SAFETY: as the caller promises.
    unsafe {
        let mut written = 0;
        if let Some(numbers) = &numbers {
            for (slot, number) in slots(array, size)?.iter_mut().zip(numbers) {
                *slot = *number;
                written += 1;
            }
        }
        write(length, written)?;
        write(found, c_int::from(numbers.is_some()))
    }
}

/// # Safety
/// The pointers are those of `PMI2_Job_Spawn`.
#[allow(clippy::too_many_arguments, reason = "these are the interface's")]
unsafe fn spawn_of(
    count: c_int,
    commands: *const *const c_char,
    argument_counts: *const c_int,
    arguments: *const *const *const c_char,
    processes: *const c_int,
    info_sizes: *const c_int,
    infos: *const *const Info,
    preput_size: c_int,
    preput: *const *const Info,
) -> Result<Spawn, Status> {
    // SAFETY: as the caller promises; lists that may be left out are null.
    unsafe {
        let commands = array(commands, count)?;
        let processes = array(processes, count)?;
        let has_arguments = !argument_counts.is_null() && !arguments.is_null();
        let argument_counts = if has_arguments {
            array(argument_counts, count)?
        } else {
            &[]
        };
        let arguments = if has_arguments {
            array(arguments, count)?
        } else {
            &[]
        };
        let has_infos = !info_sizes.is_null() && !infos.is_null();
        let info_sizes = if has_infos { array(info_sizes, count)? } else { &[] };
        let infos = if has_infos { array(infos, count)? } else { &[] };
        let mut spawn = Spawn {
            preput: Vec::new(),
            commands: Vec::new(),
        };
        for &pair in array(preput, preput_size)? {
            spawn.preput.push(pair_of(item(pair)?)?);
        }
        for (index, &program) in commands.iter().enumerate() {
            let list = match (arguments.get(index), argument_counts.get(index)) {
                (Some(&list), Some(&count)) => texts(list, usize::try_from(count).unwrap_or(0)),
                _ => Vec::new(),
            };
            let info = match (infos.get(index), info_sizes.get(index)) {
                (Some(&info), Some(&size)) => array(info, size)?
                    .iter()
                    .map(|pair| pair_of(pair))
                    .collect::<Result<_, _>>()?,
                _ => Vec::new(),
            };
            spawn.commands.push(SpawnCommand {
                program: text(program)?.into(),
                processes: u32::try_from(processes[index]).map_err(|_| Status::INVALID_ARGUMENT)?,
                arguments: list.into_iter().map(Into::into).collect(),
                info,
            });
        }
        Ok(spawn)
    }
}

/// # Safety
/// The pair's pointers are null or point to text.
unsafe fn pair_of(pair: &Info) -> Result<(bstr::BString, bstr::BString), Status> {
    // SAFETY: as the caller promises.
    unsafe { Ok((text(pair.key)?.into(), text(pair.value)?.into())) }
}
