//! Which functions of a program run, found by a breakpoint at the beginning of each (ptrace(2)).

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};

use anyhow::{Context, ensure};
use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// x86's instruction of one byte that traps.
const BREAKPOINT: u8 = 0xcc;

/// A program whose functions are looked for.
pub(super) struct Tracer<'a> {
    program: &'a Path,
    /// By their addresses in the file.
    functions: BTreeMap<u64, Vec<&'a str>>,
    /// The first byte of each.
    bytes: BTreeMap<u64, u8>,
    /// How far behind its address in the file the program lies in each process's memory.
    shifts: BTreeMap<Pid, u64>,
    found: BTreeSet<u64>,
    /// Those that were found, in the order of their first calls.
    order: Vec<&'a str>,
}

impl<'a> Tracer<'a> {
    /// `symbols` is what nm(1) says of the program.
    ///
    /// # Errors
    /// If the program cannot be read.
    pub(super) fn new(program: &'a Path, symbols: &'a str) -> anyhow::Result<Self> {
        let mut functions: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for line in symbols.lines() {
            if let [address, "t" | "T", name] = line.split(' ').collect::<Vec<_>>()[..]
                && (name == "main" || ["_ZN", "_R"].iter().any(|prefix| name.starts_with(prefix)))
            {
                let address = u64::from_str_radix(address, 16)?;
                functions.entry(address).or_default().push(name);
            }
        }
        ensure!(!functions.is_empty(), "{} has no symbols", program.display());
        Ok(Self {
            program,
            functions,
            bytes: BTreeMap::new(),
            shifts: BTreeMap::new(),
            found: BTreeSet::new(),
            order: Vec::new(),
        })
    }

    /// The functions that ran, in the order of their first calls.
    pub(super) fn order(self) -> Vec<&'a str> {
        self.order
    }

    /// Runs words of a shell, and looks at all processes of the program that come of them.
    ///
    /// # Errors
    /// If they cannot be traced.
    pub(super) fn run(&mut self, words: &str) -> anyhow::Result<()> {
        let stopped = format!("kill -STOP $$; exec {words}");
        let child = Command::new("sh").args(["-c", &stopped]).spawn()?;
        let first = Pid::from_raw(i32::try_from(child.id())?);
        waitpid(first, Some(WaitPidFlag::WUNTRACED))?;
        let options = Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(first, options).context("the shell cannot be traced")?;
        kill(first, Signal::SIGCONT)?;
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::__WALL)) {
                Err(Errno::ECHILD) => return Ok(()),
                Err(Errno::EINTR) => continue,
                status => status?,
            };
            let (process, signal) = match status {
                WaitStatus::Stopped(process, Signal::SIGTRAP) => {
                    (process, (!self.handle_trap(process)?).then_some(Signal::SIGTRAP))
                }
                WaitStatus::Stopped(process, signal) => (process, Some(signal)),
                WaitStatus::PtraceEvent(process, _, event) => {
                    if event == libc::PTRACE_EVENT_EXEC {
                        self.handle_exec(process)?;
                    }
                    (process, None)
                }
                WaitStatus::Exited(process, _) | WaitStatus::Signaled(process, ..) => {
                    self.shifts.remove(&process);
                    continue;
                }
                _ => continue,
            };
            match ptrace::cont(process, signal) {
                // It was killed meanwhile.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Another program runs in a process: if it is ours, each function gets its breakpoint.
    fn handle_exec(&mut self, process: Pid) -> anyhow::Result<()> {
        self.shifts.remove(&process);
        let is_ours = fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|found| found == self.program);
        if !is_ours {
            return Ok(());
        }
        let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
        let start = maps
            .lines()
            .find_map(|line| line.split_once('-'))
            .context("it has no memory")?
            .0;
        let shift = u64::from_str_radix(start, 16)?;
        let memory = memory(process)?;
        for &address in self.functions.keys() {
            if let Entry::Vacant(unknown) = self.bytes.entry(address) {
                let mut byte = [0];
                memory.read_exact_at(&mut byte, shift + address)?;
                unknown.insert(byte[0]);
            }
            if !self.found.contains(&address) {
                memory.write_all_at(&[BREAKPOINT], shift + address)?;
            }
        }
        self.shifts.insert(process, shift);
        Ok(())
    }

    /// Takes note of the function in which a thread trapped, and lets it go on. Returns whether it was one of ours.
    fn handle_trap(&mut self, thread: Pid) -> anyhow::Result<bool> {
        let mut registers = ptrace::getregs(thread)?;
        let at = registers.rip - 1;
        // A thread or a fork has the memory, or a copy of the memory, of a process that was seen to be executed.
        let found = self.shifts.values().find_map(|shift| {
            let address = at.checked_sub(*shift)?;
            Some((address, *self.bytes.get(&address)?))
        });
        let Some((address, byte)) = found else {
            return Ok(false);
        };
        memory(thread)?.write_all_at(&[byte], at)?;
        registers.rip = at;
        ptrace::setregs(thread, registers)?;
        if self.found.insert(address) {
            self.order.extend(&self.functions[&address]);
        }
        Ok(true)
    }
}

fn memory(process: Pid) -> anyhow::Result<File> {
    let path = format!("/proc/{process}/mem");
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .context(path)
}
