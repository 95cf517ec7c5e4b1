//! Where the dynamic loader finds a library: `/etc/ld.so.cache`, in the format of glibc 2.2 and later.

/// The largest cache that is read, in bytes.
pub const CACHE_SIZE_MAX: usize = 16 << 20;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_SIZE: usize = 48;
const ENTRY_SIZE: usize = 24;

/// The first path that the cache has for a library; those for other kinds of machines come after those for this one.
pub fn path_of<'a>(cache: &'a [u8], library: &str) -> Option<&'a str> {
    // Until glibc 2.32 the file began with a table for loaders of libc5.
    let start = cache.windows(MAGIC.len()).position(|window| window == MAGIC)?;
    let cache = &cache[start..];
    let count = number(cache, MAGIC.len())?;
    let entries = cache.get(HEADER_SIZE..)?.chunks_exact(ENTRY_SIZE).take(count);
    entries
        .filter(|entry| text(cache, number(entry, 4)) == Some(library))
        .find_map(|entry| text(cache, number(entry, 8)).filter(|path| !path.is_empty()))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

fn text(cache: &[u8], at: Option<usize>) -> Option<&str> {
    let rest = cache.get(at?..)?;
    // Names are short: what has no end nearby is no name.
    let rest = &rest[..rest.len().min(4096)];
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests read the files of this system")]
mod tests {
    use super::*;

    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut cache = MAGIC.to_vec();
        cache.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        cache.resize(HEADER_SIZE, 0);
        let mut strings = Vec::new();
        let base = HEADER_SIZE + entries.len() * ENTRY_SIZE;
        for (name, path) in entries {
            let mut entry = [0; ENTRY_SIZE];
            for (at, string) in [(4, name), (8, path)] {
                entry[at..at + 4].copy_from_slice(&((base + strings.len()) as u32).to_le_bytes());
                strings.extend_from_slice(string.as_bytes());
                strings.push(0);
            }
            cache.extend_from_slice(&entry);
        }
        cache.extend_from_slice(&strings);
        cache
    }

    /// A library is found under its name, behind an old table too; damage finds nothing.
    #[test]
    fn libraries_are_found() {
        let mut cache = cache(&[
            ("liba.so.1", "/lib/liba.so.1"),
            ("libmpi.so.40", "/lib/libmpi.so.40"),
        ]);
        assert_eq!(path_of(&cache, "libmpi.so.40"), Some("/lib/libmpi.so.40"));
        assert_eq!(path_of(&cache, "libmpi.so"), None);
        assert_eq!(path_of(&self::cache(&[("liba.so.1", "")]), "liba.so.1"), None);
        let behind = [b"ld.so-1.7.0\0\0\0\0\0", &cache[..]].concat();
        assert_eq!(path_of(&behind, "liba.so.1"), Some("/lib/liba.so.1"));
        assert_eq!(path_of(&cache[..60], "liba.so.1"), None);
        cache[HEADER_SIZE + 8..HEADER_SIZE + 12].fill(0xff);
        assert_eq!(path_of(&cache, "liba.so.1"), None);
    }

    /// This system's own cache has the C library.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the system's cache is in a file")]
    fn the_systems_cache_is_read() {
        let Ok(cache) = std::fs::read("/etc/ld.so.cache") else {
            // A system without glibc.
            return;
        };
        assert!(path_of(&cache, "libc.so.6").is_some_and(|path| path.starts_with('/')));
    }
}
