//! The functions that C calls, described in `include/rw_checkpoint.h`. Their callers promise what C always promises:
//! each pointer points to what the header says, or is null where null makes sense. The types of the arguments check
//! for null.

use std::{
    cell::RefCell,
    ffi::{CStr, CString, OsStr, c_char, c_int},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    ptr,
    time::Duration,
};

use ropewalk_c_abi as abi;
use ropewalk_checkpoint::{
    AdvisorOptions, Alone, FastLevel, Level, Mtbf, Reason, Restored, RunAdvisor, Save, SharedDirectory,
    Store, StoreOptions, default_mtbf_of_job, directory_of_job, mtbf_of_job, optimal_interval, restore_all,
};

use crate::failure::{self, Failure};

type InPtr<T> = abi::InPtr<T, Failure>;
type InText = abi::InText<Failure>;
type Object<T> = abi::Object<T, Failure>;
type OutPtr<T> = abi::OutPtr<T, Failure>;

/// `rw_checkpoint_advisor`.
#[derive(Debug)]
pub struct Advisor(RunAdvisor);

/// `rw_checkpoint_store`.
#[derive(Debug)]
pub struct OpenStore {
    store: Store,
    /// The folder of the last restore, to which the caller may hold a pointer.
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
#[derive(Debug)]
#[repr(C)]
pub struct CStoreOptions {
    size: usize,
    directory: InText,
    rank: u32,
    ranks: u32,
    in_place: InText,
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

exports! {
    fn rw_checkpoint_advisor_open(
        options: InPtr<CAdvisorOptions>,
        journal: InText,
        advisor: OutPtr<Object<Advisor>>,
    ) {
        let options = match options.get() {
            Some(options) => advisor_options(options)?,
            None => AdvisorOptions::default(),
        };
        let opened = match path(&journal) {
            Some(journal) => RunAdvisor::start(&options, Some(journal.to_owned())),
            None => RunAdvisor::start_in_job(&options),
        }?;
        advisor.hand_over(Advisor(opened))?;
    }

    fn rw_checkpoint_advisor_close(advisor: Object<Advisor>, finished: c_int) {
        let advisor = advisor.take_back()?;
        if finished != 0 {
            advisor.0.finish();
        }
    }

    fn rw_checkpoint_step_end(advisor: Object<Advisor>, decision: OutPtr<CDecision>) {
        let advisor = advisor.get()?;
        let advice = advisor.0.step_end();
        let made = CDecision {
            save: advice.decision.save.into(),
            level: advice.level as c_int,
            reason: reason(advice.decision.reason).as_ptr(),
            interval: advice.decision.interval,
            overhead: advice.decision.overhead,
            mtbf: advisor.0.advisor().mtbf(),
        };
        decision.write(made)?;
    }

    fn rw_checkpoint_save_begin(advisor: Object<Advisor>, level: c_int) {
        advisor.get()?.0.save_begin(level_of(level)?);
    }

    fn rw_checkpoint_save_copied(advisor: Object<Advisor>, level: c_int) {
        advisor.get()?.0.save_copied(level_of(level)?);
    }

    fn rw_checkpoint_save_end(advisor: Object<Advisor>, level: c_int) {
        let advisor = advisor.get()?;
        advisor.0.save_end(level_of(level)?);
        if let Some(failure) = advisor.0.take_failure() {
            return Err(failure.into());
        }
    }

    fn rw_checkpoint_save_failed(advisor: Object<Advisor>, level: c_int) {
        advisor.get()?.0.save_failed(level_of(level)?);
    }

    fn rw_checkpoint_failed(advisor: Object<Advisor>) {
        advisor.get()?.0.failed();
    }

    fn rw_checkpoint_restored_end(advisor: Object<Advisor>) {
        advisor.get()?.0.restored();
    }

    fn rw_checkpoint_remaining_steps(advisor: Object<Advisor>, steps: u64) {
        advisor.get()?.0.set_remaining_steps(Some(steps));
    }

    fn rw_checkpoint_preempt(advisor: Object<Advisor>, notice: f64) {
        let notice = Duration::try_from_secs_f64(notice)
            .map_err(|_| Failure::bad_argument("the notice has to be a number of seconds, zero or more"))?;
        advisor.get()?.0.preempt(notice);
    }

    fn rw_checkpoint_store_open(options: InPtr<CStoreOptions>, store: OutPtr<Object<OpenStore>>) {
        let options = store_options(&options)?;
        let opened = OpenStore {
            store: Store::open(options)?,
            folder: CString::default(),
        };
        store.hand_over(opened)?;
    }

    fn rw_checkpoint_store_close(store: Object<OpenStore>) {
        drop(store.take_back()?);
    }

    fn rw_checkpoint_store_restore(store: Object<OpenStore>, restored: OutPtr<CRestored>) {
        let open = store.get()?;
        let found = open.store.restore(&mut Alone)?;
        restored.write(restored_of(&found, &mut open.folder))?;
    }

    fn rw_checkpoint_store_restore_shared(
        store: Object<OpenStore>,
        start: InText,
        patience: f64,
        restored: OutPtr<CRestored>,
    ) {
        let open = store.get()?;
        let start = text(&start).ok_or_else(|| Failure::bad_argument("the start needs a name"))?;
        if start.is_empty() || start.contains('/') {
            return Err(Failure::bad_argument("the name of the start has to be one of a file"));
        }
        let patience = Duration::try_from_secs_f64(patience)
            .map_err(|_| Failure::bad_argument("the patience has to be a number of seconds, zero or more"))?;
        let StoreOptions { directory, rank, ranks, .. } = open.store.options().clone();
        let mut others = SharedDirectory::new(directory, &start, rank, ranks, patience);
        let found = open.store.restore(&mut others)?;
        restored.write(restored_of(&found, &mut open.folder))?;
    }

    fn rw_checkpoint_restore_all(options: InPtr<CStoreOptions>, restored: OutPtr<CRestored>) {
        let options = store_options(&options)?;
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
        restored.write(FOLDER.with_borrow_mut(|folder| restored_of(&found, folder)))?;
    }

    fn rw_checkpoint_store_begin(store: Object<OpenStore>, step: u64, save: OutPtr<Object<OpenSave>>) {
        let begun = store.get()?.store.begin(step)?;
        let folder = c_path(begun.folder());
        save.hand_over(OpenSave { save: begun, folder })?;
    }

    fn rw_checkpoint_save_add(save: Object<OpenSave>, name: InText) {
        let name = path(&name).ok_or_else(|| Failure::bad_argument("a path is missing"))?;
        save.get()?.save.add(name)?;
    }

    fn rw_checkpoint_save_keep(save: Object<OpenSave>) {
        save.get()?.save.keep();
    }

    fn rw_checkpoint_save_level(save: Object<OpenSave>, level: c_int) {
        save.get()?.save.set_level(level_of(level)?);
    }

    fn rw_checkpoint_store_commit(store: Object<OpenStore>, save: Object<OpenSave>) {
        let open = store.get()?;
        open.store.commit(save.take_back()?.save)?;
    }

    fn rw_checkpoint_store_abandon(store: Object<OpenStore>, save: Object<OpenSave>) {
        let open = store.get()?;
        open.store.abandon(save.take_back()?.save);
    }

    fn rw_checkpoint_store_retire(store: Object<OpenStore>) {
        store.get()?.store.retire()?;
    }

    fn rw_checkpoint_store_quarantine(store: Object<OpenStore>, name: InText, why: InText) {
        let why = text(&why).unwrap_or_else(|| "the program said so".into());
        let name = path(&name).ok_or_else(|| Failure::bad_argument("a path is missing"))?;
        store.get()?.store.quarantine_path_of(name, &why)?;
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
pub unsafe extern "C" fn rw_checkpoint_save_folder(mut save: Object<OpenSave>) -> *const c_char {
    save.get().map_or(ptr::null(), |save| save.folder.as_ptr())
}

fn advisor_options(options: &CAdvisorOptions) -> Result<AdvisorOptions, Failure> {
    if options.size != size_of::<CAdvisorOptions>() {
        return Err(Failure::bad_argument(
            "the options have another size: begin with RW_CHECKPOINT_ADVISOR_OPTIONS, and compile with the header of \
             this library",
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

fn store_options(options: &InPtr<CStoreOptions>) -> Result<StoreOptions, Failure> {
    let options = (options.get()).ok_or_else(|| Failure::bad_argument("the options are missing"))?;
    if options.size != size_of::<CStoreOptions>() {
        return Err(Failure::bad_argument(
            "the options have another size: begin with RW_CHECKPOINT_STORE_OPTIONS, and compile with the header of \
             this library",
        ));
    }
    let directory = match path(&options.directory) {
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
        in_place: path(&options.in_place).map(Path::to_owned),
        keep: options.keep as usize,
        ..StoreOptions::new(directory)
    };
    if options.restarts_max > 0 {
        made.restarts_max = options.restarts_max;
    }
    Ok(made)
}

/// The answer about a restore, whose folder stays in `folder`.
fn restored_of(found: &Restored, folder: &mut CString) -> CRestored {
    *folder = found.folder.as_deref().map(c_path).unwrap_or_default();
    let count = |list: usize| u32::try_from(list).unwrap_or(u32::MAX);
    CRestored {
        found: found.from.is_some().into(),
        generation: found.from.map_or(0, |held| held.generation),
        step: found.from.map_or(0, |held| held.step),
        folder: match found.from {
            Some(_) => folder.as_ptr(),
            None => ptr::null(),
        },
        quarantined: count(found.quarantined.len()),
        stuck: count(found.stuck.len()),
    }
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

fn path(text: &InText) -> Option<&Path> {
    text.get().ok().map(|text| Path::new(OsStr::from_bytes(text)))
}

fn text(text: &InText) -> Option<String> {
    Some(path(text)?.to_string_lossy().into_owned())
}

const NO_DIRECTORY: &str = "no directory was given for the store, and the program was not started by `ropewalk run \
     --checkpoint DIR`, which gives one";

thread_local! {
    /// The folder of this thread's last `rw_checkpoint_restore_all`, to which the caller may hold a pointer.
    static FOLDER: RefCell<CString> = RefCell::default();
}
