//! The functions that C calls. What each does stands in `include/pmi.h`; what their callers promise is what C always
//! promises: that pointers point to what the header says, or are null where null makes sense.

use std::ffi::{c_char, c_int};

use ropewalk_pmi::{Dialect, KEY_SIZE_MAX, KVSNAME_SIZE_MAX, Spawn, SpawnCommand};
use ropewalk_pmi_abi::{
    InText, OutPtr, OutText, Status, array, close, guarded, is_open, open, session, text, texts,
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
    fn PMI_Init(spawned: OutPtr<c_int>) {
        let session = open(Dialect::Pmi1)?;
        spawned.write(c_int::from(session.is_spawned()))
    }

    fn PMI_Initialized(initialized: OutPtr<c_int>) {
        initialized.write(c_int::from(is_open()))
    }

    fn PMI_Finalize() {
        close()
    }

    fn PMI_Get_size(size: OutPtr<c_int>) {
        size.write(session()?.size() as c_int)
    }

    fn PMI_Get_rank(rank: OutPtr<c_int>) {
        rank.write(session()?.rank() as c_int)
    }

    fn PMI_Get_universe_size(size: OutPtr<c_int>) {
        let known = session()?.universe_size()?;
        size.write(known.and_then(|size| c_int::try_from(size).ok()).unwrap_or(-1))
    }

    fn PMI_Get_appnum(appnum: OutPtr<c_int>) {
        appnum.write(session()?.appnum()?)
    }

    fn PMI_Publish_name(service: InText, port: InText) {
        let (service, port) = (service.get()?, port.get()?);
        session()?.publish(service, port)
    }

    fn PMI_Unpublish_name(service: InText) {
        session()?.unpublish(service.get()?)
    }

    fn PMI_Lookup_name(service: InText, port: OutText) {
        let found = session()?.lookup(service.get()?)?;
        // The interface does not say how much room there is; MPI_MAX_PORT_NAME, which callers use, is 256 or more.
        port.copy(found.len() as c_int + 1, &found)
    }

    fn PMI_Get_id(id: OutText, length: c_int) {
        id.copy(length, session()?.kvsname())
    }

    fn PMI_Get_kvs_domain_id(id: OutText, length: c_int) {
        id.copy(length, session()?.kvsname())
    }

    fn PMI_Get_id_length_max(length: OutPtr<c_int>) {
        length.write(KVSNAME_SIZE_MAX as c_int)
    }

    fn PMI_Barrier() {
        session()?.fence()
    }

    fn PMI_Get_clique_size(size: OutPtr<c_int>) {
        size.write(session()?.clique()?.len() as c_int)
    }

    fn PMI_Get_clique_ranks(ranks: OutPtr<c_int>, length: c_int) {
        let clique = session()?.clique()?;
        if usize::try_from(length).is_ok_and(|room| room < clique.len()) {
            return Err(Status::INVALID_LENGTH);
        }
        ranks.write_each(length, clique.into_iter().map(|rank| rank as c_int)).map(drop)
    }

    fn PMI_Abort(exit_code: c_int, message: InText) {
        let message = message.get().ok();
        if let Ok(session) = session()
            && let Some(client) = session.client()
        {
            // The process ends in any case.
            let _ = client.abort(exit_code, message);
        }
        std::process::exit(exit_code)
    }

    fn PMI_KVS_Get_my_name(kvsname: OutText, length: c_int) {
        kvsname.copy(length, session()?.kvsname())
    }

    fn PMI_KVS_Get_name_length_max(length: OutPtr<c_int>) {
        length.write(KVSNAME_SIZE_MAX as c_int)
    }

    fn PMI_KVS_Get_key_length_max(length: OutPtr<c_int>) {
        length.write(KEY_SIZE_MAX as c_int)
    }

    fn PMI_KVS_Get_value_length_max(length: OutPtr<c_int>) {
        // The end of the text takes a byte of what the caller will have.
        length.write(session()?.value_size_max() as c_int + 1)
    }

    fn PMI_KVS_Create(_kvsname: OutText, _length: c_int) {
        // The wire protocol has one key-value space for a job.
        Err(Status::FAIL)
    }

    fn PMI_KVS_Destroy(_kvsname: InText) {
        Err(Status::FAIL)
    }

    fn PMI_KVS_Put(kvsname: InText, key: InText, value: InText) {
        let (kvsname, key, value) = (kvsname.get()?, key.get()?, value.get()?);
        let session = session()?;
        if kvsname != session.kvsname() {
            return Err(Status::INVALID_ARGUMENT);
        }
        session.put(key, value)
    }

    fn PMI_KVS_Commit(kvsname: InText) {
        // What is put is sent at once.
        let kvsname = kvsname.get()?;
        match kvsname == session()?.kvsname() {
            true => Ok(()),
            false => Err(Status::INVALID_ARGUMENT),
        }
    }

    fn PMI_KVS_Get(kvsname: InText, key: InText, value: OutText, length: c_int) {
        let (kvsname, key) = (kvsname.get()?, key.get()?);
        let found = session()?.get(Some(kvsname), key)?.ok_or(Status::FAIL)?;
        value.copy(length, &found)
    }

    fn PMI_KVS_Iter_first(
        _kvsname: InText,
        _key: OutText,
        _key_length: c_int,
        _value: OutText,
        _value_length: c_int,
    ) {
        // The wire protocol does not list keys.
        Err(Status::FAIL)
    }

    fn PMI_KVS_Iter_next(
        _kvsname: InText,
        _key: OutText,
        _key_length: c_int,
        _value: OutText,
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
        errors: OutPtr<c_int>,
    ) {
        // SAFETY: the caller promises it.
        let spawn = unsafe { spawn_of(count, commands, arguments, processes, info_sizes, infos, preput_size, preput) }?;
        let spawned = session()?.spawn(&spawn)?;
        if !errors.is_null() {
            let errcode = |index: usize| spawned.errcodes.get(index).copied().unwrap_or(0);
            let count = spawn.processes();
            errors.write_each(count as c_int, (0..count as usize).map(errcode))?;
        }
        Ok(())
    }

    fn PMI_Parse_option(
        _count: c_int,
        _arguments: *mut *mut c_char,
        parsed: OutPtr<c_int>,
        pairs: OutPtr<*mut KeyValue>,
        size: OutPtr<c_int>,
    ) {
        // There are no options of our own among a program's arguments.
        parsed.write(0)?;
        pairs.write(std::ptr::null_mut())?;
        size.write(0)
    }

    fn PMI_Args_to_keyval(
        _count: OutPtr<c_int>,
        _arguments: *mut *mut *mut c_char,
        pairs: OutPtr<*mut KeyValue>,
        size: OutPtr<c_int>,
    ) {
        pairs.write(std::ptr::null_mut())?;
        size.write(0)
    }

    fn PMI_Free_keyvals(pairs: *mut KeyValue, _size: c_int) {
        // We hand out none.
        match pairs.is_null() {
            true => Ok(()),
            false => Err(Status::INVALID_ARGUMENT),
        }
    }

    fn PMI_Get_options(options: OutText, length: OutPtr<c_int>) {
        options.copy(length.read()?, b"")?;
        length.write(0)
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
