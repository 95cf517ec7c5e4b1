//! The functions that C calls. What each does stands in `include/pmi.h`; what their callers promise is what C always
//! promises: that pointers point to what the header says, or are null where null makes sense.

use std::ffi::{c_char, c_int};

use ropewalk_pmi::{Dialect, KEY_SIZE_MAX, KVSNAME_SIZE_MAX, Spawn, SpawnCommand};
use ropewalk_pmi_abi::{
    Status, array, close, copy_text, guarded, is_open, open, session, slots, text, texts, write,
};

/// `PMI_keyval_t`.
#[repr(C)]
pub struct KeyValue {
    key: *const c_char,
    value: *mut c_char,
}

/// The most arguments of one command of a spawn.
const ARGUMENTS_MAX: usize = 1 << 16;

/// Declares functions of the library. Their bodies give a status, and do not panic across the border.
macro_rules! exports {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block )*) => { $(
        #[doc = concat!("`", stringify!($name), "`: see `include/pmi.h`.")]
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

exports! {
    fn PMI_Init(spawned: *mut c_int) {
        let session = open(Dialect::Pmi1)?;
        // SAFETY: the caller promises it.
        unsafe { write(spawned, c_int::from(session.is_spawned())) }
    }

    fn PMI_Initialized(initialized: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(initialized, c_int::from(is_open())) }
    }

    fn PMI_Finalize() {
        close()
    }

    fn PMI_Get_size(size: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(size, session()?.size() as c_int) }
    }

    fn PMI_Get_rank(rank: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(rank, session()?.rank() as c_int) }
    }

    fn PMI_Get_universe_size(size: *mut c_int) {
        let known = session()?.universe_size()?;
        // SAFETY: the caller promises it.
        unsafe { write(size, known.and_then(|size| c_int::try_from(size).ok()).unwrap_or(-1)) }
    }

    fn PMI_Get_appnum(appnum: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(appnum, session()?.appnum()?) }
    }

    fn PMI_Publish_name(service: *const c_char, port: *const c_char) {
        // SAFETY: the caller promises it.
        let (service, port) = unsafe { (text(service)?, text(port)?) };
        session()?.publish(service, port)
    }

    fn PMI_Unpublish_name(service: *const c_char) {
        // SAFETY: the caller promises it.
        session()?.unpublish(unsafe { text(service) }?)
    }

    fn PMI_Lookup_name(service: *const c_char, port: *mut c_char) {
        // SAFETY: the caller promises it.
        let found = session()?.lookup(unsafe { text(service) }?)?;
        // The interface does not say how much room there is; MPI_MAX_PORT_NAME, which callers use, is 256 or more.
        // SAFETY: the caller promises room for a port.
        unsafe { copy_text(port, found.len() as c_int + 1, &found) }
    }

    fn PMI_Get_id(id: *mut c_char, length: c_int) {
        // SAFETY: the caller promises it.
        unsafe { copy_text(id, length, session()?.kvsname()) }
    }

    fn PMI_Get_kvs_domain_id(id: *mut c_char, length: c_int) {
        // SAFETY: the caller promises it.
        unsafe { copy_text(id, length, session()?.kvsname()) }
    }

    fn PMI_Get_id_length_max(length: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(length, KVSNAME_SIZE_MAX as c_int) }
    }

    fn PMI_Barrier() {
        session()?.fence()
    }

    fn PMI_Get_clique_size(size: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(size, session()?.clique()?.len() as c_int) }
    }

    fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) {
        let clique = session()?.clique()?;
        // SAFETY: the caller promises it.
        let room = unsafe { slots(ranks, length) }?;
        let room = room.get_mut(..clique.len()).ok_or(Status::INVALID_LENGTH)?;
        for (slot, rank) in room.iter_mut().zip(clique) {
            *slot = rank as c_int;
        }
        Ok(())
    }

    fn PMI_Abort(exit_code: c_int, message: *const c_char) {
        // SAFETY: the caller promises it, and null is no message.
        let message = unsafe { text(message) }.ok();
        if let Ok(session) = session()
            && let Some(client) = session.client()
        {
            // The process ends in any case.
            let _ = client.abort(exit_code, message);
        }
        std::process::exit(exit_code)
    }

    fn PMI_KVS_Get_my_name(kvsname: *mut c_char, length: c_int) {
        // SAFETY: the caller promises it.
        unsafe { copy_text(kvsname, length, session()?.kvsname()) }
    }

    fn PMI_KVS_Get_name_length_max(length: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(length, KVSNAME_SIZE_MAX as c_int) }
    }

    fn PMI_KVS_Get_key_length_max(length: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe { write(length, KEY_SIZE_MAX as c_int) }
    }

    fn PMI_KVS_Get_value_length_max(length: *mut c_int) {
        // The end of the text takes a byte of what the caller will have.
        // SAFETY: the caller promises it.
        unsafe { write(length, session()?.value_size_max() as c_int + 1) }
    }

    fn PMI_KVS_Create(_kvsname: *mut c_char, _length: c_int) {
        // The wire protocol has one key-value space for a job.
        Err(Status::FAIL)
    }

    fn PMI_KVS_Destroy(_kvsname: *const c_char) {
        Err(Status::FAIL)
    }

    fn PMI_KVS_Put(kvsname: *const c_char, key: *const c_char, value: *const c_char) {
        // SAFETY: the caller promises it.
        let (kvsname, key, value) = unsafe { (text(kvsname)?, text(key)?, text(value)?) };
        let session = session()?;
        if kvsname != session.kvsname() {
            return Err(Status::INVALID_ARGUMENT);
        }
        session.put(key, value)
    }

    fn PMI_KVS_Commit(kvsname: *const c_char) {
        // What is put is sent at once.
        // SAFETY: the caller promises it.
        let kvsname = unsafe { text(kvsname) }?;
        match kvsname == session()?.kvsname() {
            true => Ok(()),
            false => Err(Status::INVALID_ARGUMENT),
        }
    }

    fn PMI_KVS_Get(kvsname: *const c_char, key: *const c_char, value: *mut c_char, length: c_int) {
        // SAFETY: the caller promises it.
        let (kvsname, key) = unsafe { (text(kvsname)?, text(key)?) };
        let found = session()?.get(Some(kvsname), key)?.ok_or(Status::FAIL)?;
        // SAFETY: the caller promises it.
        unsafe { copy_text(value, length, &found) }
    }

    fn PMI_KVS_Iter_first(
        _kvsname: *const c_char,
        _key: *mut c_char,
        _key_length: c_int,
        _value: *mut c_char,
        _value_length: c_int,
    ) {
        // The wire protocol does not list keys.
        Err(Status::FAIL)
    }

    fn PMI_KVS_Iter_next(
        _kvsname: *const c_char,
        _key: *mut c_char,
        _key_length: c_int,
        _value: *mut c_char,
        _value_length: c_int,
    ) {
        Err(Status::FAIL)
    }

    fn PMI_Spawn_multiple(
        count: c_int,
        commands: *const *const c_char,
        arguments: *const *const *const c_char,
        processes: *const c_int,
        info_sizes: *const c_int,
        infos: *const *const KeyValue,
        preput_size: c_int,
        preput: *const KeyValue,
        errors: *mut c_int,
    ) {
        // SAFETY: the caller promises it.
        let spawn = unsafe { spawn_of(count, commands, arguments, processes, info_sizes, infos, preput_size, preput) }?;
        let spawned = session()?.spawn(&spawn)?;
        if !errors.is_null() {
            // SAFETY: the caller promises room for a code of each process.
            let errors = unsafe { slots(errors, spawn.processes() as c_int) }?;
            for (index, error) in errors.iter_mut().enumerate() {
                *error = spawned.errcodes.get(index).copied().unwrap_or(0);
            }
        }
        Ok(())
    }

    fn PMI_Parse_option(
        _count: c_int,
        _arguments: *mut *mut c_char,
        parsed: *mut c_int,
        pairs: *mut *mut KeyValue,
        size: *mut c_int,
    ) {
        // There are no options of our own among a program's arguments.
        // SAFETY: the caller promises it.
        unsafe {
            write(parsed, 0)?;
            write(pairs, std::ptr::null_mut())?;
            write(size, 0)
        }
    }

    fn PMI_Args_to_keyval(
        _count: *mut c_int,
        _arguments: *mut *mut *mut c_char,
        pairs: *mut *mut KeyValue,
        size: *mut c_int,
    ) {
        // SAFETY: the caller promises it.
        unsafe {
            write(pairs, std::ptr::null_mut())?;
            write(size, 0)
        }
    }

    fn PMI_Free_keyvals(pairs: *mut KeyValue, _size: c_int) {
        // We hand out none.
        match pairs.is_null() {
            true => Ok(()),
            false => Err(Status::INVALID_ARGUMENT),
        }
    }

    fn PMI_Get_options(options: *mut c_char, length: *mut c_int) {
        // SAFETY: the caller promises it.
        unsafe {
            copy_text(options, *ropewalk_pmi_abi::item(length)?, b"")?;
            write(length, 0)
        }
    }
}

/// # Safety
/// The pointers are those of `PMI_Spawn_multiple`.
#[allow(clippy::too_many_arguments, reason = "these are the interface's")]
unsafe fn spawn_of(
    count: c_int,
    commands: *const *const c_char,
    arguments: *const *const *const c_char,
    processes: *const c_int,
    info_sizes: *const c_int,
    infos: *const *const KeyValue,
    preput_size: c_int,
    preput: *const KeyValue,
) -> Result<Spawn, Status> {
    // SAFETY: as the caller promises; lists that may be left out are null.
    unsafe {
        let commands = array(commands, count)?;
        let processes = array(processes, count)?;
        let arguments = if arguments.is_null() {
            &[]
        } else {
            array(arguments, count)?
        };
        let has_infos = !info_sizes.is_null() && !infos.is_null();
        let info_sizes = if has_infos { array(info_sizes, count)? } else { &[] };
        let infos = if has_infos { array(infos, count)? } else { &[] };
        let mut spawn = Spawn {
            preput: pairs(preput, preput_size)?,
            commands: Vec::new(),
        };
        for (index, &program) in commands.iter().enumerate() {
            let list = arguments.get(index).map(|&list| texts(list, ARGUMENTS_MAX));
            let list = list.unwrap_or_default();
            let info = match (infos.get(index), info_sizes.get(index)) {
                (Some(&info), Some(&size)) => pairs(info, size)?,
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
/// The pointer is null or points to that many pairs.
unsafe fn pairs(pointer: *const KeyValue, size: c_int) -> Result<ropewalk_pmi::KeyValuePairs, Status> {
    // SAFETY: as the caller promises.
    let list = unsafe { array(pointer, size) }?;
    let pair = |pair: &KeyValue| {
        // SAFETY: as the caller promises.
        unsafe { Ok((text(pair.key)?.into(), text(pair.value)?.into())) }
    };
    list.iter().map(pair).collect()
}
