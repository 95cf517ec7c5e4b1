//! The programs and commands of a page: compiled, or run in a folder of the page's own.
//!
//! | block | what is done |
//! |---|---|
//! | `python` | compiled |
//! | `c` | checked by a compiler, with the headers of this repository; by MPICH's if it includes `mpi.h` |
//! | `rust` | tested by rustdoc, which runs it unless it is marked `no_run` |
//! | `.. file=NAME` | also written to the page's folder |
//! | `sh run` | run there, with the command and Python's environment on `PATH` |
//! | `text output` | each of its lines is in what the block before has printed; `..` in it stands for anything |

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail, ensure};

use super::markdown::Block;
use crate::{
    project,
    shell::{finish, program, run},
};

/// The folders with programs that are built already.
pub(super) struct Tools {
    pub(super) target: PathBuf,
    /// The folder with Python's programs, one of which has the package.
    pub(super) python: PathBuf,
}

impl Tools {
    pub(super) fn ropewalk(&self) -> PathBuf {
        self.built().join("ropewalk")
    }

    fn built(&self) -> PathBuf {
        self.target.join("debug")
    }

    fn path(&self) -> anyhow::Result<OsString> {
        let before = env::var_os("PATH").unwrap_or_default();
        let folders = [self.built(), self.built().join("examples"), self.python.clone()];
        Ok(env::join_paths(
            folders.into_iter().chain(env::split_paths(&before)),
        )?)
    }
}

/// Checks the blocks of a page in their order.
///
/// # Errors
/// Names the block that is wrong.
pub(super) fn check(page: &str, blocks: &[Block], tools: &Tools) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut printed = String::new();
    for (number, block) in blocks.iter().enumerate() {
        let result = match block.language() {
            "c" => c(block, folder.path(), tools),
            "python" => python(block, folder.path(), tools),
            "rust" => rust(block, folder.path(), tools),
            "sh" if block.is("run") => shell(block, folder.path(), tools).map(|output| printed = output),
            "text" if block.is("output") => {
                ensure!(
                    number > 0 && blocks[number - 1].is("run"),
                    "{page}:{}: nothing was run before",
                    block.line
                );
                shown(block, &printed)
            }
            _ if block.file().is_some() => written(block, "", folder.path()).map(drop),
            _ => Ok(()),
        };
        result.with_context(|| format!("{page}:{}", block.line))?;
    }
    Ok(())
}

/// Writes the block to a file, and says where.
fn written(block: &Block, otherwise: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join(block.file().unwrap_or(otherwise));
    fs::write(&path, &block.text)?;
    Ok(path)
}

fn c(block: &Block, folder: &Path, tools: &Tools) -> anyhow::Result<()> {
    let path = written(block, "block.c", folder)?;
    let compiler = match block.text.contains("<mpi.h>") {
        true => "mpicc.mpich",
        false => "cc",
    };
    let mut command = program(compiler, &["-fsyntax-only", "-Wall", "-Werror"]);
    for headers in ["crates/checkpoint-c", "crates/pmi-c", "crates/pmi2-c"] {
        command
            .arg("-I")
            .arg(project::root().join(headers).join("include"));
    }
    command.arg(path).env("PATH", tools.path()?);
    run(command)
}

fn python(block: &Block, folder: &Path, tools: &Tools) -> anyhow::Result<()> {
    let path = written(block, "block.py", folder)?;
    let mut command = Command::new(tools.python.join("python"));
    command.args(["-m", "py_compile"]).arg(path);
    run(command)
}

fn rust(block: &Block, folder: &Path, tools: &Tools) -> anyhow::Result<()> {
    let marks = block.marks.join(",");
    let page = folder.join("block.md");
    fs::write(&page, format!("```{marks}\n{}```\n", block.text))?;
    let library = tools.built().join("libropewalk.rlib");
    let mut command = program("rustdoc", &["--edition", "2024", "--test"]);
    command.arg(page).arg("--extern");
    command.arg(format!("ropewalk={}", library.display())).arg("-L");
    command.arg(format!("dependency={}", tools.built().join("deps").display()));
    run(command)
}

/// Runs the block, and returns what it has printed, on both of its outputs.
fn shell(block: &Block, folder: &Path, tools: &Tools) -> anyhow::Result<String> {
    let said = folder.join(".said");
    let output = fs::File::create(&said)?;
    let mut command = Command::new("sh");
    // A terminal would have the launcher show its progress, and a variable may point to a folder of the project.
    command.args(["-euc", &block.text]).current_dir(folder);
    command
        .env("PATH", tools.path()?)
        .env("ROPEWALK_SOURCE", project::root());
    command.stdout(output.try_clone()?).stderr(output);
    command.stdin(std::process::Stdio::null());
    let result = finish(command, TIME_MAX);
    let printed = fs::read_to_string(&said)?;
    result.with_context(|| format!("it has printed:\n{printed}"))?;
    Ok(printed)
}

/// Says if lines were printed, in any order: ranks write theirs as it comes.
fn shown(block: &Block, printed: &str) -> anyhow::Result<()> {
    for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
        if !printed.lines().any(|found| is_like(found.trim(), line.trim())) {
            bail!("no line is {line:?} in what was printed:\n{printed}");
        }
    }
    Ok(())
}

/// Says if a line is another one, in which `..` stands for anything.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split("..");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(|part| part.is_empty() || line.ends_with(part))
}

/// The time that the commands of a block may take.
const TIME_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dots_stand_for_anything() {
        for (line, pattern, expected) in [
            ("rank 1 of 4", "rank 1 of 4", true),
            ("rank 1 of 4", "rank 1 of", false),
            ("rank 1 of 4", "rank .. of 4", true),
            ("rank 1 of 4", "rank ..", true),
            ("rank 1 of 4", "..4", true),
            ("rank 1 of 4", "..5", false),
            ("rank 1 of 4", "rank .. of .. 4", false),
            ("a b a b", "a ..b", true),
        ] {
            assert_eq!(is_like(line, pattern), expected, "{line:?} {pattern:?}");
        }
    }

    /// Commands run in the folder with the files of earlier blocks, and lines that they do not print are found.
    #[test]
    fn commands_run_beside_their_files() {
        let tools = Tools {
            target: "/nowhere".into(),
            python: "/nowhere".into(),
        };
        let folder = tempfile::tempdir().unwrap();
        let block = |marks: &str, text: &str| Block {
            line: 1,
            marks: marks.split(' ').map(str::to_owned).collect(),
            text: text.to_owned(),
        };
        written(&block("text file=said", "hello\n"), "", folder.path()).unwrap();
        let printed = shell(&block("sh run", "cat said"), folder.path(), &tools).unwrap();
        shown(&block("text output", "hello\n"), &printed).unwrap();
        assert!(shown(&block("text output", "hallo\n"), &printed).is_err());
        assert!(shell(&block("sh run", "cat said; false; true"), folder.path(), &tools).is_err());
    }
}
