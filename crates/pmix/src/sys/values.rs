//! Values as Rust has them and as libpmix reads and writes them.

use std::ffi::{CStr, CString, c_char, c_void};

use ropewalk_launch_core::pmix::Process;

use super::types::{
    ByteObject, Data, DataArray, Info, KEY_SIZE, NAMESPACE_SIZE, Proc, ProcInfo, PublishedData,
    RANK_WILDCARD, Value, data_type,
};

/// A value of PMIx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Bool(bool),
    Text(String),
    Uint16(u16),
    Uint32(u32),
    Rank(u32),
    Process(Process),
    Processes(Vec<Process>),
    ProcessTable(Vec<ProcessRow>),
    Bytes(Vec<u8>),
    /// Keys with their values.
    List(Vec<(&'static str, Item)>),
    /// A number of another type, in the first eight bytes of the union.
    Number {
        data_type: u16,
        bits: u64,
    },
}

/// A process of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessRow {
    pub(crate) process: Process,
    pub(crate) host: String,
    pub(crate) program: String,
    pub(crate) pid: u32,
    pub(crate) state: u8,
}

impl Item {
    /// The value of a flag. One that has no value is set (PMIx 4.1, section 3.2.10).
    pub(crate) fn is_true(item: Option<&Self>) -> bool {
        match item {
            Some(Self::Number {
                data_type: data_type::BOOL,
                bits,
            }) => bits & 0xff != 0,
            _ => true,
        }
    }
}

/// Infos for libpmix, with all that they point to.
#[derive(Default)]
pub(crate) struct Infos {
    infos: Vec<Info>,
    kept: Kept,
    /// Which of the infos have bytes that libpmix may take for its own.
    given: Vec<usize>,
}

/// Values for libpmix, with all that they point to, which is not moved.
#[derive(Default)]
struct Kept {
    texts: Vec<CString>,
    bytes: Vec<Box<[u8]>>,
    processes: Vec<Box<[Proc]>>,
    tables: Vec<Box<[ProcInfo]>>,
    lists: Vec<Box<[Info]>>,
    arrays: Vec<Box<[DataArray]>>,
}

impl Infos {
    pub(crate) fn new(items: &[(&str, Item)]) -> Self {
        let mut kept = Kept::default();
        let infos = items.iter().map(|(key, item)| kept.info(key, item)).collect();
        let given = Vec::new();
        Self { infos, kept, given }
    }

    /// Adds bytes that libpmix may take for its own: it then frees them, and puts null into the info.
    pub(crate) fn give(&mut self, key: &str, bytes: &[u8]) {
        // SAFETY: it takes any size. At least one byte, so that null means that there is no memory.
        let copy = unsafe { libc::malloc(bytes.len().max(1)) }.cast::<u8>();
        if copy.is_null() {
            std::alloc::handle_alloc_error(std::alloc::Layout::for_value(bytes));
        }
        // SAFETY: so many bytes were allocated just now.
        unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let bytes = ByteObject {
            bytes: copy.cast(),
            size: bytes.len(),
        };
        self.given.push(self.infos.len());
        self.infos.push(Info {
            key: characters(key),
            flags: 0,
            value: Value {
                data_type: data_type::BYTE_OBJECT,
                data: Data { bytes },
            },
        });
    }

    /// The first of them, and how many there are: valid as long as this lives. libpmix may write to them.
    pub(crate) fn as_parts(&mut self) -> (*mut Info, usize) {
        let _ = &self.kept;
        (self.infos.as_mut_ptr(), self.infos.len())
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        for &index in &self.given {
            // SAFETY: `give` has put a byte object there, whose bytes malloc(3) gave, or libpmix null in their place.
            unsafe { libc::free(self.infos[index].value.data.bytes.bytes.cast()) };
        }
    }
}

/// Published values for libpmix, with all that it points to.
#[derive(Default)]
pub(crate) struct Published {
    data: Vec<PublishedData>,
    kept: Kept,
}

impl Published {
    pub(crate) fn push(&mut self, owner: &Process, key: &str, item: &Item) {
        self.data.push(PublishedData {
            process: proc_of(owner),
            key: characters(key),
            value: self.kept.value(item),
        });
    }

    /// See [`Infos::as_parts`].
    pub(crate) fn as_parts(&mut self) -> (*mut PublishedData, usize) {
        (self.data.as_mut_ptr(), self.data.len())
    }
}

impl Kept {
    fn info(&mut self, key: &str, item: &Item) -> Info {
        Info {
            key: characters(key),
            flags: 0,
            value: self.value(item),
        }
    }

    fn value(&mut self, item: &Item) -> Value {
        let mut data = Data { all: [0; 3] };
        let data_type = match item {
            Item::Bool(flag) => {
                data.flag = *flag;
                data_type::BOOL
            }
            Item::Text(text) => {
                data.string = self.text(text);
                data_type::STRING
            }
            Item::Uint16(number) => {
                data.uint16 = *number;
                data_type::UINT16
            }
            Item::Uint32(number) => {
                data.uint32 = *number;
                data_type::UINT32
            }
            Item::Rank(rank) => {
                data.uint32 = *rank;
                data_type::PROC_RANK
            }
            Item::Process(process) => {
                let mut process: Box<[Proc]> = Box::new([proc_of(process)]);
                data.process = process.as_mut_ptr();
                self.processes.push(process);
                data_type::PROC
            }
            Item::Processes(processes) => {
                let mut processes: Box<[Proc]> = processes.iter().map(proc_of).collect();
                data.array = self.array(data_type::PROC, processes.len(), processes.as_mut_ptr().cast());
                self.processes.push(processes);
                data_type::DATA_ARRAY
            }
            Item::ProcessTable(rows) => {
                let mut table: Box<[ProcInfo]> = rows.iter().map(|row| self.row(row)).collect();
                data.array = self.array(data_type::PROC_INFO, table.len(), table.as_mut_ptr().cast());
                self.tables.push(table);
                data_type::DATA_ARRAY
            }
            Item::Bytes(bytes) => {
                let mut bytes: Box<[u8]> = bytes.as_slice().into();
                data.bytes = ByteObject {
                    bytes: bytes.as_mut_ptr().cast(),
                    size: bytes.len(),
                };
                self.bytes.push(bytes);
                data_type::BYTE_OBJECT
            }
            Item::List(items) => {
                let mut list: Box<[Info]> = items.iter().map(|(key, item)| self.info(key, item)).collect();
                data.array = self.array(data_type::INFO, list.len(), list.as_mut_ptr().cast());
                self.lists.push(list);
                data_type::DATA_ARRAY
            }
            Item::Number { data_type, bits } => {
                data.number = *bits;
                *data_type
            }
        };
        Value { data_type, data }
    }

    fn row(&mut self, row: &ProcessRow) -> ProcInfo {
        ProcInfo {
            process: proc_of(&row.process),
            host: self.text(&row.host),
            program: self.text(&row.program),
            pid: row.pid.cast_signed(),
            exit_code: 0,
            state: row.state,
        }
    }

    fn text(&mut self, text: &str) -> *mut c_char {
        let text = c_text(text);
        let place = text.as_ptr().cast_mut();
        self.texts.push(text);
        place
    }

    /// A data array of so many elements, which are kept elsewhere.
    fn array(&mut self, data_type: u16, size: usize, first: *mut c_void) -> *mut DataArray {
        let mut array: Box<[DataArray]> = Box::new([DataArray {
            data_type,
            size,
            array: first,
        }]);
        let place = array.as_mut_ptr();
        self.arrays.push(array);
        place
    }
}

/// A value that libpmix lends; `None` if it is of a type that is not kept.
///
/// # Safety
/// The value is one of libpmix, whose type says what the union holds.
pub(crate) unsafe fn item(value: &Value) -> Option<Item> {
    // SAFETY: the type says which member of the union is there, and pointers are null or valid, as the caller has
    // promised.
    unsafe {
        Some(match value.data_type {
            data_type::STRING => Item::Text(text(value.data.string)?),
            data_type::BYTE_OBJECT => {
                let ByteObject { bytes, size } = value.data.bytes;
                Item::Bytes(copy(bytes, size))
            }
            data_type::PROC => Item::Process(process(value.data.process.as_ref()?)),
            data_type::PROC_RANK => Item::Rank(value.data.uint32),
            data_type @ (1..=data_type::NUMBERS_END | data_type::PERSIST | 32..=33) => Item::Number {
                data_type,
                bits: value.data.number,
            },
            _ => return None,
        })
    }
}

/// Infos that libpmix lends, by their keys.
///
/// # Safety
/// The pointer is null, or that of so many infos of libpmix.
pub(crate) unsafe fn items(infos: *const Info, count: usize) -> Vec<(String, Option<Item>)> {
    if infos.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller has promised.
    let infos = unsafe { std::slice::from_raw_parts(infos, count) };
    let read = |info: &Info| {
        // SAFETY: as the caller has promised.
        (name(&info.key), unsafe { item(&info.value) })
    };
    infos.iter().map(read).collect()
}

/// A list of strings with a null at its end.
///
/// # Safety
/// The pointer is null, or that of such a list.
pub(crate) unsafe fn texts(mut list: *mut *mut c_char) -> Vec<String> {
    let mut found = Vec::new();
    // SAFETY: up to its null, which is not passed, the list is there.
    while let Some(text) = unsafe { list.as_ref() }.and_then(|&pointer| unsafe { text(pointer) }) {
        found.push(text);
        // SAFETY: as above.
        list = unsafe { list.add(1) };
    }
    found
}

/// A string; `None` for a null pointer.
///
/// # Safety
/// The pointer is null, or that of a C string.
pub(crate) unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: as the caller has promised.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// A copy of bytes.
///
/// # Safety
/// The pointer is null, or that of so many bytes.
pub(crate) unsafe fn copy(bytes: *const c_char, size: usize) -> Vec<u8> {
    if bytes.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller has promised.
    unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec()
}

pub(crate) fn process(found: &Proc) -> Process {
    Process {
        namespace: name(&found.namespace),
        rank: (found.rank != RANK_WILDCARD).then_some(found.rank),
    }
}

pub(crate) fn proc_of(process: &Process) -> Proc {
    Proc {
        namespace: characters::<NAMESPACE_SIZE>(&process.namespace),
        rank: process.rank.unwrap_or(RANK_WILDCARD),
    }
}

pub(crate) fn c_text(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).expect("it was cut at its first zero")
}

fn name(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters
        .iter()
        .map(|&byte| byte.cast_unsigned())
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text in an array with a zero at its end. What does not fit is cut off.
fn characters<const SIZE: usize>(text: &str) -> [c_char; SIZE] {
    let mut array = [0; SIZE];
    for (place, byte) in array[..SIZE - 1].iter_mut().zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    array
}

const _: () = assert!(KEY_SIZE > NAMESPACE_SIZE);

#[cfg(test)]
mod tests {
    use super::*;

    /// Values come back as they went.
    #[test]
    fn values_come_back() {
        let process = Process {
            namespace: "job".into(),
            rank: Some(3),
        };
        let values = [
            Item::Text("text".into()),
            Item::Bytes(vec![0, 1, 2]),
            Item::Rank(7),
            Item::Process(process),
            Item::Number {
                data_type: 6,
                bits: 5,
            },
        ];
        for value in values {
            let mut infos = Infos::new(&[("key", value.clone())]);
            let (first, count) = infos.as_parts();
            // SAFETY: they are ours and alive.
            let found = unsafe { items(first, count) };
            assert_eq!(found, [("key".to_owned(), Some(value))]);
        }
    }

    /// Bytes that are given are freed once: by who took them, or with the infos.
    #[test]
    fn given_bytes_are_freed_once() {
        for is_taken in [false, true] {
            let mut infos = Infos::new(&[]);
            infos.give("key", b"bytes");
            let (first, count) = infos.as_parts();
            // SAFETY: they are ours and alive.
            let found = unsafe { items(first, count) };
            let bytes = Item::Bytes(b"bytes".to_vec());
            assert_eq!(found, [("key".to_owned(), Some(bytes))]);
            if is_taken {
                // SAFETY: as libpmix does it.
                unsafe {
                    let object = &mut (*first).value.data.bytes;
                    libc::free(object.bytes.cast());
                    object.bytes = std::ptr::null_mut();
                }
            }
        }
    }

    /// A name that is too long is cut, and ends with a zero.
    #[test]
    fn long_names_are_cut() {
        let array = characters::<4>("abcdef");
        assert_eq!(name(&array), "abc");
    }
}
