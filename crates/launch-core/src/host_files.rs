//! The host files that a spawn names, and the hosts that stand in their place once they are read.

use std::{
    ffi::{OsStr, OsString},
    io,
};

use bstr::ByteSlice;
use ropewalk_pmi as pmi;
use thiserror::Error;

use crate::hosts::{HostError, HostSlots, parse_host_file};

/// The info key whose value is the path of a host file.
const KEY: &[u8] = b"hostfile";

/// Returns true if the spawn names a host file, which must be read before the spawn can be planned.
pub(crate) fn names_host_files(spawn: &pmi::Spawn) -> bool {
    let mut info = spawn.commands.iter().flat_map(|command| &command.info);
    info.any(|(key, _)| key == KEY)
}

/// Puts the hosts of the files in their place. As with the key `host`, numbers of slots do not count.
///
/// # Errors
/// If one of the files cannot be used.
pub fn read_host_files(
    mut spawn: pmi::Spawn,
    read: impl Fn(&OsStr) -> io::Result<Vec<u8>>,
) -> Result<pmi::Spawn, HostFileError> {
    for (key, value) in spawn.commands.iter_mut().flat_map(|command| &mut command.info) {
        if key.as_slice() != KEY {
            continue;
        }
        let path: OsString = value.to_os_str_lossy().into_owned();
        let hosts = hosts_of(&path, &read).map_err(|reason| HostFileError {
            path: path.clone(),
            reason,
        })?;
        let names: Vec<_> = hosts
            .iter()
            .map(|host| host.name().rsplit('@').next().unwrap_or_default())
            .collect();
        *value = names.join(",").into();
        *key = "hosts".into();
    }
    Ok(spawn)
}

fn hosts_of(
    path: &OsStr,
    read: impl Fn(&OsStr) -> io::Result<Vec<u8>>,
) -> Result<Vec<HostSlots>, UselessFile> {
    let text = String::from_utf8(read(path)?).map_err(|_| UselessFile::NoText)?;
    let hosts = parse_host_file(&text)?;
    match hosts.is_empty() {
        true => Err(UselessFile::NoHosts),
        false => Ok(hosts),
    }
}

/// A host file that a spawn names cannot be used.
#[derive(Debug, Error)]
#[error("info key hostfile: cannot use {}: {reason}", path.display())]
pub struct HostFileError {
    path: OsString,
    reason: UselessFile,
}

#[derive(Debug, Error)]
enum UselessFile {
    #[error("it names no host")]
    NoHosts,
    #[error("it is no text")]
    NoText,
    #[error(transparent)]
    Syntax(#[from] HostError),
    #[error(transparent)]
    Unreadable(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spawn(info: &[(&str, &str)]) -> pmi::Spawn {
        let info = info.iter().map(|&(key, value)| (key.into(), value.into()));
        let command = pmi::SpawnCommand {
            program: "worker".into(),
            processes: 1,
            arguments: vec![],
            info: info.collect(),
        };
        pmi::Spawn {
            preput: vec![],
            commands: vec![command],
        }
    }

    /// The hosts of a file stand where its name stood; what else is wished for stays.
    #[test]
    fn hosts_take_the_place_of_their_file() {
        let wanted = spawn(&[("wdir", "/tmp"), ("hostfile", "some/file")]);
        assert!(names_host_files(&wanted));
        let read = |path: &OsStr| match path.to_str() {
            Some("some/file") => Ok(b"# two\na slots=2\nme@b:3\n".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let planned = read_host_files(wanted, read).unwrap();
        assert_eq!(planned, spawn(&[("wdir", "/tmp"), ("hosts", "a,b")]));
        assert!(!names_host_files(&planned));
    }

    /// A file that is not there, holds no text, no hosts or something else is named with the reason.
    #[test]
    fn what_cannot_be_used_is_named() {
        let wanted = || spawn(&[("hostfile", "f")]);
        for (content, reason) in [
            (None, "cannot use f: entity not found"),
            (Some(&b"\xff"[..]), "it is no text"),
            (Some(b"\n# nothing\n"), "it names no host"),
            (Some(b"a b"), "line 1 of the host file"),
        ] {
            let read = |_: &OsStr| content.map(<[u8]>::to_vec).ok_or(io::ErrorKind::NotFound.into());
            let error = read_host_files(wanted(), read).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
