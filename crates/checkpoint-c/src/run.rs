//! The functions of runs whose state is saved by name: `rw_resume`, `rw_protect`, `rw_step` and their like.

use std::{
    ffi::{CString, OsStr, c_char, c_int},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
    time::Duration,
};

use ropewalk_c_abi as abi;
use ropewalk_checkpoint::{Mtbf, Named, RunError, RunOptions, SavedRun, SavedValue};

use crate::failure::{Failure, chain};

type InPtr<T> = abi::InPtr<T, Failure>;
type InSlice<T> = abi::InSlice<T, Failure>;
type InText = abi::InText<Failure>;
type Memory = abi::Memory<Failure>;
type Object<T> = abi::Object<T, Failure>;
type OutPtr<T> = abi::OutPtr<T, Failure>;

/// `rw_run`.
#[derive(Debug)]
pub struct OpenRun {
    run: SavedRun,
    parts: Vec<Part>,
    /// The last result of `rw_save_error`.
    told: CString,
}

/// A part of the state.
#[derive(Debug)]
struct Part {
    name: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Array {
        element: String,
        item: u32,
        shape: Vec<u64>,
        is_partitioned: bool,
        memory: abi::LentMemory,
    },
    Value {
        value: SavedValue,
        /// The last result of `rw_get`.
        kind: CString,
    },
}

/// `rw_run_options`.
#[derive(Debug)]
#[repr(C)]
pub struct CRunOptions {
    size: usize,
    rank: u32,
    ranks: u32,
    start: InText,
    patience: f64,
    mtbf: f64,
    mtbf_is_known: c_int,
    keep: u32,
}

exports! {
    fn rw_resume(directory: InText, options: InPtr<CRunOptions>, run: OutPtr<Object<OpenRun>>) {
        let directory = directory.get().ok().map(|path| Path::new(OsStr::from_bytes(path)));
        let mut made = RunOptions::of_job(directory)?;
        if let Some(options) = options.get() {
            set(&mut made, options)?;
        }
        let open = OpenRun {
            run: SavedRun::open(made)?,
            parts: Vec::new(),
            told: CString::default(),
        };
        run.hand_over(open)?;
    }

    fn rw_protect(
        run: Object<OpenRun>,
        name: InText,
        data: Memory,
        element: InText,
        item: usize,
        axes: u32,
        shape: InSlice<u64>,
    ) {
        let shape = shape.get(axes as usize)?.to_vec();
        run.get()?.protect(&name, data, &element, item, shape, false)?;
    }

    fn rw_protect_partitioned(
        run: Object<OpenRun>,
        name: InText,
        data: Memory,
        element: InText,
        item: usize,
        axes: u32,
        shape: InSlice<u64>,
    ) {
        let shape = shape.get(axes as usize)?.to_vec();
        if shape.is_empty() {
            return Err(Failure::bad_argument("a partitioned array has at least one axis"));
        }
        run.get()?.protect(&name, data, &element, item, shape, true)?;
    }

    fn rw_put(run: Object<OpenRun>, name: InText, kind: InText, data: InSlice<u8>, length: usize) {
        let value = SavedValue {
            kind: text(&kind)?,
            bytes: data.get(length)?.to_vec(),
        };
        let content = Content::Value { value, kind: CString::default() };
        run.get()?.set(text(&name)?, content);
    }

    fn rw_get(
        run: Object<OpenRun>,
        name: InText,
        kind: OutPtr<*const c_char>,
        data: OutPtr<*const u8>,
        length: OutPtr<usize>,
    ) {
        let name = text(&name)?;
        let part = run.get()?.parts.iter_mut().find(|part| part.name == name);
        let Some(Part { content: Content::Value { value, kind: given }, .. }) = part else {
            return Err(Failure::bad_argument(format!("there is no value named {name}: rw_put names one")));
        };
        *given = CString::new(value.kind.clone()).unwrap_or_default();
        kind.write(given.as_ptr())?;
        data.write(value.bytes.as_ptr())?;
        length.write(value.bytes.len())?;
    }

    fn rw_restore(run: Object<OpenRun>, step: OutPtr<u64>) {
        let OpenRun { run, parts, .. } = run.get()?;
        step.write(run.restore(&mut named(parts))?)?;
    }

    fn rw_step(run: Object<OpenRun>, steps: u64, step: OutPtr<u64>) {
        let OpenRun { run, parts, .. } = run.get()?;
        let next = run.step(steps, &mut named(parts))?;
        step.write(next.unwrap_or_else(|| run.steps_done().max(steps)))?;
    }

    fn rw_close(run: Object<OpenRun>, finished: c_int) {
        run.take_back()?.run.close(finished != 0)?;
    }
}

/// `rw_save_error`: see `include/rw_checkpoint.h`.
///
/// # Safety
/// Its pointer is as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rw_save_error(mut run: Object<OpenRun>) -> *const c_char {
    let Ok(open) = run.get() else { return ptr::null() };
    match open.run.take_failure() {
        None => ptr::null(),
        Some(error) => open.told_of(&error),
    }
}

impl OpenRun {
    /// Adds a part, or replaces the one with its name.
    fn set(&mut self, name: String, content: Content) {
        match self.parts.iter_mut().find(|part| part.name == name) {
            Some(part) => part.content = content,
            None => self.parts.push(Part { name, content }),
        }
    }

    /// Lends the memory of an array to the run.
    fn protect(
        &mut self,
        name: &InText,
        data: Memory,
        element: &InText,
        item: usize,
        shape: Vec<u64>,
        is_partitioned: bool,
    ) -> Result<(), Failure> {
        let bytes = shape
            .iter()
            .try_fold(item, |bytes, &length| {
                bytes.checked_mul(usize::try_from(length).ok()?)
            })
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| Failure::bad_argument("the array has more bytes than there can be memory"))?;
        let item = u32::try_from(item).map_err(|_| Failure::bad_argument("an element has too many bytes"))?;
        let (name, memory) = (text(name)?, data.lend(bytes)?);
        let others = self.parts.iter().filter(|part| part.name != name);
        if let Some(other) = others.into_iter().find(|part| part.is_at(&memory)) {
            let other = &other.name;
            return Err(Failure::bad_argument(format!(
                "{name} and {other} are in the same memory: name it once"
            )));
        }
        let content = Content::Array {
            element: text(element)?,
            item,
            shape,
            is_partitioned,
            memory,
        };
        self.set(name, content);
        Ok(())
    }

    fn told_of(&mut self, error: &RunError) -> *const c_char {
        self.told = CString::new(chain(error).replace('\0', " ")).unwrap_or_default();
        self.told.as_ptr()
    }
}

impl Part {
    fn is_at(&self, place: &abi::LentMemory) -> bool {
        matches!(&self.content, Content::Array { memory, .. } if memory.overlaps(place))
    }
}

/// The parts, as the library takes them.
fn named(parts: &mut [Part]) -> Vec<Named<'_>> {
    parts
        .iter_mut()
        .map(|Part { name, content }| match content {
            Content::Array {
                element,
                item,
                shape,
                is_partitioned,
                memory,
            } => {
                let array = Named::memory(name, element, *item, shape, memory.bytes());
                if *is_partitioned {
                    array.partitioned()
                } else {
                    array
                }
            }
            Content::Value { value, .. } => Named::value(name, value),
        })
        .collect()
}

fn set(made: &mut RunOptions, options: &CRunOptions) -> Result<(), Failure> {
    if options.size != size_of::<CRunOptions>() {
        return Err(Failure::bad_argument(
            "the options have another size: begin with RW_RUN_OPTIONS, and compile with the header of this library",
        ));
    }
    if options.ranks > 0 {
        (made.store.rank, made.store.ranks) = (options.rank, options.ranks);
    }
    if options.start.get().is_ok() {
        made.start = Some(text(&options.start)?);
    }
    let seconds = |number: f64| {
        Duration::try_from_secs_f64(number)
            .map_err(|_| Failure::bad_argument("times have to be numbers of seconds, zero or more"))
    };
    let (patience, mtbf) = (seconds(options.patience)?, seconds(options.mtbf)?);
    if !patience.is_zero() {
        made.patience = patience;
    }
    match options.mtbf {
        _ if mtbf.is_zero() => {}
        known if options.mtbf_is_known != 0 => made.advisor.mtbf = Mtbf::Known(known),
        guess => *made = made.clone().with_mtbf(guess),
    }
    made.store.keep = made.store.keep.max(options.keep as usize);
    Ok(())
}

fn text(text: &InText) -> Result<String, Failure> {
    String::from_utf8(text.get()?.to_vec()).map_err(|_| Failure::bad_argument("a name has to be UTF-8"))
}
