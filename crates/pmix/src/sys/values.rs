//! Values as Rust has them and as libpmix reads and writes them.

use std::ffi::{CStr, CString, c_char, c_void};

use ropewalk_launch_core::pmix::Process;

use super::types::{
    ByteObject, Data, DataArray, Info, KEY_SIZE, NAMESPACE_SIZE, Proc, PublishedData, RANK_WILDCARD, Value,
    data_type,
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
    Bytes(Vec<u8>),
    /// Keys with their values.
    List(Vec<(&'static str, Item)>),
    /// A number of another type, in the first eight bytes of the union.
    Number {
        data_type: u16,
        bits: u64,
    },
}

/// Infos for libpmix, with all that they point to.
#[derive(Default)]
pub(crate) struct Infos {
    infos: Vec<Info>,
    kept: Kept,
}

/// Values for libpmix, with all that they point to, which is not moved.
#[derive(Default)]
struct Kept {
    texts: Vec<CString>,
    bytes: Vec<Box<[u8]>>,
    processes: Vec<Box<[Proc]>>,
    lists: Vec<Box<[Info]>>,
    arrays: Vec<Box<[DataArray]>>,
}

impl Infos {
    pub(crate) fn new(items: &[(&str, Item)]) -> Self {
        let mut kept = Kept::default();
        let infos = items.iter().map(|(key, item)| kept.info(key, item)).collect();
        Self { infos, kept }
    }

    /// The first of them, and how many there are: valid as long as this lives. libpmix may write to them.
    pub(crate) fn as_parts(&mut self) -> (*mut Info, usize) {
        let _ = &self.kept;
        (self.infos.as_mut_ptr(), self.infos.len())
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
                let text = c_text(text);
                data.string = text.as_ptr().cast_mut();
                self.texts.push(text);
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
                let mut array: Box<[DataArray]> = Box::new([DataArray {
                    data_type: data_type::INFO,
                    size: list.len(),
                    array: list.as_mut_ptr().cast::<c_void>(),
                }]);
                data.array = array.as_mut_ptr();
                self.lists.push(list);
                self.arrays.push(array);
                data_type::DATA_ARRAY
            }
            Item::Number { data_type, bits } => {
                data.number = *bits;
                *data_type
            }
        };
        Value { data_type, data }
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

    /// A name that is too long is cut, and ends with a zero.
    #[test]
    fn long_names_are_cut() {
        let array = characters::<4>("abcdef");
        assert_eq!(name(&array), "abc");
    }
}
