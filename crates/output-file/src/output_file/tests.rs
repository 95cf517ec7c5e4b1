use std::{
    os::unix::{fs::symlink, net::UnixListener},
    process::Command,
    thread,
    time::Instant,
};

use super::*;

const PATIENCE: Duration = Duration::from_millis(200);

/// Both kinds of waiting, in a new folder each.
fn each_way(mut check: impl FnMut(Waiting, &Path)) {
    for waiting in [Waiting::Unnamed, Waiting::Named] {
        let folder = tempfile::tempdir().unwrap();
        check(waiting, folder.path());
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// A file is as it was until the new content is committed, and keeps its mode; a new one has that of any new file.
#[test]
fn files_are_replaced_at_once() {
    each_way(|waiting, folder| {
        let [old, new, ordinary] = ["old", "new", "ordinary"].map(|name| folder.join(name));
        fs::write(&old, "before").unwrap();
        fs::write(&ordinary, "").unwrap();
        fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
        for path in [&old, &new] {
            let output = OutputFile::prepare_as(path, waiting, PATIENCE).unwrap();
            // As another process writes it.
            fs::write(output.content_path(), "content").unwrap();
            assert_eq!(fs::read(&old).unwrap(), b"before".as_slice());
            assert!(!new.exists());
            output.commit().unwrap();
            assert_eq!(fs::read(path).unwrap(), b"content".as_slice());
            fs::write(&old, "before").unwrap();
        }
        assert_eq!(mode(&old), 0o640);
        assert_eq!(mode(&new), mode(&ordinary));
        assert_eq!(names(folder), ["new", "old", "ordinary"]);
    });
}

/// An output that is not committed leaves nothing, and the old content stays.
#[test]
fn a_file_that_is_given_up_leaves_nothing() {
    each_way(|waiting, folder| {
        let path = folder.join("file");
        fs::write(&path, "before").unwrap();
        let output = OutputFile::prepare_as(&path, waiting, PATIENCE).unwrap();
        assert_eq!(names(folder).len(), 1 + usize::from(waiting == Waiting::Named));
        drop(output);
        assert_eq!(names(folder), ["file"]);
        assert_eq!(fs::read(&path).unwrap(), b"before".as_slice());
    });
}

/// Links stay, whatever they lead to, and over how many folders: a file, a link, or a name that nothing has.
#[test]
fn links_stay() {
    each_way(|waiting, folder| {
        fs::create_dir(folder.join("inner")).unwrap();
        let file = folder.join("inner/file");
        fs::write(&file, "before").unwrap();
        symlink("file", folder.join("inner/near")).unwrap();
        symlink("inner/near", folder.join("far")).unwrap();
        symlink("inner/missing", folder.join("dangling")).unwrap();
        for link in ["far", "dangling"] {
            let link = folder.join(link);
            let output = OutputFile::prepare_as(&link, waiting, PATIENCE).unwrap();
            output.write("content").unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&link).unwrap(), b"content".as_slice());
        }
        assert_eq!(names(folder), ["dangling", "far", "inner"]);
        assert_eq!(names(&folder.join("inner")), ["file", "missing", "near"]);
        assert_eq!(fs::read(&file).unwrap(), b"content".as_slice());
        symlink("circle", folder.join("circle")).unwrap();
        assert!(OutputFile::prepare_as(&folder.join("circle"), waiting, PATIENCE).is_err());
    });
}

/// A pipe is written into if somebody reads it, and is an error in time if nobody does. A device stays a device.
#[test]
fn pipes_and_devices_are_written_into() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    make_pipe(&pipe);
    let start = Instant::now();
    let error = OutputFile::prepare_as(&pipe, Waiting::Unnamed, PATIENCE).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("nobody opened it for reading within 0.2 s"),
        "{error}"
    );
    assert!(start.elapsed() >= PATIENCE);

    let reading = pipe.clone();
    let reader = thread::spawn(move || fs::read(reading).unwrap());
    let content = vec![7; 1 << 20];
    OutputFile::prepare(&pipe).unwrap().write(&content).unwrap();
    assert_eq!(reader.join().unwrap(), content);
    assert!(is_pipe(&pipe));

    let link = folder.path().join("null");
    symlink("/dev/null", &link).unwrap();
    OutputFile::prepare(&link).unwrap().write("content").unwrap();
    let error = OutputFile::prepare(Path::new("/dev/full"))
        .unwrap()
        .write("content");
    assert!(
        error
            .unwrap_err()
            .to_string()
            .starts_with("/dev/full: cannot write to it: ")
    );
    assert_eq!(names(folder.path()), ["null", "pipe"]);
}

fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).unwrap().file_type().is_fifo()
}

/// Descriptors that are named by a path are written into, not replaced: what has them would not see another file.
#[test]
fn descriptors_are_written_into() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let file = File::create(&path).unwrap();
    let named = format!("/dev/fd/{}", file.as_raw_fd());
    let output = OutputFile::prepare(Path::new(&named)).unwrap();
    output.write("content").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 7);
    assert_eq!(file.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    assert!(OutputFile::prepare(Path::new("-")).is_ok());
}

/// A folder, a socket and a place where nothing can be written are refused before anything is written.
#[test]
fn other_places_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let _listener = UnixListener::bind(at("socket")).unwrap();
    fs::write(at("file"), "").unwrap();
    for (path, problem) in [
        (folder.path().to_owned(), "it is a folder"),
        (at("new/"), "it is a folder"),
        (at("socket"), "it is a socket"),
        (
            at("missing/file"),
            "cannot write to its folder: it does not exist",
        ),
        (at("file/file"), "cannot write to it: "),
    ] {
        let error = OutputFile::prepare(&path).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        assert!(error.starts_with(&*path.to_string_lossy()), "{error}");
    }
    assert_eq!(names(folder.path()), ["file", "socket"]);
}

/// The next start removes a temporary file whose owner is dead, and none whose owner lives.
#[test]
fn abandoned_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let alive = OutputFile::prepare_as(&path, Waiting::Named, PATIENCE).unwrap();
    fs::write(folder.path().join(".ropewalk-output-dead"), "half").unwrap();
    symlink("file", folder.path().join(".ropewalk-output-link")).unwrap();
    assert_eq!(names(folder.path()).len(), 3);
    OutputFile::prepare(&path).unwrap().write("other").unwrap();
    let left = names(folder.path());
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(!left.contains(&".ropewalk-output-dead".to_owned()));
    alive.write("content").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"content".as_slice());
}
