//! The functions that C calls. What each does stands in `include/rw_checkpoint.h`; what their callers promise is what C
//! always promises: that pointers point to what the header says, or are null where null makes sense.

use std::{
    cell::RefCell,
    ffi::{CStr, CString, OsStr, c_char, c_int},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    ptr,
    time::Duration,
};

use ropewalk_checkpoint::{
    AdvisorOptions, Alone, FastLevel, Level, Mtbf, Reason, Restored, RunAdvisor, Save, SharedDirectory,
    Store, StoreOptions, default_mtbf_of_job, directory_of_job, mtbf_of_job, optimal_interval, restore_all,
};

use crate::failure::{self, Failure, guarded};

/// `rw_checkpoint_advisor`.
#[derive(Debug)]
pub struct Advisor(RunAdvisor);

/// `rw_checkpoint_store`.
#[derive(Debug)]
pub struct OpenStore {
    store: Store,
    /// What the last restore gave out.
    folder: CString,
}

/// `rw_checkpoint_save`.
#[derive(Debug)]
pub struct OpenSave {
    save: Save,
    folder: CString,
}

/// `rw_checkpoint_advisor_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CAdvisorOptions {
    size: usize,
    mtbf: f64,
    mtbf_is_known: c_int,
    save: f64,
    restore: f64,
    limit: f64,
    steps: u64,
    fast_save: f64,
    fast_covers: f64,
}

/// `rw_checkpoint_decision`.
#[derive(Debug)]
#[repr(C)]
pub struct CDecision {
    save: c_int,
    level: c_int,
    reason: *const c_char,
    interval: f64,
    overhead: f64,
    mtbf: f64,
}

/// `rw_checkpoint_store_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CStoreOptions {
    size: usize,
    directory: *const c_char,
    rank: u32,
    ranks: u32,
    in_place: *const c_char,
    keep: u32,
    restarts_max: u32,
}

/// `rw_checkpoint_restored`.
#[derive(Debug)]
#[repr(C)]
pub struct CRestored {
    found: c_int,
    generation: u64,
    step: u64,
    folder: *const c_char,
    quarantined: u32,
    stuck: u32,
}

/// Declares functions of the library. Their bodies do not panic across the border.
macro_rules! exports {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block )*) => { $(
        #[doc = concat!("`", stringify!($name), "`: see `include/rw_checkpoint.h`.")]
        ///
        /// # Safety
        /// Its pointers are as the header says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            guarded(|| { $body Ok(()) })
        }
    )* };
}

exports! {
    fn rw_checkpoint_advisor_open(
        options: *const CAdvisorOptions,
        journal: *const c_char,
        advisor: *mut *mut Advisor,
    ) {
        // SAFETY: the caller promises that it is null or points to options.
        let options = match unsafe { options.as_ref() } {
            Some(options) => advisor_options(options)?,
            None => AdvisorOptions::default(),
        };
        // SAFETY: the caller promises that it is null or a text.
        let opened = match unsafe { path(journal) } {
            Some(journal) => RunAdvisor::start(&options, Some(journal.to_owned())),
            None => RunAdvisor::start_in_job(&options),
        }?;
        // SAFETY: the caller promises a place for the pointer.
        unsafe { hand_over(advisor, Advisor(opened)) }?;
    }

    fn rw_checkpoint_advisor_close(advisor: *mut Advisor, finished: c_int) {
        // SAFETY: the caller promises that it was opened and not closed.
        let advisor = unsafe { take_back(advisor) }?;
        if finished != 0 {
            advisor.0.finish();
        }
    }

    fn rw_checkpoint_step_end(advisor: *mut Advisor, decision: *mut CDecision) {
        // SAFETY: the caller promises that it was opened and not closed.
        let advisor = unsafe { object(advisor) }?;
        let advice = advisor.0.step_end();
        let made = CDecision {
            save: advice.decision.save.into(),
            level: advice.level as c_int,
            reason: reason(advice.decision.reason).as_ptr(),
            interval: advice.decision.interval,
            overhead: advice.decision.overhead,
            mtbf: advisor.0.advisor().mtbf(),
        };
        // SAFETY: the caller promises a place for it.
        unsafe { write(decision, made) }?;
    }

    fn rw_checkpoint_save_begin(advisor: *mut Advisor, level: c_int) {
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(advisor) }?.0.save_begin(level_of(level)?);
    }

    fn rw_checkpoint_save_copied(advisor: *mut Advisor, level: c_int) {
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(advisor) }?.0.save_copied(level_of(level)?);
    }

    fn rw_checkpoint_save_end(advisor: *mut Advisor, level: c_int) {
        // SAFETY: the caller promises that it was opened and not closed.
        let advisor = unsafe { object(advisor) }?;
        advisor.0.save_end(level_of(level)?);
        if let Some(failure) = advisor.0.take_failure() {
            return Err(failure.into());
        }
    }

    fn rw_checkpoint_save_failed(advisor: *mut Advisor, level: c_int) {
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(advisor) }?.0.save_failed(level_of(level)?);
    }

    fn rw_checkpoint_failed(advisor: *mut Advisor) {
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(advisor) }?.0.failed();
    }

    fn rw_checkpoint_restored_end(advisor: *mut Advisor) {
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(advisor) }?.0.restored();
    }

    fn rw_checkpoint_remaining_steps(advisor: *mut Advisor, steps: u64) {
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(advisor) }?.0.set_remaining_steps(Some(steps));
    }

    fn rw_checkpoint_preempt(advisor: *mut Advisor, notice: f64) {
        let notice = Duration::try_from_secs_f64(notice)
            .map_err(|_| Failure::bad_argument("the notice has to be a number of seconds, zero or more"))?;
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(advisor) }?.0.preempt(notice);
    }

    fn rw_checkpoint_store_open(options: *const CStoreOptions, store: *mut *mut OpenStore) {
        // SAFETY: the caller promises that it points to options.
        let options = unsafe { store_options(options) }?;
        let opened = OpenStore {
            store: Store::open(options)?,
            folder: CString::default(),
        };
        // SAFETY: the caller promises a place for the pointer.
        unsafe { hand_over(store, opened) }?;
    }

    fn rw_checkpoint_store_close(store: *mut OpenStore) {
        // SAFETY: the caller promises that it was opened and not closed.
        drop(unsafe { take_back(store) }?);
    }

    fn rw_checkpoint_store_restore(store: *mut OpenStore, restored: *mut CRestored) {
        // SAFETY: the caller promises that it was opened and not closed.
        let open = unsafe { object(store) }?;
        let found = open.store.restore(&mut Alone)?;
        // SAFETY: the caller promises a place for it.
        unsafe { write_restored(restored, &found, &mut open.folder) }?;
    }

    fn rw_checkpoint_store_restore_shared(
        store: *mut OpenStore,
        start: *const c_char,
        patience: f64,
        restored: *mut CRestored,
    ) {
        // SAFETY: the caller promises that it was opened and not closed.
        let open = unsafe { object(store) }?;
        // SAFETY: the caller promises a text.
        let start = unsafe { text(start) }.ok_or_else(|| Failure::bad_argument("the start needs a name"))?;
        if start.is_empty() || start.contains('/') {
            return Err(Failure::bad_argument("the name of the start has to be one of a file"));
        }
        let patience = Duration::try_from_secs_f64(patience)
            .map_err(|_| Failure::bad_argument("the patience has to be a number of seconds, zero or more"))?;
        let StoreOptions { directory, rank, ranks, .. } = open.store.options().clone();
        let mut others = SharedDirectory::new(directory, &start, rank, ranks, patience);
        let found = open.store.restore(&mut others)?;
        // SAFETY: the caller promises a place for it.
        unsafe { write_restored(restored, &found, &mut open.folder) }?;
    }

    fn rw_checkpoint_restore_all(options: *const CStoreOptions, restored: *mut CRestored) {
        // SAFETY: the caller promises that it points to options.
        let options = unsafe { store_options(options) }?;
        let mut stores = Vec::new();
        for rank in 0..options.ranks {
            stores.push(Store::open(StoreOptions { rank, ..options.clone() })?);
        }
        let mut all = restore_all(&mut stores)?.into_iter();
        let mut found = all.next().ok_or_else(|| Failure::bad_argument("there has to be a rank"))?;
        for other in all {
            found.quarantined.extend(other.quarantined);
            found.stuck.extend(other.stuck);
        }
        FOLDER.with_borrow_mut(|folder| {
            // SAFETY: the caller promises a place for it.
            unsafe { write_restored(restored, &found, folder) }
        })?;
    }

    fn rw_checkpoint_store_begin(store: *mut OpenStore, step: u64, save: *mut *mut OpenSave) {
        // SAFETY: the caller promises that it was opened and not closed.
        let begun = unsafe { object(store) }?.store.begin(step)?;
        let folder = c_path(begun.folder());
        // SAFETY: the caller promises a place for the pointer.
        unsafe { hand_over(save, OpenSave { save: begun, folder }) }?;
    }

    fn rw_checkpoint_save_add(save: *mut OpenSave, name: *const c_char) {
        // SAFETY: the caller promises a text.
        let name = unsafe { path(name) }.ok_or_else(|| Failure::bad_argument("a path is missing"))?;
        // SAFETY: the caller promises that it was begun and is not over.
        unsafe { object(save) }?.save.add(name)?;
    }

    fn rw_checkpoint_save_keep(save: *mut OpenSave) {
        // SAFETY: the caller promises that it was begun and is not over.
        unsafe { object(save) }?.save.keep();
    }

    fn rw_checkpoint_save_level(save: *mut OpenSave, level: c_int) {
        // SAFETY: the caller promises that it was begun and is not over.
        unsafe { object(save) }?.save.set_level(level_of(level)?);
    }

    fn rw_checkpoint_store_commit(store: *mut OpenStore, save: *mut OpenSave) {
        // SAFETY: the caller promises that it was opened and not closed.
        let open = unsafe { object(store) }?;
        // SAFETY: the caller promises that it was begun and is not over.
        open.store.commit(unsafe { take_back(save) }?.save)?;
    }

    fn rw_checkpoint_store_abandon(store: *mut OpenStore, save: *mut OpenSave) {
        // SAFETY: the caller promises that it was opened and not closed.
        let open = unsafe { object(store) }?;
        // SAFETY: the caller promises that it was begun and is not over.
        open.store.abandon(unsafe { take_back(save) }?.save);
    }

    fn rw_checkpoint_store_retire(store: *mut OpenStore) {
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(store) }?.store.retire()?;
    }

    fn rw_checkpoint_store_quarantine(store: *mut OpenStore, name: *const c_char, why: *const c_char) {
        // SAFETY: the caller promises texts.
        let (name, why) = unsafe { (path(name), text(why)) };
        let name = name.ok_or_else(|| Failure::bad_argument("a path is missing"))?;
        let why = why.unwrap_or_else(|| "the program said so".into());
        // SAFETY: the caller promises that it was opened and not closed.
        unsafe { object(store) }?.store.quarantine_path_of(name, &why)?;
    }
}

/// `rw_checkpoint_error`: see `include/rw_checkpoint.h`.
#[unsafe(no_mangle)]
pub extern "C" fn rw_checkpoint_error() -> *const c_char {
    failure::last()
}

/// `rw_checkpoint_interval`: see `include/rw_checkpoint.h`.
#[unsafe(no_mangle)]
pub extern "C" fn rw_checkpoint_interval(save: f64, mtbf: f64) -> f64 {
    optimal_interval(save, mtbf)
}

/// `rw_checkpoint_save_folder`: see `include/rw_checkpoint.h`.
///
/// # Safety
/// Its pointer is as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rw_checkpoint_save_folder(save: *const OpenSave) -> *const c_char {
    // SAFETY: the caller promises that it is null, or was begun and is not over.
    unsafe { save.as_ref() }.map_or(ptr::null(), |save| save.folder.as_ptr())
}

fn advisor_options(options: &CAdvisorOptions) -> Result<AdvisorOptions, Failure> {
    if options.size != size_of::<CAdvisorOptions>() {
        return Err(Failure::bad_argument(
            "the options have another size: begin with RW_CHECKPOINT_ADVISOR_OPTIONS, and compile with the header of this library",
        ));
    }
    let numbers = [
        options.mtbf,
        options.save,
        options.restore,
        options.limit,
        options.fast_save,
        options.fast_covers,
    ];
    if !numbers.iter().all(|number| (0.0..f64::INFINITY).contains(number)) {
        return Err(Failure::bad_argument(
            "times have to be numbers of seconds, zero or more",
        ));
    }
    let default = AdvisorOptions::default();
    let or = |given: f64, default: f64| if given > 0.0 { given } else { default };
    Ok(AdvisorOptions {
        mtbf: match options.mtbf {
            0.0 => mtbf_of_job().unwrap_or_else(default_mtbf_of_job),
            mtbf if options.mtbf_is_known == 0 => Mtbf::Learned(mtbf),
            mtbf => Mtbf::Known(mtbf),
        },
        save: (options.save > 0.0).then_some(options.save),
        restore: or(options.restore, default.restore),
        limit: (options.limit > 0.0).then_some(options.limit),
        steps: (options.steps > 0).then_some(options.steps),
        fast: (options.fast_save > 0.0).then_some(FastLevel {
            save: options.fast_save,
            covers: options.fast_covers,
        }),
        // A job's supervisor says it.
        host_mtbf: None,
    })
}

/// # Safety
/// It is null or points to options whose texts are null or end with a zero.
unsafe fn store_options(options: *const CStoreOptions) -> Result<StoreOptions, Failure> {
    // SAFETY: the caller promises it.
    let options =
        unsafe { options.as_ref() }.ok_or_else(|| Failure::bad_argument("the options are missing"))?;
    if options.size != size_of::<CStoreOptions>() {
        return Err(Failure::bad_argument(
            "the options have another size: begin with RW_CHECKPOINT_STORE_OPTIONS, and compile with the header of this library",
        ));
    }
    // SAFETY: the caller promises it.
    let (directory, in_place) = unsafe { (path(options.directory), path(options.in_place)) };
    let directory = match directory {
        Some(directory) => directory.to_owned(),
        None => directory_of_job().ok_or_else(|| Failure::bad_argument(NO_DIRECTORY))?,
    };
    if options.rank >= options.ranks {
        return Err(Failure::bad_argument(
            "the rank has to be below the number of ranks",
        ));
    }
    let mut made = StoreOptions {
        rank: options.rank,
        ranks: options.ranks,
        in_place: in_place.map(Path::to_owned),
        keep: options.keep as usize,
        ..StoreOptions::new(directory)
    };
    if options.restarts_max > 0 {
        made.restarts_max = options.restarts_max;
    }
    Ok(made)
}

/// # Safety
/// It is null or a place for what was restored.
unsafe fn write_restored(
    place: *mut CRestored,
    found: &Restored,
    folder: &mut CString,
) -> Result<(), Failure> {
    *folder = found.folder.as_deref().map(c_path).unwrap_or_default();
    let count = |list: usize| u32::try_from(list).unwrap_or(u32::MAX);
    let restored = CRestored {
        found: found.from.is_some().into(),
        generation: found.from.map_or(0, |held| held.generation),
        step: found.from.map_or(0, |held| held.step),
        folder: match found.from {
            Some(_) => folder.as_ptr(),
            None => ptr::null(),
        },
        quarantined: count(found.quarantined.len()),
        stuck: count(found.stuck.len()),
    };
    // SAFETY: the caller promises it.
    unsafe { write(place, restored) }
}

fn level_of(level: c_int) -> Result<Level, Failure> {
    [Level::Fast, Level::Full]
        .into_iter()
        .find(|known| *known as c_int == level)
        .ok_or_else(|| Failure::bad_argument("a level is RW_CHECKPOINT_FAST or RW_CHECKPOINT_FULL"))
}

fn reason(reason: Reason) -> &'static CStr {
    match reason {
        Reason::NotYet => c"not yet",
        Reason::IntervalOver => c"the interval is over",
        Reason::NextIsTooLate => c"after the next step it would be too late",
        Reason::CheaperNow => c"it costs less now than after the next step",
        Reason::StepsDone => c"as many steps are done",
        Reason::EndIsNear => c"the run is over before a save would be of use",
        Reason::EndIsAnnounced => c"the job will be ended",
        Reason::LimitIsNear => c"the time of the job is nearly over",
        Reason::NoTimeLeft => c"there is no time left for a save",
        Reason::LastSaveFailed => c"the last save failed, and it is too early to try again",
        Reason::LastSaveUnderWay => c"the last save is still being written",
        Reason::SaveTimeUnknown => c"nobody knows how long a save takes, and this one will tell",
    }
}

fn c_path(path: &Path) -> CString {
    // A path of the operating system has no zero in it.
    CString::new(PathBuf::from(path).into_os_string().into_vec()).unwrap_or_default()
}

/// # Safety
/// It is null or a text that ends with a zero and stays as long as the result.
unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(text) };
    Some(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// # Safety
/// It is null or a text that ends with a zero.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the caller promises it.
    let text = unsafe { path(text) };
    text.map(|text| text.to_string_lossy().into_owned())
}

/// # Safety
/// It is null or points to an object that was handed over and not taken back, and nobody else uses it.
unsafe fn object<'a, T>(object: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller promises it.
    unsafe { object.as_mut() }.ok_or_else(|| Failure::bad_argument("an object is missing: was it opened?"))
}

/// # Safety
/// It is null or a place for a pointer.
unsafe fn hand_over<T>(place: *mut *mut T, object: T) -> Result<(), Failure> {
    let object = Box::into_raw(Box::new(object));
    // SAFETY: the caller promises it.
    unsafe { write(place, object) }.inspect_err(|_| {
        // SAFETY: nobody else has got it.
        drop(unsafe { Box::from_raw(object) });
    })
}

/// # Safety
/// It is null or points to an object that was handed over and not taken back.
unsafe fn take_back<T>(object: *mut T) -> Result<T, Failure> {
    if object.is_null() {
        return Err(Failure::bad_argument("an object is missing: was it opened?"));
    }
    // SAFETY: the caller promises that it came from `hand_over`.
    Ok(*unsafe { Box::from_raw(object) })
}

/// # Safety
/// It is null or a place for the value.
unsafe fn write<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::bad_argument("a place for the answer is missing"));
    }
    // SAFETY: the caller promises it.
    unsafe { place.write(value) };
    Ok(())
}

const NO_DIRECTORY: &str = "no directory was given for the store, and the program was not started by `ropewalk run \
     --checkpoint DIR`, which gives one";

thread_local! {
    /// What `rw_checkpoint_restore_all` gave out.
    static FOLDER: RefCell<CString> = RefCell::default();
}
