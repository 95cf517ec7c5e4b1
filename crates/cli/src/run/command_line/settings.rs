//! All that the words of a command say, and the job that this makes.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    num::NonZeroU32,
    os::unix::ffi::OsStrExt,
};

use anyhow::{Context, bail};
use ropewalk_launch::{
    Inherited, JobSpec, OnFailure, Part, Parts, StdinSource,
    hosts::{HostSlots, total_slots},
};

use super::{
    Command, Output, OutputFolder, Request, Surroundings,
    binding::{self, BindTo},
    checkpoints::Checkpointing,
    failures::Failures,
    given::Given,
    hosts::Hosts,
    launchers::Launching,
    network::{NameServer, Network},
    options::{Apply, find, rows},
    other_launchers::advice,
    programs::Programs,
};

/// The options so far. An option whose meaning depends on no other stands in the [`JobSpec`] or the [`Output`] at
/// once.
pub(super) struct Settings<'a> {
    pub(super) around: &'a Surroundings<'a>,
    pub(super) spec: JobSpec,
    pub(super) output: Output,
    pub(super) programs: Programs,
    /// The variables of this command that programs get; `None` if nobody has said it yet.
    pub(super) inherited: Option<Inherited>,
    pub(super) hosts: Hosts,
    pub(super) binding: BindTo,
    pub(super) launching: Launching,
    pub(super) network: Network,
    pub(super) name_server: NameServer,
    pub(super) stdin: Option<StdinSource>,
    pub(super) failures: Failures,
    pub(super) checkpoints: Checkpointing,
    pub(super) reading: Reading,
}

/// The reading of the words.
#[derive(Default)]
pub(super) struct Reading {
    /// How many files of options were named.
    pub(super) files: u32,
    /// Something is asked of this command, instead of a job.
    pub(super) question: Option<Command>,
    /// The rows that there are, by their first names; `None` if all are.
    pub(super) known: Option<&'static [&'static str]>,
}

impl<'a> Settings<'a> {
    pub(super) fn new(around: &'a Surroundings<'a>) -> Self {
        Self {
            around,
            spec: JobSpec {
                forward_signals: true,
                fork_agent: true,
                ..JobSpec::new(around.agent.clone(), "")
            },
            output: Output::default(),
            programs: Programs::default(),
            inherited: None,
            hosts: Hosts::default(),
            binding: BindTo::default(),
            launching: Launching::default(),
            network: Network::default(),
            name_server: NameServer::default(),
            stdin: None,
            failures: Failures::default(),
            checkpoints: Checkpointing::default(),
            reading: Reading::default(),
        }
    }

    /// Reads words: options, a program and its arguments, and the same again behind each `:`. Ends at a question.
    pub(super) fn take(&mut self, words: Vec<OsString>) -> anyhow::Result<()> {
        let mut words = VecDeque::from(words);
        // How many programs there were where options of one more began.
        let mut begun = None;
        let mut ended = None;
        while let Some(word) = words.pop_front() {
            if word == ":" {
                self.programs.end()?;
                ended = Some(self.programs.ended.len());
            } else if let Some(option) = word.to_str().filter(|word| option_name(word).is_some()) {
                begun = ended;
                self.take_option(option, &mut words)?;
                if self.reading.question.is_some() {
                    return Ok(());
                }
            } else {
                // Options end where the program begins.
                let program = if word == "--" {
                    words.pop_front()
                } else {
                    Some(word)
                };
                let Some(program) = program else {
                    bail!("no program behind `--`");
                };
                self.programs.current.program = program;
                while words.front().is_some_and(|word| word != ":") {
                    self.programs.current.arguments.extend(words.pop_front());
                }
            }
        }
        if begun == Some(self.programs.ended.len()) && self.programs.current.program.is_empty() {
            bail!("no program behind the last `:`");
        }
        Ok(())
    }

    /// Looks an option up in the table and applies it. Its value is behind a `=`, or else in the next words.
    fn take_option(&mut self, option: &str, words: &mut VecDeque<OsString>) -> anyhow::Result<()> {
        let (typed, value) = match option.split_once('=') {
            Some((typed, value)) => (typed, Some(value)),
            None => (option, None),
        };
        let bare = option_name(typed).unwrap_or_default();
        let Some((row, name)) = find(bare) else {
            let mut advice = advice(bare, value).unwrap_or_default();
            if !advice.is_empty() {
                advice += if advice.ends_with('?') { " " } else { "; " };
            }
            bail!("there is no option {typed}; {advice}`ropewalk run --help` lists those that there are");
        };
        match value {
            // Behind it this would be taken for the program.
            Some(value) if row.value().is_none() => bail!("option {name} takes no value, not even {value:?}"),
            Some(value) => words.push_front(value.into()),
            None => {}
        }
        let mut given = Given { name, words };
        match row.apply {
            Apply::Job(apply) | Apply::Variable(apply) => apply(self, &mut given),
            Apply::Program(apply) => apply(&mut self.programs.current, &mut given),
        }
    }

    /// Reads the variables of the table. Each heeds the options that count more.
    fn take_variables(&mut self) -> anyhow::Result<()> {
        for row in rows() {
            let Apply::Variable(apply) = row.apply else {
                continue;
            };
            if self.reading.known.is_some_and(|known| !row.is_one_of(known)) {
                continue;
            }
            for name in row.names() {
                if let Some(value) = (self.around.variable)(name) {
                    let words = &mut VecDeque::from([value]);
                    apply(self, &mut Given { name, words })?;
                }
            }
        }
        Ok(())
    }

    /// A variable as `-x` has it: with its value, or with the one that this command has.
    pub(super) fn pass_on(&mut self, variable: &str) {
        let (name, value) = match variable.split_once('=') {
            Some((name, value)) => (name, Some(value.into())),
            None => (variable, (self.around.variable)(variable)),
        };
        let named = value.map(|value| (name.into(), value));
        self.spec.environment.variables.extend(named);
    }

    /// The value of `-ppn`.
    pub(super) fn per_host(&mut self, ranks: u32) {
        self.spec.placement.ranks_per_host = Some(ranks);
        self.spec.placement.counted = None;
    }

    /// So many ranks on each part of a kind: each host has as many parts as this one, or its agent says that it has
    /// not.
    pub(super) fn per_part(&mut self, given: &Given<'_>, ranks: u32, part: Part) -> anyhow::Result<()> {
        let ranks = NonZeroU32::new(ranks).with_context(|| format!("{given} wants 1 or more"))?;
        let counted = (self.around.count_parts)(part);
        let counted = counted.with_context(|| format!("{given} counts the parts of this host"))?;
        self.spec.placement.ranks_per_host = Some(ranks.get().saturating_mul(counted.count));
        self.spec.placement.counted = Some(counted);
        self.binding.fill(ranks, part);
        Ok(())
    }

    /// The value of `-map-by`, with Open MPI's words: `ppr:N:PART` means N ranks on each host or part of it, `PE=N`
    /// behind that N cores for each rank, and that ranks may be more than slots holds anyway.
    pub(super) fn map_by(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
        let text = given.text()?;
        let (order, modifiers) = binding::divide_modifiers(&text);
        for modifier in modifiers {
            let modifier = modifier.to_ascii_lowercase();
            match modifier.strip_prefix("pe=").map(str::parse) {
                Some(Ok(cores)) => self.binding.cores_per_rank(cores),
                None if modifier == "oversubscribe" => {}
                _ => return Err(given.wants("OVERSUBSCRIBE or PE=CORES behind the order", &text)),
            }
        }
        let Some(per_resource) = order.strip_prefix("ppr:") else {
            if order.is_empty() {
                return Ok(());
            }
            given.words.push_front(order.into());
            return self.binding.map_by(given);
        };
        let wrong = || {
            given.wants(
                "N ranks on each host or part of it, as in ppr:2:node or ppr:2:socket",
                order,
            )
        };
        let (ranks, resource) = per_resource.split_once(':').ok_or_else(wrong)?;
        let ranks = ranks.parse().ok().filter(|ranks| *ranks > 0).ok_or_else(wrong)?;
        if resource == "node" {
            self.per_host(ranks);
            return Ok(());
        }
        match resource.parse() {
            Ok(Parts { part, count }) if count == NonZeroU32::MIN => self.per_part(given, ranks, part),
            _ => Err(wrong()),
        }
    }

    /// The value of `--output-filename`.
    pub(super) fn write_to_folder(&mut self, given: &mut Given<'_>) -> anyhow::Result<()> {
        let folder = given.next()?;
        let bytes = folder.as_bytes();
        let (path, is_shown) = match bytes.strip_suffix(b":nocopy") {
            Some(path) => (path, false),
            None => (bytes, true),
        };
        if path.is_empty() {
            return Err(given.wants("a folder", &folder.to_string_lossy()));
        }
        let path = OsStr::from_bytes(path).into();
        self.output.folder = Some(OutputFolder { path, is_shown });
        Ok(())
    }

    /// Tells those who want to know much of an option or a variable without effect.
    pub(super) fn pass_over(&mut self, subject: &str) {
        let notice = format!("{subject} tunes what only Hydra has; it is passed over");
        self.output.notices.push(notice);
    }

    /// The job that all of this makes.
    pub(super) fn finish(mut self) -> anyhow::Result<Request> {
        let around = self.around;
        if self.spec.pmi.singleton.is_some() {
            self.stdin = Some(StdinSource::Null);
            self.programs.current.program = "singleton".into();
        }
        self.programs.end_last()?;
        self.take_variables()?;

        let mut spec = self.spec;
        // A process that runs already is on this host.
        let manager = match spec.pmi.singleton {
            Some(_) => None,
            None => self.hosts.find(around)?,
        };
        spec.hosts = self.hosts.finish()?;
        if let [only] = &mut self.programs.ended[..] {
            only.ranks = only.ranks.or(match &spec.placement.rank_map {
                // It is about so many; more than a job may have are refused with the others.
                Some(map) => Some(u32::try_from(map.ranks()).unwrap_or(u32::MAX)),
                None => match spec.placement.ranks_per_host {
                    Some(ranks) => Some(ranks.saturating_mul(host_count(&spec.hosts))),
                    None => (!spec.hosts.is_empty()).then(|| total_slots(&spec.hosts)),
                },
            });
        }
        self.programs.finish(&mut spec)?;
        spec.environment.inherited = self.inherited.unwrap_or(Inherited::All);
        spec.agents.method = self.launching.method(manager, around)?;
        let launcher = self.launching.launcher.as_deref();
        spec.network.interface = self.network.address(launcher, !spec.hosts.is_empty())?;
        spec.network.rank_network = self.network.for_ranks();
        spec.pmi.name_server = self.name_server.finish(around)?;
        if spec.time_limits.detect.is_zero() {
            bail!("option --detect wants more than 0 seconds");
        }
        spec.injection = self.failures.finish(&mut spec.reactions.on_failure)?;
        self.binding
            .finish(&mut spec.placement, &mut self.output.notices)?;
        // What one attempt has read the next cannot read again.
        spec.stdin = self.stdin.unwrap_or(match spec.reactions.on_failure {
            OnFailure::Restart(_) => StdinSource::Null,
            _ => StdinSource::Inherit,
        });
        Ok(Request {
            is_openfoam: self.checkpoints.is_openfoam,
            checkpoints: self.checkpoints.finish(&spec)?,
            output: self.output,
            spec,
        })
    }
}

/// How many hosts there are: at least this one.
fn host_count(hosts: &[HostSlots]) -> u32 {
    u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1)
}

/// An option without its dashes; `None` for a word that is none, as `--`.
pub(super) fn option_name(word: &str) -> Option<&str> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
    name.filter(|_| word != "--" && word != "-")
}
