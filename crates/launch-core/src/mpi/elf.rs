//! The libraries that a program needs, from its dynamic section (elf(5)), read in bounded pieces.

/// The entries for libraries in the dynamic section of a program or library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// The libraries that it needs.
    pub needed: Vec<String>,
    /// Where they and those that they need are looked for first: folders between colons.
    pub rpath: Option<String>,
    /// Where they are looked for; then the field above does not count.
    pub runpath: Option<String>,
}

/// The most libraries that are taken from one file.
pub const NEEDED_MAX: usize = 512;
/// The longest name or list of folders, in bytes.
const TEXT_SIZE_MAX: usize = 4096;
const PROGRAM_HEADERS_MAX: usize = 128;
const DYNAMIC_ENTRIES_MAX: usize = 4096;

const HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
const DYNAMIC_ENTRY_SIZE: usize = 16;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Reads the dynamic section of a file of 64 bits in little-endian order. `read` fills a buffer with what
/// stands from an offset on and says how much that was. `None` if it is another kind of file, or damaged; a
/// program that is linked statically needs nothing.
pub fn read_dynamic(read: &dyn Fn(u64, &mut [u8]) -> usize) -> Option<Dynamic> {
    let header = exactly::<HEADER_SIZE>(read, 0)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (offset, entry_size, count) = (u64_at(&header, 32)?, u16_at(&header, 54)?, u16_at(&header, 56)?);
    if usize::from(entry_size) != PROGRAM_HEADER_SIZE {
        return None;
    }
    let mut loaded = Vec::new();
    let mut dynamic = None;
    let mut headers = vec![0; usize::from(count).min(PROGRAM_HEADERS_MAX) * PROGRAM_HEADER_SIZE];
    if read(offset, &mut headers) < headers.len() {
        return None;
    }
    for header in headers.chunks_exact(PROGRAM_HEADER_SIZE) {
        let segment = Segment {
            offset: u64_at(header, 8)?,
            address: u64_at(header, 16)?,
            size: u64_at(header, 32)?,
        };
        match u32_at(header, 0)? {
            PT_LOAD => loaded.push(segment),
            PT_DYNAMIC => dynamic = Some(segment),
            _ => {}
        }
    }
    let Some(dynamic) = dynamic else {
        return Some(Dynamic::default());
    };
    let entries = entries(read, &dynamic)?;
    let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB);
    let strings =
        strings.and_then(|(_, address)| loaded.iter().find_map(|segment| segment.offset_of(*address)));
    let text = |offset: u64| text(read, strings?.checked_add(offset)?);
    let only = |wanted: u64| {
        let entry = entries.iter().find(|(tag, _)| *tag == wanted)?;
        text(entry.1)
    };
    let needed = entries
        .iter()
        .filter(|(tag, _)| *tag == DT_NEEDED)
        .take(NEEDED_MAX);
    Some(Dynamic {
        needed: needed.filter_map(|(_, offset)| text(*offset)).collect(),
        rpath: only(DT_RPATH),
        runpath: only(DT_RUNPATH),
    })
}

struct Segment {
    offset: u64,
    address: u64,
    size: u64,
}

impl Segment {
    fn offset_of(&self, address: u64) -> Option<u64> {
        let inside = address
            .checked_sub(self.address)
            .filter(|inside| *inside < self.size)?;
        self.offset.checked_add(inside)
    }
}

fn entries(read: &dyn Fn(u64, &mut [u8]) -> usize, segment: &Segment) -> Option<Vec<(u64, u64)>> {
    let size = usize::try_from(segment.size).ok()?;
    let mut bytes = vec![0; size.min(DYNAMIC_ENTRIES_MAX * DYNAMIC_ENTRY_SIZE)];
    let length = read(segment.offset, &mut bytes).min(bytes.len());
    let entries = bytes[..length].chunks_exact(DYNAMIC_ENTRY_SIZE);
    let entries = entries.filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)));
    Some(entries.take_while(|(tag, _)| *tag != DT_NULL).collect())
}

fn text(read: &dyn Fn(u64, &mut [u8]) -> usize, offset: u64) -> Option<String> {
    let mut bytes = [0; TEXT_SIZE_MAX];
    let length = read(offset, &mut bytes).min(TEXT_SIZE_MAX);
    let end = bytes[..length].iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

fn exactly<const N: usize>(read: &dyn Fn(u64, &mut [u8]) -> usize, offset: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (read(offset, &mut bytes) >= N).then_some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests read the files of this system")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(file: &[u8]) -> Option<Dynamic> {
        read_dynamic(&|offset, buffer| {
            let rest = usize::try_from(offset).ok().and_then(|offset| file.get(offset..));
            let rest = rest.unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            length
        })
    }

    /// A file with one loaded segment, from address 0x1000 on, that is the whole of it.
    fn file(entries: &[(u64, u64)], strings: &[u8]) -> Vec<u8> {
        let dynamic = HEADER_SIZE + 2 * PROGRAM_HEADER_SIZE;
        let table = dynamic + (entries.len() + 2) * DYNAMIC_ENTRY_SIZE;
        let size = table + strings.len();
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(HEADER_SIZE, 0);
        file[32..40].copy_from_slice(&(HEADER_SIZE as u64).to_le_bytes());
        file[54..56].copy_from_slice(&(PROGRAM_HEADER_SIZE as u16).to_le_bytes());
        file[56..58].copy_from_slice(&2_u16.to_le_bytes());
        for (kind, offset, size) in [(PT_LOAD, 0, size), (PT_DYNAMIC, dynamic, table - dynamic)] {
            let mut header = [0; PROGRAM_HEADER_SIZE];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&(offset as u64).to_le_bytes());
            header[16..24].copy_from_slice(&(0x1000 + offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
            file.extend_from_slice(&header);
        }
        let table = (DT_STRTAB, 0x1000 + table as u64);
        for (tag, value) in entries.iter().chain([&table, &(DT_NULL, 0)]) {
            file.extend_from_slice(&tag.to_le_bytes());
            file.extend_from_slice(&value.to_le_bytes());
        }
        file.extend_from_slice(strings);
        file
    }

    /// The libraries that a program needs are found, and the folders where they are to be looked for.
    #[test]
    fn a_program_says_what_it_needs() {
        let entries = [(DT_NEEDED, 1), (DT_NEEDED, 14), (DT_RUNPATH, 24)];
        let file = file(&entries, b"\0libmpi.so.40\0libc.so.6\0/a:$ORIGIN/b\0");
        let found = parse(&file).unwrap();
        assert_eq!(found.needed, ["libmpi.so.40", "libc.so.6"]);
        assert_eq!(
            (found.rpath, found.runpath.as_deref()),
            (None, Some("/a:$ORIGIN/b"))
        );
    }

    /// A file that is none, or ends early, is no program; this very program is one.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a real program is in a file")]
    fn other_files_are_no_programs() {
        assert_eq!(parse(b"#!/bin/sh\n"), None);
        assert_eq!(parse(b""), None);
        let whole = file(&[(DT_NEEDED, 0)], b"libc.so.6\0");
        assert_eq!(parse(&whole[..100]), None);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(
            parse(&own)
                .unwrap()
                .needed
                .iter()
                .any(|name| name.starts_with("libc.so"))
        );
    }

    proptest! {
        /// No file makes reading fail, or take more than it may.
        #[test]
        fn damage_is_harmless(
            at in 0..400_usize,
            value: u8,
            entries in prop::collection::vec((0..32_u64, 0..80_u64), 0..20),
        ) {
            let mut file = file(&entries, b"\0libmpi.so.40\0libc.so.6\0");
            if let Some(byte) = file.get_mut(at) {
                *byte = value;
            }
            if let Some(found) = parse(&file) {
                prop_assert!(found.needed.len() <= NEEDED_MAX);
            }
        }
    }
}
