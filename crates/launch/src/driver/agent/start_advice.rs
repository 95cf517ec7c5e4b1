//! Advice on programs that cannot be started, by a look at the files that they name.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
};

use ropewalk_launch_core::{
    Segment,
    protocol::{StartError, StartErrorKind},
};

/// Adds to the reason what the user can do, if that is seen.
pub(super) fn advise(mut error: StartError, segment: &Segment) -> StartError {
    if let Some(advice) = advice(error.kind, segment) {
        error.reason = format!("{}; {advice}", error.reason);
    }
    error
}

fn advice(kind: StartErrorKind, segment: &Segment) -> Option<String> {
    let name = Path::new(&segment.program);
    let directory = segment.working_directory.as_deref().unwrap_or(Path::new(""));
    let file = directory.join(name);
    let has_folder = name.as_os_str().as_bytes().contains(&b'/');
    let shown = name.display();
    let by_interpreter = interpreter_for(name).map(|interpreter| format!("`{interpreter} {shown}`"));
    match kind {
        StartErrorKind::NotFound if !has_folder && file.is_file() => {
            let way = by_interpreter.unwrap_or_else(|| format!("`./{shown}`"));
            Some(format!(
                "programs are looked for in PATH: {way} starts the file in the working directory"
            ))
        }
        StartErrorKind::NotFound if file.is_file() => Some(match interpreter_of(&file) {
            Some(interpreter) => format!("the file is there, and its interpreter {interpreter} is not"),
            None => {
                "the file is there, and its dynamic loader is not: it was built for another system".to_owned()
            }
        }),
        StartErrorKind::NotFound if name.as_os_str().as_bytes().contains(&b' ') => {
            Some("program and arguments are separate words, without quotes around all of them".to_owned())
        }
        StartErrorKind::NotFound if !has_folder => Some("PATH has no program of this name".to_owned()),
        StartErrorKind::NotExecutable if has_folder => {
            let metadata = fs::metadata(&file).ok()?;
            let is_executable = metadata.permissions().mode() & 0o111 != 0;
            match (metadata.is_dir(), is_executable) {
                (true, _) => Some("it is a folder".to_owned()),
                (false, true) => None,
                (false, false) => Some(match by_interpreter {
                    Some(way) => format!("the file is not executable: {way} starts it"),
                    None => format!("the file is not executable: `chmod +x {shown}` makes it so"),
                }),
            }
        }
        _ => None,
    }
}

/// The program that usually runs files of this name.
fn interpreter_for(name: &Path) -> Option<&'static str> {
    let known = [
        ("jl", "julia"),
        ("pl", "perl"),
        ("py", "python"),
        ("R", "Rscript"),
        ("sh", "sh"),
    ];
    let extension = name.extension()?;
    let (_, interpreter) = known.iter().find(|(ending, _)| extension == *ending)?;
    Some(interpreter)
}

/// The interpreter that the first line of a script names.
fn interpreter_of(file: &Path) -> Option<String> {
    let mut line = Vec::new();
    let mut start = BufReader::new(File::open(file).ok()?.take(LINE_BYTES_MAX));
    start.read_until(b'\n', &mut line).ok()?;
    let words = line.strip_prefix(b"#!")?;
    let words = String::from_utf8_lossy(words.trim_ascii()).into_owned();
    Some(words.split_ascii_whitespace().next()?.to_owned())
}

/// The longest first line that Linux reads (BINPRM_BUF_SIZE).
const LINE_BYTES_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file gets the advice that starts it, and files that cannot be helped get none.
    #[test]
    fn advice_fits_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("train.py", "print(1)\n", 0o644);
        write("solver", "\x7fELF", 0o755);
        write("orphan", "#! /no/such/python -u\nprint(1)\n", 0o755);
        write("plain", "text", 0o644);
        let advice = |kind, name: &str| {
            let segment = Segment {
                working_directory: Some(folder.path().to_owned()),
                ..Segment::new(name)
            };
            advice(kind, &segment)
        };
        use StartErrorKind::{NotExecutable, NotFound, System};
        for (kind, name, part) in [
            (NotFound, "train.py", "`python train.py` starts the file"),
            (NotFound, "solver", "`./solver` starts the file"),
            (NotFound, "./orphan", "its interpreter /no/such/python is not"),
            (NotFound, "./solver", "dynamic loader"),
            (NotFound, "echo hi", "separate words"),
            (NotFound, "solvr", "PATH has no program"),
            (NotExecutable, "./train.py", "`python ./train.py` starts it"),
            (NotExecutable, "./plain", "`chmod +x ./plain`"),
            (NotExecutable, "./", "it is a folder"),
        ] {
            let found = advice(kind, name);
            assert!(
                found.as_ref().is_some_and(|text| text.contains(part)),
                "{name}: {found:?}"
            );
        }
        for (kind, name) in [
            (NotFound, "./nothing"),
            (NotExecutable, "./solver"),
            (System, "train.py"),
        ] {
            assert_eq!(advice(kind, name), None, "{name}");
        }
    }
}
