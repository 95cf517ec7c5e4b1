//! The functions that C calls. What each does stands in `include/pmi2.h`; what their callers promise is what C always
//! promises: that pointers point to what the header says, or are null where null makes sense.

use std::ffi::{c_char, c_int, c_void};

use ropewalk_pmi::{Dialect, Spawn, SpawnCommand};
use ropewalk_pmi_abi::{
    InText, OutPtr, OutText, Status, array, close, guarded, is_open, item, open, session, text, texts,
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
    fn PMI2_Init(spawned: OutPtr<c_int>, size: OutPtr<c_int>, rank: OutPtr<c_int>, appnum: OutPtr<c_int>) {
        let session = open(Dialect::Pmi2)?;
        spawned.write(c_int::from(session.is_spawned()))?;
        size.write(session.size() as c_int)?;
        rank.write(session.rank() as c_int)?;
        appnum.write(session.appnum()?)
    }

    fn PMI2_Finalize() {
        close()
    }

    fn PMI2_Abort(_is_world: c_int, message: InText) {
        let message = message.get().ok();
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
        job: OutText,
        job_size: c_int,
        errors: OutPtr<c_int>,
    ) {
        // SAFETY: the caller promises it.
        let spawn = unsafe {
            spawn_of(count, commands, argument_counts, arguments, processes, info_sizes, infos, preput_size, preput)
        }?;
        let spawned = session()?.spawn(&spawn)?;
        if !errors.is_null() {
            let errcode = |index: usize| spawned.errcodes.get(index).copied().unwrap_or(0);
            let count = spawn.processes();
            errors.write_each(count as c_int, (0..count as usize).map(errcode))?;
        }
        match job.is_null() {
            true => Ok(()),
            false => job.copy(job_size, &spawned.kvsname),
        }
    }

    fn PMI2_Job_GetId(job: OutText, size: c_int) {
        job.copy(size, session()?.kvsname())
    }

    fn PMI2_Job_GetRank(rank: OutPtr<c_int>) {
        rank.write(session()?.rank() as c_int)
    }

    fn PMI2_Info_GetSize(size: OutPtr<c_int>) {
        let session = session()?;
        size.write(session.clique()?.len() as c_int)
    }

    fn PMI2_Job_Connect(job: InText, _connection: *mut c_void) {
        let job = job.get()?;
        match session()?.client() {
            Some(client) => Ok(client.connect_job(job)?),
            None => Err(Status::FAIL),
        }
    }

    fn PMI2_Job_Disconnect(job: InText) {
        let job = job.get()?;
        match session()?.client() {
            Some(client) => Ok(client.disconnect_job(job)?),
            None => Err(Status::FAIL),
        }
    }

    fn PMI2_KVS_Put(key: InText, value: InText) {
        let (key, value) = (key.get()?, value.get()?);
        session()?.put(key, value)
    }

    fn PMI2_KVS_Get(
        job: InText,
        _source: c_int,
        key: InText,
        value: OutText,
        value_size: c_int,
        length: OutPtr<c_int>,
    ) {
        // No job is this job.
        let (job, key) = (job.get().ok(), key.get()?);
        let found = session()?.get(job, key)?.ok_or(Status::OTHER)?;
        let whole = c_int::try_from(found.len()).map_err(|_| Status::INVALID_VALUE_LENGTH)?;
        // "length of value returned, or, if the length is not long enough, -1 times the actual length".
        value.fill(value_size, &found)?;
        length.write(if whole < value_size { whole } else { -whole })
    }

    fn PMI2_KVS_Fence() {
        session()?.fence()
    }

    fn PMI2_Info_GetNodeAttr(
        name: InText,
        value: OutText,
        value_size: c_int,
        found: OutPtr<c_int>,
        wait: c_int,
    ) {
        let name = name.get()?;
        let attribute = session()?.node_attribute(name, wait != 0)?;
        attribute_out(attribute, value, value_size, found)
    }

    fn PMI2_Info_GetNodeAttrIntArray(
        name: InText,
        array: OutPtr<c_int>,
        size: c_int,
        length: OutPtr<c_int>,
        found: OutPtr<c_int>,
    ) {
        let name = name.get()?;
        let attribute = session()?.node_attribute(name, false)?;
        numbers_out(attribute, array, size, length, found)
    }

    fn PMI2_Info_PutNodeAttr(name: InText, value: InText) {
        let (name, value) = (name.get()?, value.get()?);
        session()?.put_node_attribute(name, value)
    }

    fn PMI2_Info_GetJobAttr(name: InText, value: OutText, value_size: c_int, found: OutPtr<c_int>) {
        let name = name.get()?;
        let attribute = session()?.job_attribute(name)?;
        attribute_out(attribute, value, value_size, found)
    }

    fn PMI2_Info_GetJobAttrIntArray(
        name: InText,
        array: OutPtr<c_int>,
        size: c_int,
        length: OutPtr<c_int>,
        found: OutPtr<c_int>,
    ) {
        let name = name.get()?;
        let attribute = session()?.job_attribute(name)?;
        numbers_out(attribute, array, size, length, found)
    }

    fn PMI2_Nameserv_publish(service: InText, _info: *const Info, port: InText) {
        let (service, port) = (service.get()?, port.get()?);
        session()?.publish(service, port)
    }

    fn PMI2_Nameserv_lookup(service: InText, _info: *const Info, port: OutText, size: c_int) {
        let found = session()?.lookup(service.get()?)?;
        port.copy(size, &found)
    }

    fn PMI2_Nameserv_unpublish(service: InText, _info: *const Info) {
        session()?.unpublish(service.get()?)
    }

    fn PMIX_Ring(
        value: InText,
        rank: OutPtr<c_int>,
        ranks: OutPtr<c_int>,
        left: OutText,
        right: OutText,
        size: c_int,
    ) {
        use std::sync::atomic::{AtomicU32, Ordering};

        // Each process's rings are the same as the others', in the same order.
        static RINGS: AtomicU32 = AtomicU32::new(0);
        let ring = RINGS.fetch_add(1, Ordering::Relaxed);
        let session = session()?;
        let (own, all) = (session.rank(), session.size());
        let key = |of: u32| format!("-ring-{ring}-{of}");
        session.put(key(own).as_bytes(), value.get()?)?;
        session.fence()?;
        for (neighbour, out) in [((own + all - 1) % all, left), ((own + 1) % all, right)] {
            let found = session.get(None, key(neighbour).as_bytes())?.ok_or(Status::OTHER)?;
            out.copy(size, &found)?;
        }
        rank.write(own as c_int)?;
        ranks.write(all as c_int)
    }
}

/// The exit code of a job that is aborted: PMI-2 has a message, and no code.
const ABORTED: c_int = 1;

fn attribute_out(
    attribute: Option<Vec<u8>>,
    value: OutText,
    value_size: c_int,
    found: OutPtr<c_int>,
) -> Result<(), Status> {
    if let Some(attribute) = &attribute {
        value.copy(value_size, attribute)?;
    }
    found.write(c_int::from(attribute.is_some()))
}

/// Numbers with commas between them.
fn numbers_out(
    attribute: Option<Vec<u8>>,
    array: OutPtr<c_int>,
    size: c_int,
    length: OutPtr<c_int>,
    found: OutPtr<c_int>,
) -> Result<(), Status> {
    let numbers: Option<Vec<c_int>> = attribute.as_ref().map(|attribute| {
        let text = String::from_utf8_lossy(attribute);
        text.split(',')
            .filter_map(|number| number.trim().parse().ok())
            .collect()
    });
    let is_found = numbers.is_some();
    let written = match numbers {
        Some(numbers) => array.write_each(size, numbers)?,
        None => 0,
    };
    length.write(written as c_int)?;
    found.write(c_int::from(is_found))
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
